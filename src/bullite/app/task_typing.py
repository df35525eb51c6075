"""Types of tasks for type checkers: `enqueue` takes the function's arguments without the job."""

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


class NoType:
    """A type that no function has in its signature."""


class Calls(Protocol[Q, R_co]):
    """A task whose function does not take the job first."""

    @property
    def function(self) -> Callable[Q, R_co]: ...


class CallsWithJob(Protocol[Q, R_co]):
    """A task whose function takes the job first, then the arguments that the producer passes."""

    @property
    def function(self) -> Callable[Concatenate[Job, Q], R_co]: ...


class CallsWithAnything(Protocol[Q, R_co]):
    """A task whose function takes any type first: that parameter is not for the job.

    Without it, type checkers would match `data: Any` as the job.
    """

    @property
    def function(self) -> Callable[Concatenate[NoType, Q], R_co]: ...


class Enqueuing(Protocol[Q, R_co, How_co]):
    """The type of `task.enqueue`."""

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
    """`enqueue` for type checkers: without the job, and with the result of a coroutine.

    It is a descriptor, so that the first overload that matches is chosen. For a method, type
    checkers try all that match, and an argument of type Any makes the result Any.
    """

    @property
    def function(self) -> Callable[P, R_co]:
        raise NotImplementedError  # never instantiated

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
