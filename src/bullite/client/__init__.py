"""The API of producers and operators."""

from __future__ import annotations
