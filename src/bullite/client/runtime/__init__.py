"""The store, and how coroutines and threads talk to the engine."""

from __future__ import annotations
