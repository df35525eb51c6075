"""Middleware: hooks before, after and around every job. Plain functions run in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ..client.job.job import Job
from ..client.runtime import bridge
from ..errors import InvalidOptionType
from ..worker.processors import is_async, make_handler
from .current_job import running
from .job_logging import JobLog

Next = Callable[[], Awaitable[Any]]
Around = Callable[[Job, Next], Awaitable[Any]]
Hook = Callable[..., Awaitable[None] | None]

Call = Callable[[Job], Any]
"""A processor with some of its hooks: a blocking function or a coroutine function."""

Layer = Callable[[Call], Call]
"""Wraps one hook around a call. Plain functions around a plain call run in one thread."""


class Hooks:
    """The hooks of one application; the first that is added is the outermost."""

    def __init__(self, log: JobLog | None = None) -> None:
        self._layers: list[Layer] = []
        self._log = log

    def before(self, hook: Hook) -> None:
        """Call `hook(job)` before every job."""
        _check("before", hook, "(job)", 1)
        self._layers.append(functools.partial(_before, hook))

    def after(self, hook: Hook) -> None:
        """Call `hook(job, result, error)` after every job."""
        _check("after", hook, "(job, result, error)", 3)
        self._layers.append(functools.partial(_after, hook))

    def around(self, hook: Around) -> None:
        """Call `hook(job, call_next)` instead of every job."""
        _check("around", hook, "(job, call_next)", 2)
        if not is_async(hook):
            raise InvalidOptionType(
                f"around must be an `async def`, not {hook!r}: it awaits the job"
            )
        self._layers.append(functools.partial(_around, hook))

    def wrapped(self, function: Callable[..., Any]) -> Callable[[Job], Any]:
        """Return a processor with all hooks around it."""
        handler = make_handler("the processor", function)
        plain = handler.call
        call: Call = _coroutine(plain) if handler.in_loop else plain
        for layer in reversed(self._layers):
            call = layer(call)
        return _running(call, self._log)


def _check(kind: str, hook: Any, takes: str, number: int) -> None:
    try:
        inspect.signature(hook).bind(*[None] * number)
    except TypeError:
        raise InvalidOptionType(
            f"{kind} must be a function that takes {takes}, not {hook!r}"
        ) from None


def _before(hook: Hook, call: Call) -> Call:
    if not is_async(call) and not is_async(hook):

        def in_thread(job: Job) -> Any:
            _call_hook(hook, job)
            return call(job)

        return in_thread
    awaited_hook, awaited = _awaited(hook, functools.partial(_call_hook, hook)), _awaited(call)

    async def on_loop(job: Job) -> Any:
        await awaited_hook(job)
        return await awaited(job)

    return on_loop


def _after(hook: Hook, call: Call) -> Call:
    if not is_async(call) and not is_async(hook):

        def in_thread(job: Job) -> Any:
            try:
                result = call(job)
            except Exception as error:
                _call_hook(hook, job, None, error)
                raise
            _call_hook(hook, job, result, None)
            return result

        return in_thread
    awaited_hook, awaited = _awaited(hook, functools.partial(_call_hook, hook)), _awaited(call)

    async def on_loop(job: Job) -> Any:
        try:
            result = await awaited(job)
        except Exception as error:
            await awaited_hook(job, None, error)
            raise
        await awaited_hook(job, result, None)
        return result

    return on_loop


def _around(hook: Around, call: Call) -> Call:
    awaited = _awaited(call)

    async def on_loop(job: Job) -> Any:
        return await hook(job, functools.partial(awaited, job))

    return on_loop


def _running(call: Call, log: JobLog | None) -> Call:
    """Wrap a call: set the current job, and convert SystemExit, which would end the worker."""
    if not is_async(call):

        def in_thread(job: Job) -> Any:
            with running(job, log):
                return call(job)

        return in_thread

    async def on_loop(job: Job) -> Any:
        with running(job, log):
            try:
                return await call(job)
            except SystemExit as error:
                raise _exited(error) from error

    return on_loop


def _exited(error: BaseException) -> RuntimeError:
    return RuntimeError(f"{type(error).__name__}: {error}")


def _coroutine(function: Callable[..., Any]) -> Call:
    """Return a coroutine function that awaits the result of `function`."""

    async def call(job: Job) -> Any:
        return await function(job)

    return call


def _awaited(
    function: Callable[..., Any], plainly: Callable[..., Any] | None = None
) -> Callable[..., Awaitable[Any]]:
    """Return a coroutine function; a plain function, or `plainly`, is run in a thread."""
    if is_async(function):
        return function
    return functools.partial(_run_in_thread, plainly or function)


def _call_hook(hook: Hook, *given: Any) -> None:
    """Call a plain hook. Raise InvalidOptionType if it returns something to await."""
    result = hook(*given)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InvalidOptionType(f"{hook!r} gives something to await: write it as an `async def`")


async def _run_in_thread(function: Callable[..., Any], job: Job, *rest: Any) -> Any:
    """Run a function in a thread of its own, not in asyncio's default executor.

    The default executor has few threads: requests wait for them, and so does the end of the loop.
    A thread cannot be interrupted: if this coroutine is cancelled, it waits for the function.
    """
    context = contextvars.copy_context()
    work = asyncio.ensure_future(
        bridge.run_in_thread(functools.partial(context.run, _capture, function, job, *rest))
    )
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            job._run.abort("the worker is closing")  # keeps an earlier reason
    value, error = work.result()
    _copy_context_back(context)
    if isinstance(error, SystemExit | KeyboardInterrupt):
        # Raised in the event loop, it would end the program.
        raise _exited(error) from error
    if error is not None:
        raise error
    return value


def _copy_context_back(context: contextvars.Context) -> None:
    """Copy context variables from a thread's context: hooks and the job share them."""
    for variable, value in context.items():
        if variable.get(None) is not value:
            variable.set(value)


def _capture(function: Callable[..., Any], *given: Any) -> tuple[Any, BaseException | None]:
    """Return the result or the exception of a call; futures do not accept every exception."""
    try:
        return function(*given), None
    except BaseException as error:
        return None, error
