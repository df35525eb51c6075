"""The arguments of a task: checked when it is enqueued, typed when it runs."""

from __future__ import annotations

import ast
import functools
import inspect
import reprlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Union

import msgspec

from ..errors import InvalidArguments
from .serialization import Serializer, UnresolvedAnnotation, on_one_line, serializer_for, storable

ARGS, KWARGS, VERSION = "args", "kwargs", "v"
"""The keys of a task's data; version 1 is not stored."""

_NONE = inspect.Parameter.empty
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class TaskParameter(NamedTuple):
    """One parameter of a task."""

    what: str
    form: Serializer

    def store(self, value: Any) -> Any:
        return self.form.store(self.what, value)

    def load(self, plain: Any) -> Any:
        return self.form.load(self.what, plain)


class Signature:
    """Parameters of a task's function that the producer passes when it enqueues the task."""

    def __init__(self, name: str, function: Callable[..., Any], job_type: type) -> None:
        self._name = name
        self._function = function
        self._whole = inspect.signature(function)
        hints = _hints(function)
        self.injected = [
            parameter.name
            for parameter in self._whole.parameters.values()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            and _is_job(hints.get(parameter.name), job_type)
        ]
        """Parameters that get the job."""
        parameters = self._whole.parameters
        self.needs_job = any(parameters[name].default is _NONE for name in self.injected)
        """Whether one of them has no default."""
        given = [p for p in parameters.values() if p.name not in self.injected]
        self._signature = self._whole.replace(parameters=given)
        self._by_position = [p.name for p in given if p.kind in _BY_POSITION]
        self._rest = next((p.name for p in given if p.kind is p.VAR_POSITIONAL), "")
        self._more = next((p.name for p in given if p.kind is p.VAR_KEYWORD), "")

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        # Resolved when first needed: an annotation may name what its module defines later.
        return _hints(self._function)

    @functools.cached_property
    def _slots(self) -> dict[str, TaskParameter]:
        return {
            name: self._slot(name, serializer_for(self._type(name)))
            for name in self._whole.parameters
        }

    @functools.cached_property
    def _slots_by_name(self) -> dict[str, TaskParameter]:
        parameters = self._signature.parameters.values()
        slots = {p.name: self._slots[p.name] for p in parameters if p.kind in _BY_NAME}
        more = self._type(self._more)
        if typing.get_origin(more) is typing.Unpack:
            [names] = typing.get_args(more)
            for name, annotation in typing.get_type_hints(names, include_extras=True).items():
                slots.setdefault(name, self._slot(name, serializer_for(annotation)))
        return slots

    @functools.cached_property
    def _returned(self) -> Serializer:
        return serializer_for(self._type("return"))

    # --- enqueue ---

    def pack(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as they are stored. Raise InvalidArguments if they do not fit.

        Arguments by name are stored by name: a deploy may change the order of parameters.
        """
        self._bind(args, kwargs)
        stored: dict[str, Any] = {}
        if args:
            stored[ARGS] = [slot.store(one) for slot, one in zip(self._slots_of(args), args)]
        if kwargs:
            stored[KWARGS] = {key: self._slot_of(key).store(one) for key, one in kwargs.items()}
        return stored

    def takes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether there are parameters for these arguments, of any type."""
        try:
            self._bind(args, kwargs)
        except InvalidArguments:
            return False
        return True

    # --- run ---

    def unpack(self, data: Any, job: object) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments for the function, with the job if it takes one."""
        given = parse_payload(f"task {self._name}: the data of the job", data)
        args, kwargs = given[ARGS], given[KWARGS]
        self._bind(args, kwargs)
        typed = [slot.load(one) for slot, one in zip(self._slots_of(args), args)]
        by_name = {key: self._slot_of(key).load(one) for key, one in kwargs.items()}
        return self.with_job(typed, by_name, job)

    def with_job(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], job: object
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return arguments and the job, each at its parameter."""
        if not self.injected:
            return args, kwargs
        given = self._bind(args, kwargs).arguments
        everything = {
            name: job if name in self.injected else given[name]
            for name in self._whole.parameters
            if name in self.injected or name in given
        }
        bound = inspect.BoundArguments(self._whole, everything)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    # --- result ---

    def pack_result(self, value: Any) -> Any:
        """Return the result of the function in a form that can be stored."""
        return storable(value)

    def result(self, value: Any) -> Any:
        """Return a stored result, typed by the annotation; unchanged if it does not fit."""
        try:
            return self._returned.load("the result", value)
        except InvalidArguments:
            return value

    # --- internals ---

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArguments(f"task {self._name}: {error}") from None

    def _slots_of(self, args: Sequence[Any]) -> list[TaskParameter]:
        """Return the parameters of positional arguments."""
        names = self._by_position[: len(args)]
        names += [self._rest] * (len(args) - len(names))
        return [self._slots[name] for name in names]

    def _slot_of(self, key: str) -> TaskParameter:
        # A key of **kwargs may have the name of a positional-only parameter.
        known = self._slots_by_name.get(key)
        return self._slot(key, self._slots[self._more].form) if known is None else known

    def _slot(self, name: str, form: Serializer) -> TaskParameter:
        return TaskParameter(f"task {self._name}: argument {name!r}", form)

    def _type(self, name: str) -> Any:
        return self._types.get(name, Any)


class _Data(msgspec.Struct, forbid_unknown_fields=True):
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    v: Annotated[int, msgspec.Meta(ge=1)] = 1


def parse_payload(what: str, data: Any) -> dict[str, Any]:
    """Return the data of a task, with both kinds of arguments.

    Raise InvalidArguments, beginning with `what`, if it has another form.
    """
    try:
        given = msgspec.convert(data, _Data)
    except msgspec.ValidationError as error:
        raise InvalidArguments(
            f"{what} is {reprlib.repr(data)}, and must be of the form "
            f'{{"args": [...], "kwargs": {{...}}, "v": 1}}: {error}'
        ) from None
    return {ARGS: given.args, KWARGS: given.kwargs}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations; those that cannot be resolved as UnresolvedAnnotation."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__annotations__"):
        function = getattr(function, "__call__", function)  # noqa: B004 - a callable object
    # The annotations are those of the wrapped function, resolved in its module.
    plain: Any = inspect.unwrap(function)
    names = getattr(plain, "__globals__", {})
    return {
        name: _resolved(annotation, names)
        for name, annotation in getattr(plain, "__annotations__", {}).items()
    }


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    holder: Any = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, names, {}, include_extras=True)["it"]
    except Exception as error:  # a name that only a type checker knows
        return UnresolvedAnnotation(annotation, on_one_line(error))


