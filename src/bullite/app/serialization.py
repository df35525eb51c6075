"""Serialize argument values by their annotation: to JSON when enqueued, back when the task runs."""

from __future__ import annotations

import dataclasses
import functools
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from ..core.codec import encode, encode_plain
from ..errors import InvalidArguments, UnserializableData

_TEXTUAL = (bytes, bytearray, memoryview, datetime, date, time, timedelta, UUID, Decimal)
"""Types that are text in JSON; a text in place of one is refused before it is stored."""

_MISFITS = (TypeError, ValueError, RuntimeError)
"""Errors for values that do not fit; the last is for a model that is not fully defined."""

_SCALARS = (str, int, float, bool, type(None))


class Serializer(Protocol):
    """Stores and loads the values of one annotation.

    Both verbs raise InvalidArguments, whose message begins with `what`, if a value does not fit.
    """

    def store(self, what: str, value: Any) -> Any:
        """Return the value as JSON data. Raise InvalidArguments, beginning with `what`."""

    def load(self, what: str, plain: Any) -> Any:
        """Return stored data as a value of the annotation. Raise InvalidArguments."""


def serializer_for(annotation: Any) -> Serializer:
    """Return the serializer of an annotation, cached; one that always raises if there is none."""
    if typing.get_origin(annotation) in (typing.Required, typing.NotRequired):
        [annotation] = typing.get_args(annotation)
    if isinstance(annotation, UnresolvedAnnotation):
        return _Untyped(annotation.why)
    if isinstance(annotation, (typing.ParamSpecArgs, typing.ParamSpecKwargs)):
        return _Native(Any)
    of_pydantic = [part for part in _parts(annotation) if _is_of_pydantic(part)]
    ways: list[Callable[[Any], Serializer]] = [_Validated] if of_pydantic else []
    if all(_is_model(part) for part in of_pydantic):  # msgspec would overlook all else
        ways.append(_Native)
    problem: Exception | None = None
    for way in ways:
        try:
            return way(annotation)
        except Exception as error:
            problem = problem or error
    return _Unserializable(problem)


class _Native:
    """Serializer of the types that msgspec supports."""

    def __init__(self, annotation: Any) -> None:
        msgspec.json.Decoder(annotation)  # refuses here and now what it cannot keep
        self._annotation = annotation

    def store(self, what: str, value: Any) -> Any:
        kept, plain = _as_json(what, value)
        try:
            # Checked before it is stored: afterwards a date and its text are the same.
            _convert_given(self._annotation, kept)
        except _MISFITS as error:
            raise _type_error(what, error) from None
        _check_arrival(what, value, self.load(what, plain))
        return plain

    def load(self, what: str, plain: Any) -> Any:
        try:
            return _convert_stored(self._annotation, plain)
        except _MISFITS as error:
            raise _type_error(what, error) from None


class _Validated:
    """Serializer of the types that only pydantic supports."""

    def __init__(self, annotation: Any) -> None:
        # Only code that has imported pydantic can annotate with its types.
        pydantic: Any = sys.modules["pydantic"]
        try:
            adapter = pydantic.TypeAdapter(annotation, config={"strict": True})
        except pydantic.PydanticUserError:
            adapter = pydantic.TypeAdapter(annotation)  # a model tells that by itself
        # Built now: this raises for a model that is not fully defined.
        self._validate = adapter.validator.validate_python
        self._validate_json = adapter.validator.validate_json
        self._dump = adapter.serializer.to_python

    def store(self, what: str, value: Any) -> Any:
        try:
            fitting = self._validate(value)
            plain = self._dump(fitting, mode="json", by_alias=True, round_trip=True, warnings=False)
        except ValueError as error:
            raise _type_error(what, error) from None
        _check_json(what, plain)
        if self.load(what, plain) != fitting:
            raise _changed(what, value)
        return plain

    def load(self, what: str, plain: Any) -> Any:
        try:
            # As JSON: a strict model accepts the text of a date only there.
            return self._validate_json(encode_plain(plain))
        except ValueError as error:
            raise _type_error(what, error) from None


