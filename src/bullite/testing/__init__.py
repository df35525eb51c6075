"""Test support: the real engine, a virtual clock, worker processes that can be killed."""

from __future__ import annotations

from .clock import START, VirtualClock
from .killable_process import POINTS
from .playground import Playground
from .run_records import Ran, Run

__all__ = ["POINTS", "START", "Playground", "Ran", "Run", "VirtualClock"]
