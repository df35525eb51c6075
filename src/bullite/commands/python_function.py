"""Python functions named by text, from allowed modules only."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from types import ModuleType
from typing import Any

MAX_PATH_LENGTH = 500


class FunctionNotAllowed(ValueError):
    """The name refers to something outside the allowed modules; it was not imported or called."""


class FunctionNotFound(ValueError):
    """The module is allowed, but cannot be imported or has no such function."""


def resolve(path: str, allowed: Collection[str]) -> Callable[..., Any]:
    """Return the function of a path: `tasks.process`, `tasks:process`, `pkg.tasks:Class.method`.

    An allowed module allows its submodules. No other module is imported, and names that an allowed
    module imports from elsewhere cannot be used. Raise FunctionNotAllowed or FunctionNotFound.
    """
    if isinstance(allowed, str):
        raise TypeError("allowed must be a collection of module names, not one text")
    module, names = _find(path, allowed)
    found: object = module
    for number, name in enumerate(names, 1):
        found = _attribute(found, name, path)
        if not _is_defined_in(found, allowed):
            so_far = ".".join(names[:number])
            raise FunctionNotAllowed(
                f"{path!r} may not be run: {so_far} is not defined in an allowed module."
                " Define a function there that calls it"
            )
    if not callable(found):
        raise FunctionNotAllowed(f"{path!r} may not be run: it is no function")
    return found


def _find(path: str, allowed: Collection[str]) -> tuple[ModuleType, Sequence[str]]:
    """Import the module that a path begins with; return it and the names of the attributes."""
    name, colon, rest = path.partition(":")
    parts, names = name.split("."), rest.split(".") if colon else []
    if len(path) > MAX_PATH_LENGTH or not all(part.isidentifier() for part in (*parts, *names)):
        cut = f"{path[:MAX_PATH_LENGTH]!r}"
        raise FunctionNotAllowed(f"{cut} names no function: write MODULE:FUNCTION")
    _forbid_underscores(path, [*_below_allowed(path, parts, allowed), *names])
    if colon:
        return _imported(name), names
    # Without a colon, try where the module ends: first at the last dot.
    for end in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:end])
        if not _is_inside(name, allowed):
            break
        is_last = end == 1 or not _is_inside(".".join(parts[: end - 1]), allowed)
        try:
            return _imported(name), parts[end:]
        except FunctionNotFound as error:
            if is_last or not _is_missing(error.__cause__, name):
                raise
    raise FunctionNotAllowed(f"{path!r} names a module and no function: write MODULE:FUNCTION")


def _below_allowed(path: str, parts: Sequence[str], allowed: Collection[str]) -> Sequence[str]:
    """Return the parts of a path after the allowed module. Raise FunctionNotAllowed if none is."""
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in allowed:
            return parts[end:]
    module = ".".join(parts if ":" in path else parts[:-1]) or path
    raise FunctionNotAllowed(
        f"{path!r} may not be run: its module was not allowed."
        f" Allow it with: queuectl worker start --app {module}"
    )


def _forbid_underscores(path: str, names: Sequence[str]) -> None:
    for name in names:
        if name.startswith("_"):
            raise FunctionNotAllowed(f"{path!r} may not be run: {name} is private")


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        raise FunctionNotFound(f"The module {name} cannot be imported: {kind}: {error}") from error


def _is_missing(error: BaseException | None, module: str) -> bool:
    """Return whether the module itself is missing, and not one that it imports."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return False
    return module == error.name or module.startswith(f"{error.name}.")


def _attribute(owner: object, name: str, path: str) -> object:
    try:
        return getattr(owner, name)
    except AttributeError:
        raise FunctionNotFound(f"{path!r} was not found: there is no {name}") from None
    except Exception as error:
        raise FunctionNotFound(f"{path!r} was not found: {type(error).__name__}") from error


def _is_defined_in(found: object, allowed: Collection[str]) -> bool:
    module = getattr(found, "__module__", None)
    if isinstance(found, ModuleType) or not isinstance(module, str):
        return False
    return _is_inside(module, allowed)


def _is_inside(module: str, allowed: Collection[str]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in allowed)
