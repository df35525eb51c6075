"""Values that are kept by kind and name beside the jobs: configuration, templates, groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .request import ALONE_BESIDE_OTHERS, Request
from .transaction import Operation, Transaction


class UpdateKeyValue(Request):
    """Change one value. Answers what it was and what it is now, as JSON; None for none.

    `make` gets what it was, and is asked inside the transaction: nobody else changes it meanwhile.
    It may be asked again, if the transaction has to be. What it raises is the answer.
    """

    kind: str
    name: str
    make: Callable[[str | None], str | None]
    barrier = True
    apart = ALONE_BESIDE_OTHERS


Answer = tuple[str | None, str | None] | Exception


def update_key_value(
    tx: Transaction, requests: Sequence[UpdateKeyValue]
) -> Operation[list[Answer]]:
    answers: list[Answer] = []
    for request in requests:
        place = {"kind": request.kind, "name": request.name}
        yield "lock_value", place
        found = yield "get_value", place
        old: str | None = next((value for [value] in found.rows), None)
        try:
            new = request.make(old)
        except Exception as error:  # it is its caller's alone: nothing has been written for it
            answers.append(error)
            continue
        if new is None:
            yield "delete_value", place
        elif new != old:
            yield "put_value", {**place, "value": new, "now": tx.now}
        answers.append((old, new))
    return answers
