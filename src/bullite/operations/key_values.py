"""Values by kind and name that are stored beside the jobs: configuration, templates, groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .request import ALONE_BESIDE_OTHERS, Request
from .transaction import Operation, Transaction


class UpdateKeyValue(Request):
    """Change one value. Reply with the old and the new value as JSON, None for no value.

    `make` gets the old value and returns the new one. It is called inside the transaction, so no
    other process changes the value meanwhile. If the transaction is repeated, so is the call. If
    `make` raises an error, that is the reply.
    """

    kind: str
    name: str
    make: Callable[[str | None], str | None]
    barrier = True
    apart = ALONE_BESIDE_OTHERS


Reply = tuple[str | None, str | None] | Exception


def update_key_value(tx: Transaction, requests: Sequence[UpdateKeyValue]) -> Operation[list[Reply]]:
    replies: list[Reply] = []
    for request in requests:
        key = {"kind": request.kind, "name": request.name}
        yield "lock_value", key
        found = yield "get_value", key
        old: str | None = next((value for [value] in found.rows), None)
        try:
            new = request.make(old)
        except Exception as error:  # only this request fails: nothing has been written for it
            replies.append(error)
            continue
        if new is None:
            yield "delete_value", key
        elif new != old:
            yield "put_value", {**key, "value": new, "now": tx.now}
        replies.append((old, new))
    return replies
