"""The state of an engine: it runs, or it stops, perhaps because of an error."""

from __future__ import annotations

from ..errors import StoreClosed, StoreError


class EngineState:
    """Shared by the parts of one engine."""

    __slots__ = ("error", "is_stopping")

    def __init__(self) -> None:
        self.is_stopping = False
        self.error: StoreError | None = None
        """The error after which the store must be opened again."""

    def stop(self, error: StoreError) -> None:
        self.error = error
        self.is_stopping = True

    def refusal(self) -> StoreError:
        """Return the error for requests that are not executed any more."""
        return self.error or StoreClosed("the store is closed")
