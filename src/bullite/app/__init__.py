"""Bullite: tasks, schedules, middleware and routes of one application."""

from __future__ import annotations