def _is_job(annotation: Any, job_type: type) -> bool:
    if isinstance(annotation, UnresolvedAnnotation):
        annotation = annotation.written
    if isinstance(annotation, str):
        try:
            written = ast.parse(annotation.strip(), mode="eval").body
        except SyntaxError:
            return False
        return _is_written_job(written, job_type.__name__)
    if typing.get_origin(annotation) is Annotated:
        return _is_job(typing.get_args(annotation)[0], job_type)
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return any(_is_job(one, job_type) for one in typing.get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, job_type)


def _is_written_job(written: ast.expr, name: str) -> bool:
    """Do the same for the source of an annotation: `Job | None`, `Optional[bullite.Job]`, …"""
    parts: Sequence[ast.expr] = ()
    match written:
        case ast.Name(id=found) | ast.Attribute(attr=found):
            return found == name
        case ast.BinOp(left=left, right=right):
            parts = (left, right)
        case ast.Subscript(value=ast.Name(id=outer) | ast.Attribute(attr=outer), slice=inside) if (
            outer in ("Optional", "Union", "Annotated")
        ):
            parts = inside.elts if isinstance(inside, ast.Tuple) else (inside,)
            parts = parts[:1] if outer == "Annotated" else parts
    return any(_is_written_job(part, name) for part in parts)
