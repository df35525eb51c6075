"""Processes of the operating system: found, signalled, grouped, supervised."""

from __future__ import annotations
