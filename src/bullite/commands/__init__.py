"""Built-in jobs: shell commands, webhooks, Python functions and notifications."""

from __future__ import annotations