class _Untyped:
    """Serializer of an annotation that cannot be resolved at run time: JSON is passed unchanged."""

    def __init__(self, why: str) -> None:
        self._why = why

    def store(self, what: str, value: Any) -> Any:
        _, plain = _as_json(what, value)
        if not _is_json(value):
            raise InvalidArguments(
                f"{what} has an annotation that cannot be made out at run time: {self._why}; "
                "import it outside of TYPE_CHECKING, where its module can find it"
            )
        return plain

    def load(self, what: str, plain: Any) -> Any:
        return plain


class _Unserializable:
    """Serializer of an annotation whose values cannot be stored: it always raises."""

    def __init__(self, problem: Exception | None) -> None:
        fix = (
            "import it outside of TYPE_CHECKING, where its module can find it"
            if isinstance(problem, NameError)
            else "annotate it with one class, with msgspec.Structs that have tag=True, or with Any"
        )
        self._why = f"{on_one_line(problem)}; {fix}"

    def store(self, what: str, value: Any) -> Any:
        raise InvalidArguments(f"{what} has an annotation that cannot be kept: {self._why}")

    load = store


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and all parts of it, with metadata."""
    waiting, seen = [annotation], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:  # an alias may name itself
            continue
        seen.add(id(part))
        yield part
        waiting += typing.get_args(part)
        waiting += (getattr(part, name) for name in _ALIASED if hasattr(part, name))


_ALIASED = ("__value__", "__supertype__")
"""Attributes with the type that a `type` statement or a NewType stands for."""


def _is_of_pydantic(part: Any) -> bool:
    """Return whether a part of an annotation is of pydantic or is made for it."""
    kind = part if isinstance(part, type) else type(part)
    return "pydantic" in sys.modules and (
        kind.__module__.partition(".")[0] in ("pydantic", "annotated_types")
        or hasattr(kind, "__get_pydantic_core_schema__")
        or hasattr(kind, "__pydantic_core_schema__")
    )


def _is_model(kind: Any) -> bool:
    return hasattr(kind, "model_validate_json")


def _is_json(value: Any) -> bool:
    """Return whether a value is JSON data at all levels."""
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    return type(value) in _SCALARS


class UnresolvedAnnotation(NamedTuple):
    """An annotation that cannot be resolved at run time."""

    written: Any
    why: str


# --- JSON ---


def _as_json(what: str, value: Any) -> tuple[Any, Any]:
    """Return a value in JSON types and types that are text in JSON, and in JSON types only."""
    try:
        kept = msgspec.to_builtins(value, builtin_types=_TEXTUAL, enc_hook=_to_plain_and_back)
        plain = msgspec.to_builtins(kept, str_keys=True)
    except _Changed as changed:
        raise _changed(what, changed.value) from None
    except (TypeError, ValueError, RecursionError, NotImplementedError) as error:
        raise InvalidArguments(f"{what} cannot be stored as JSON: {error}") from None
    _check_json(what, plain)
    return kept, plain


def _check_json(what: str, plain: Any) -> None:
    try:
        encode(plain, what)
    except UnserializableData as error:
        raise InvalidArguments(str(error)) from None


def _type_error(what: str, error: Exception) -> InvalidArguments:
    return InvalidArguments(f"{what} does not fit its annotation: {on_one_line(error)}")


class _Changed(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


def _changed(what: str, value: Any) -> InvalidArguments:
    return InvalidArguments(
        f"{what} would arrive changed: {type(value).__name__} is not the same when it comes back "
        "from its JSON, as with a SecretStr, an excluded field or a private attribute; pass what "
        "JSON keeps"
    )


def _check_arrival(what: str, given: Any, arrived: Any) -> None:
    """Raise InvalidArguments for an object that would arrive with another class or other values.

    What is annotated as plain, such as with Any, a dict or a TypedDict, may arrive so.
    """
    names = _fields(type(given))
    pairs: Iterable[tuple[Any, Any]] = ()
    if names is not None and not isinstance(arrived, (dict, list)):
        if type(arrived) is not type(given):
            raise InvalidArguments(
                f"{what} does not fit its annotation: a {type(given).__name__} would arrive as a "
                f"{type(arrived).__name__}; annotate it with the class that it has"
            )
        pairs = [(getattr(given, name), getattr(arrived, name, None)) for name in names]
        if any(type(mine) in _SCALARS and mine != theirs for mine, theirs in pairs):
            raise _changed(what, given)
    elif isinstance(given, dict) and isinstance(arrived, dict):
        if len(given) != len(arrived):
            unknown = sorted(map(str, given.keys() - arrived.keys()))
            raise InvalidArguments(
                f"{what} does not fit its annotation, which has no key {unknown[0]!r}"
            )
        pairs = zip(given.values(), arrived.values(), strict=True)
    elif isinstance(given, (list, tuple)) and isinstance(arrived, (list, tuple)):
        pairs = zip(given, arrived, strict=False)
    for mine, theirs in pairs:
        _check_arrival(what, mine, theirs)


def _fields(kind: Any) -> Sequence[str] | None:
    """The fields of a class whose objects are told apart by it; None if it is no such class.

    Of a model none: it says itself whether it comes back as it was.
    """
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if hasattr(kind, "__attrs_attrs__"):
        return [attribute.name for attribute in kind.__attrs_attrs__]
    fields: Sequence[str] | None = getattr(kind, "__struct_fields__", None)
    return () if _is_model(kind) else fields


def on_one_line(error: Exception | None) -> str:
    return " ".join(str(error).split())


def storable(value: Any) -> Any:
    """Return a value in a form that can be stored; unchanged, if there is none."""
    if type(value) in _SCALARS:
        return value
    try:
        return msgspec.to_builtins(value, builtin_types=_TEXTUAL, enc_hook=_to_plain)
    except (TypeError, ValueError, RecursionError, NotImplementedError):
        return value  # the worker refuses it like any other result


def _to_plain(value: Any) -> Any:
    """Return the data of a model with `model_dump`, as pydantic has. Raise NotImplementedError."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise NotImplementedError(f"{type(value).__name__} is no JSON")


