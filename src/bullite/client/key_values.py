"""Values of a database by kind and name: configuration, templates, groups of workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.codec import decode, encode
from ..operations.key_values import UpdateKeyValue
from .runtime import bridge
from .runtime.store import Store


async def list_values(store: Store, kind: str) -> dict[str, Any]:
    """Return the values of a kind, by name."""
    rows = await bridge.query(store, "list_values", {"kind": kind})
    return {name: decode(value) for name, value, _ in rows}


async def get_value(store: Store, kind: str, name: str) -> Any:
    """Return a value; None if there is none."""
    rows = await bridge.query(store, "get_value", {"kind": kind, "name": name})
    return next((decode(value) for [value] in rows), None)


async def set_value(store: Store, kind: str, name: str, value: Any) -> None:
    """Store a value under a kind and a name; None deletes it."""
    await update_value(store, kind, name, lambda _: value)


async def update_value(
    store: Store, kind: str, name: str, make: Callable[[Any], Any]
) -> tuple[Any, Any]:
    """Replace a value by `make(value)` in one transaction. Return the old value and the new."""

    def make_text(old: str | None) -> str | None:
        new = make(None if old is None else decode(old))
        return None if new is None else encode(new, f"the {kind} {name}")

    old, new = await bridge.submit(store, UpdateKeyValue(kind, name, make_text))
    return (None if old is None else decode(old)), (None if new is None else decode(new))
