"""Tests of jobs: the real engine, time that passes on demand, workers that can be killed."""

from __future__ import annotations

from .clock import START, VirtualClock
from .playground import Playground
from .processes import POINTS
from .records import Ran, Run

__all__ = ["POINTS", "START", "Playground", "Ran", "Run", "VirtualClock"]