def _to_plain_and_back(value: Any) -> Any:
    """Return the same. Raise _Changed if the model does not make an equal value of it."""
    plain = _to_plain(value)
    if _is_model(type(value)):
        try:
            again = type(value).model_validate_json(encode_plain(plain))
        except ValueError:
            raise _Changed(value) from None
        if again != value:
            raise _Changed(value)
    return plain


def _from_plain(convert: Callable[[Any, Any], Any], kind: Any, value: Any) -> Any:
    if _is_model(kind):
        # As JSON: a strict model accepts the text of a date only there.
        return kind.model_validate_json(encode_plain(value))
    abstract = typing.get_origin(kind) or kind
    if not isinstance(value, abstract):
        raise ValueError(f"{getattr(kind, '__name__', kind)} cannot be made from JSON")
    inside: Any = typing.get_args(kind)
    if inside and isinstance(value, (list, tuple)):
        return convert(list[inside], value)  # an Iterable is annotated with its items
    return value


def _convert_given(kind: Any, kept: Any) -> Any:
    return msgspec.convert(kept, kind, builtin_types=_TEXTUAL, dec_hook=_from_given)


def _convert_stored(kind: Any, plain: Any) -> Any:
    return msgspec.convert(plain, kind, str_keys=True, dec_hook=_from_stored)


_from_given = functools.partial(_from_plain, _convert_given)
_from_stored = functools.partial(_from_plain, _convert_stored)
