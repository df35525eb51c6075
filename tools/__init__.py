"""Programs that make parts of the repository; none of them is part of the package."""

from __future__ import annotations
