"""The store, and the bridges from coroutines and threads to the engine."""

from __future__ import annotations
