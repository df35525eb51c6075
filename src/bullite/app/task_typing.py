"""What type checkers see of tasks: `enqueue` takes what the function does, but for the job."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

if TYPE_CHECKING:
    from ..client.job.job import Job
    from .task import TaskJob

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
How_co = TypeVar("How_co", covariant=True)


class Nobody:
    """What no function asks for by name."""


class Calls(Protocol[Q, R_co]):
    """It has a function."""

    @property
    def function(self) -> Callable[Q, R_co]: ...


class CallsWithJob(Protocol[Q, R_co]):
    """A task whose function takes the job first, then the arguments that the producer passes."""

    @property
    def function(self) -> Callable[Concatenate[Job, Q], R_co]: ...


class CallsWithAnything(Protocol[Q, R_co]):
    """Its function takes whatever there is in first place: that is not for the job.

    Type checkers would take `data: Any` for a place of the job, since it fits there.
    """

    @property
    def function(self) -> Callable[Concatenate[Nobody, Q], R_co]: ...


class Enqueuing(Protocol[Q, R_co, How_co]):
    """The verb of one task."""

    @property
    def how(self) -> How_co: ...
    @overload
    async def __call__(
        self: Enqueuing[Q, R_co, Literal["awaited"]], *args: Q.args, **kwargs: Q.kwargs
    ) -> TaskJob[R_co]: ...
    @overload
    def __call__(
        self: Enqueuing[Q, R_co, Literal["blocking"]], *args: Q.args, **kwargs: Q.kwargs
    ) -> TaskJob[R_co]: ...


class Verb(Generic[P, R_co, How_co]):
    """`enqueue` as type checkers see it: without the job in first place, and with the result
    that a coroutine comes to.

    It is got, not called, so that the first overload that fits counts: were it a method, all
    that fit would be tried with the arguments, and nothing known wherever one is Any.
    """

    @property
    def function(self) -> Callable[P, R_co]:
        raise NotImplementedError  # nobody makes one

    @overload
    def __get__(
        self: CallsWithAnything[..., Coroutine[Any, Any, R]], task: object, owner: object
    ) -> Enqueuing[P, R, How_co]: ...
    @overload
    def __get__(
        self: CallsWithAnything[..., R], task: object, owner: object
    ) -> Enqueuing[P, R, How_co]: ...
    @overload
    def __get__(
        self: CallsWithJob[Q, Coroutine[Any, Any, R]], task: object, owner: object
    ) -> Enqueuing[Q, R, How_co]: ...
    @overload
    def __get__(
        self: CallsWithJob[Q, R], task: object, owner: object
    ) -> Enqueuing[Q, R, How_co]: ...
    @overload
    def __get__(
        self: Calls[Q, Coroutine[Any, Any, R]], task: object, owner: object
    ) -> Enqueuing[Q, R, How_co]: ...
    @overload
    def __get__(self: Calls[Q, R], task: object, owner: object) -> Enqueuing[Q, R, How_co]: ...
    def __get__(self, task: object, owner: object) -> Any: ...
