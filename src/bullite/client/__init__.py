"""What producers and operators hold."""

from __future__ import annotations
