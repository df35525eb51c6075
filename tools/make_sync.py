"""Generate the classes of `bullite.sync` from the asynchronous ones: `python -m tools.make_sync`.

Signatures and docstrings are those of the asynchronous classes. A test fails if this was not run
after the last change.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import bullite

FOLDER = Path(bullite.__file__).parent / "sync"

HEADER = '''\
"""{purpose}

Made by `python -m tools.make_sync` from the asynchronous classes: change those, and run it again.
"""

from __future__ import annotations
'''


@dataclass(frozen=True)
class Made:
    """A class to generate."""

    name: str
    base: str
    says: str
    attributes: dict[str, str] = field(default_factory=dict)
    """Attributes of instances, with their types."""
    has_init: bool = True
    lazy: bool = False
    """Its module imports asyncio: it is imported when one is made."""
    runs: bool = False
    """It has a thread of its own; its base starts and ends it."""


JOB = Made(
    "Job",
    "Blocking",
    """One job of a queue.

    Attributes show what was true when the job was last read; `queue.get_job(job.id)` reads again.
    Methods block until they are carried out. Those that change a running job are fenced: once the
    job is lost to another worker they raise LostLock and change nothing.
    """,
    has_init=False,
)

QUEUE = {"name": "str", "store": "Store", "random": "Callable[[], float]"}

OTHERS = (
    Made("Queue", "Listening", "", QUEUE),
    Made("FlowProducer", "Blocking", "", {"store": "Store"}),
    Made("QueueEventsProducer", "Listening", "", QUEUE, lazy=True),
    Made("Scheduler", "Blocking", "", {"store": "Store"}, lazy=True),
    Made(
        "QueueEvents",
        "RunningEvents",
        """Emit all events of a queue, or of every queue if `name` is None, from all processes.

    Listeners get `(payload, event_id)`, on the thread that reads. With `last_event_id`, reading
    continues after that event; "0-0" starts at the oldest event in the log. Start it with `with`,
    `start()` or `run()`; after the first two no event is missed. Listeners of `completed:7` get the
    event of that one job.
    """,
        {"name": "str | None", "store": "Store", "last_event_id": "str | None"},
        lazy=True,
        runs=True,
    ),
    Made(
        "Worker",
        "RunningWorker",
        """Runs `processor` for the jobs of `queue`, `concurrency` of them at a time.

    A processor takes `(job)`, `(job, token)` or `(job, token, signal)`. A `def` runs in a thread,
    with a job of this package; an `async def` on the worker's event loop, which has a thread of its
    own, with a `bullite.Job`. A mapping of names to processors takes only jobs of those names;
    `(processor, n)` gives one a concurrency of its own. Start it with `with`, `start()` or
    `run()`. Without a processor, claim jobs with `get_next_job`. Listeners are called in the
    loop's thread: plain ones must not block.
    """,
        {"name": "str", "queue": "Queue"},
        lazy=True,
        runs=True,
    ),
)

HANDWRITTEN = {"on", "once", "off", "remove_all_listeners", "listeners", "emit", "hears"}
"""Methods of emitters: `sync.callbacks.Listening` has them."""

SKIPPED = {("Queue", "events"), ("QueueEvents", "autorun"), ("Worker", "autorun")}
"""Arguments that need an event loop in the thread of the caller."""

ANSWERS = {
    "Job": "Job({})",
    "Job | None": "as_job({})",
    "list[Job]": "as_jobs({})",
    "Found": "as_found({})",
    "FlowJob": "as_tree({})",
    "FlowJob | None": "as_tree_if_any({})",
    "list[FlowJob]": "as_trees({})",
}
"""By the return type of the asynchronous method: how its result is converted."""

HOLDS_JOBS = {("Queue", "get_dependencies"): "as_dependencies({})"}
"""The same for methods whose return type does not show it."""

GIVEN = {
    ("Queue", "purge", "fits"): "taking_job(fits)",
    ("Queue", "retry_jobs", "fits"): "taking_job(fits)",
    ("Worker", "__init__", "queue"): "asynchronous(queue)",
    ("Worker", "__init__", "processor"): "plain_processors(processor)",
    ("Worker", "__init__", "backoff_strategy"): "plain_strategy(backoff_strategy)",
}
"""Arguments that contain or take jobs: what is passed instead."""

TYPES = {("Worker", "__init__", "queue"): "Queue | AsyncQueue | str"}

BODIES = {
    ("Worker", "process"): """\
if processor is None:
    return lambda function: self.process(name, function, concurrency=concurrency)
ours = plain(processor, f"the processor of {name!r}")
self._call(lambda: self._async.process(name, ours, concurrency=concurrency))
return processor
""",
    ("Worker", "queue"): "return Queue._around(self._async.queue)\n",
}

SAYS = {
    ("Worker", "wait_until_ready"): "Start the worker, and wait until it is registered.",
    ("Worker", "cancel_job"): """Cancel a job of this worker. Return True if it has the job.

        A coroutine is cancelled, the abort signal of a function is set. Unless the run completes
        even so, the job fails with the outcome `cancelled` and is not retried.
        """,
}
"""Docstrings that differ from those of the asynchronous methods."""

OURS = {
    **dict.fromkeys(("as_dependencies", "as_found", "as_job", "as_jobs"), ".results"),
    **dict.fromkeys(("FlowJob", "Found", "as_tree", "as_tree_if_any", "as_trees"), ".results"),
    **dict.fromkeys(("BackoffStrategy", "Listening", "Processor"), ".callbacks"),
    **dict.fromkeys(("plain", "plain_processors", "plain_strategy", "taking_job"), ".callbacks"),
    **dict.fromkeys(("Blocking", "asynchronous", "refuse_in_loop"), ".base"),
    **dict.fromkeys(("RunningEvents", "RunningWorker"), ".background"),
    "Job": ".job",
    "run_blocking": "..client.runtime.blocking",
    "iterate_blocking": "..client.runtime.blocking",
}
"""Where a name of the written module comes from, if not from where the asynchronous one has it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """The text of an asynchronous module, and where its names come from."""

    def __init__(self, name: str) -> None:
        self.name = name
        text = Path(str(sys.modules[name].__file__)).read_text(encoding="utf-8")
        self.tree = ast.parse(text)
        self._lines = text.encode().splitlines()  # places in a line are counted in bytes
        self.imports = dict(self._imports())

    def _imports(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                home = self._seen_from_sync(node)
                for alias in node.names:
                    called = f" as {alias.asname}" if alias.asname else ""
                    yield alias.asname or alias.name, f"from {home} import {alias.name}{called}"
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    called = f" as {alias.asname}" if alias.asname else ""
                    yield alias.asname or alias.name, f"import {alias.name}{called}"
        for node in self.tree.body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in names:
                yield name, f"from ..{self.name.removeprefix('bullite.')} import {name}"

    def _seen_from_sync(self, node: ast.ImportFrom) -> str:
        """Where an import of this module finds its names, for a module of `bullite.sync`."""
        if not node.level:
            return node.module or ""
        above = self.name.split(".")[: -node.level]
        absolute = ".".join([*above, *([node.module] if node.module else [])])
        return f"..{absolute.removeprefix('bullite').removeprefix('.')}"

    def source(self, node: ast.expr) -> str:
        """An expression as it is written, on one line."""
        assert node.end_lineno is not None
        lines = self._lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode().split())

    def class_body(self, name: str) -> list[ast.stmt]:
        [found] = [n for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name == name]
        return found.body


module_named = cache(Module)


class Writer:
    """One module being written."""

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._classes: list[str] = []
        self._made: set[str] = set()
        self._imports: set[str] = {"from typing import TYPE_CHECKING"}
        self._typing_imports: set[str] = set()

    # --- classes ---

    def add(self, made: Made) -> None:
        self._made.add(made.name)
        asynchronous = getattr(bullite, made.name)
        home = asynchronous.__module__.removeprefix("bullite.")
        theirs = f"Async{made.name}"
        line = f"from ..{home} import {made.name} as {theirs}"
        (self._typing_imports if made.lazy else self._imports).add(line)
        self._use(made.base)
        target = f'"{theirs}"' if made.lazy else theirs
        base = made.base if made.runs else f"{made.base}[{target}]"
        says = made.says or f"{inspect.cleandoc(asynchronous.__doc__)}\n"
        parts = [f"class {made.name}({base}):", _indented(_docstring(says))]
        if not made.has_init:
            parts.append(_indented("__slots__ = ()\n"))
        if made.lazy and not made.runs:
            parts.append(_indented(f"_async: {theirs}\n"))
        parts += [_indented(member) for member in self._members(made, asynchronous)]
        self._classes.append("\n".join(parts))

    def _members(self, made: Made, asynchronous: type) -> Iterator[str]:
        seen: set[str] = set()
        if made.base != "Blocking":
            seen |= HANDWRITTEN
        if made.runs:
            seen |= {"run", "close", "__aenter__", "__aexit__"}
        if not made.has_init:
            seen.add("__init__")
        for of in asynchronous.__mro__:
            if not of.__module__.startswith("bullite."):
                continue
            module = module_named(of.__module__)
            groups = _by_name(module.class_body(of.__name__))
            for name, nodes in groups.items():
                if name not in seen:
                    seen.add(name)
                    yield from self._member(made, module, name, nodes)
            if of is asynchronous:
                for name, annotation in made.attributes.items():
                    yield self._attribute(made, name, annotation)

    def _member(
        self, made: Made, module: Module, name: str, nodes: list[ast.stmt]
    ) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.Assign):
                yield f"{name} = {module.source(node.value)}\n"
            elif isinstance(node, Function):
                yield self._function(made, module, node)

    def _attribute(self, made: Made, name: str, annotation: str) -> str:
        self._use_types(
            ast.parse(annotation, mode="eval"), module_named("bullite.client.queue.queue")
        )
        body = BODIES.get((made.name, name), f"return self._async.{name}\n")
        return f"@property\ndef {name}(self) -> {annotation}:\n{_indented(body)}"

    def _function(self, made: Made, module: Module, node: Function) -> str:
        decorators = [module.source(decorator) for decorator in node.decorator_list]
        if "overload" in decorators:
            self._imports.add("from typing import overload")
        name = {"__aenter__": "__enter__", "__aexit__": "__exit__"}.get(node.name, node.name)
        header = "".join(f"@{decorator}\n" for decorator in decorators)
        answer = "" if node.returns is None else self._answer(module, node)
        header += f"def {name}({self._parameters(made, module, node)}) -> {answer}:"
        if "overload" in decorators:
            return f"{header} ...\n"
        said = SAYS.get((made.name, node.name)) or ast.get_docstring(node)
        docstring = _indented(_docstring(said)) if said else ""
        return f"{header}\n{docstring}{_indented(self._body(made, module, node, decorators))}"

    def _answer(self, module: Module, node: Function) -> str:
        assert node.returns is not None
        returns = node.returns
        if isinstance(returns, ast.Subscript) and module.source(returns.value) == "Pending":
            returns = returns.slice
        self._use_types(returns, module)
        written = module.source(returns)
        if written.startswith("AsyncIterator["):
            self._typing_imports.add("from collections.abc import Iterator")
            return written.removeprefix("Async")
        return written

    def _parameters(self, made: Made, module: Module, node: Function) -> str:
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        missing = len(positional) - len(given.defaults)
        defaults = [None] * missing + list(given.defaults)
        parts = [
            self._parameter(made, module, node, each, default)
            for each, default in zip(positional, defaults, strict=True)
        ]
        if given.vararg:
            parts.append("*" + self._parameter(made, module, node, given.vararg, None))
        elif given.kwonlyargs:
            parts.append("*")
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            if (made.name, each.arg) not in SKIPPED:
                parts.append(self._parameter(made, module, node, each, default))
        if given.kwarg:
            parts.append("**" + self._parameter(made, module, node, given.kwarg, None))
        return ", ".join(parts)

    def _parameter(
        self, made: Made, module: Module, node: Function, given: ast.arg, default: ast.expr | None
    ) -> str:
        if given.arg == "self" or given.annotation is None:
            return given.arg
        annotation: ast.AST = given.annotation
        written = module.source(given.annotation)
        key = (made.name, node.name, given.arg)
        if key in TYPES:
            written = TYPES[key]
            annotation = ast.parse(written, mode="eval")
        self._use_types(annotation, module)
        if "Job" in _names(annotation) and key not in GIVEN:
            raise NotImplementedError(f"{key} takes jobs: say in GIVEN how")
        if default is None:
            return f"{given.arg}: {written}"
        for name in _names(default):
            self._imports.add(module.imports[name])
        return f"{given.arg}: {written} = {module.source(default)}"

    def _body(self, made: Made, module: Module, node: Function, decorators: list[str]) -> str:
        if (made.name, node.name) in BODIES:
            body = BODIES[made.name, node.name]
            for name in _names(ast.parse(body)):
                if name in OURS:
                    self._use(name)
            return body
        if node.name == "__init__":
            return self._init(made, node)
        if "property" in decorators:
            return f"return self._async.{node.name}\n"
        if any(decorator.endswith(".setter") for decorator in decorators):
            self._imports.add("from functools import partial")
            value = node.args.args[1].arg
            return f'self._call(partial(setattr, self._async, "{node.name}", {value}))\n'
        if node.name == "__repr__":
            return "return repr(self._async)\n"
        call = self._carried_out(made, module, node)
        if node.name == "__aenter__":
            return f"{call}\nreturn self\n"
        assert node.returns is not None
        is_nothing = module.source(node.returns) in ("None", "Pending[None]")
        return f"{'' if is_nothing else 'return '}{call}\n"

    def _carried_out(self, made: Made, module: Module, node: Function) -> str:
        """The call of an asynchronous method, and what its answer is here."""
        assert node.returns is not None
        returns = module.source(node.returns)
        call = f"{node.name}({_arguments(made, node)})"
        for name in _names(ast.parse(call)):
            if name in OURS:
                self._use(name)
        if made.runs:
            is_coroutine = isinstance(node, ast.AsyncFunctionDef)
            waits = f"self._wait(self._async.{call})"
            done = waits if is_coroutine else f"self._call(lambda: self._async.{call})"
        elif returns.startswith("Pending["):
            done = f"self._blocking.{call}.result()"
        elif returns == "AsyncIterator[Job]":
            self._use("iterate_blocking")
            return f"map(Job, iterate_blocking(self._blocking.{call}))"
        elif isinstance(node, ast.AsyncFunctionDef):
            self._use("run_blocking")
            done = f"run_blocking(self._blocking.{call})"
        else:
            done = f"self._async.{call}"
        form = ANSWERS.get(returns) or HOLDS_JOBS.get((made.name, node.name))
        if form is None:
            if _names(node.returns) & {"Job", "Found", "FlowJob"}:
                raise NotImplementedError(f"{made.name}.{node.name} answers {returns}")
            return done
        self._use(form.partition("(")[0])
        return form.format(done)

    def _init(self, made: Made, node: Function) -> str:
        theirs = f"Async{made.name}"
        lines = []
        if made.runs:
            self._use("refuse_in_loop")
            lines.append(f'refuse_in_loop("{made.name}")')
        if made.lazy:
            home = getattr(bullite, made.name).__module__.removeprefix("bullite.")
            lines.append(f"from ..{home} import {made.name} as Asynchronous\n")
            theirs = "Asynchronous"
        arguments = _arguments(made, node)
        for name in _names(ast.parse(f"f({arguments})")):
            if name in OURS:
                self._use(name)
        lines.append(f"super().__init__({theirs}({arguments}))")
        return "\n".join(lines) + "\n"

    # --- names ---

    def _use(self, name: str) -> None:
        """A name that the written module needs when it runs."""
        if name not in self._made:
            self._imports.add(f"from {OURS[name]} import {name}")

    def _use_types(self, annotation: ast.AST, module: Module) -> None:
        """Names that only type checkers need."""
        for name in _names(annotation):
            if name in self._made or name in ("AsyncIterator", "Pending", "AsyncQueue"):
                continue
            if name in OURS:
                self._typing_imports.add(f"from {OURS[name]} import {name}")
            elif name in module.imports:
                self._typing_imports.add(module.imports[name])

    def text(self) -> str:
        imports = "\n".join(sorted(self._imports))
        for_types = "\n".join(sorted(self._typing_imports - self._imports))
        guarded = f"if TYPE_CHECKING:\n{_indented(for_types)}"
        classes = "\n\n".join(self._classes)
        return f"{HEADER.format(purpose=self._purpose)}\n{imports}\n\n{guarded}\n\n\n{classes}"


def _by_name(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """The public members of a class, overloads and setters together."""
    groups: dict[str, list[ast.stmt]] = {}
    for node in body:
        name = None
        if isinstance(node, Function):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        dunders = ("__init__", "__aenter__", "__aexit__", "__repr__")
        if name is not None and (not name.startswith("_") or name in dunders):
            groups.setdefault(name, []).append(node)
    return groups


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _arguments(made: Made, node: Function) -> str:
    """What is given on to the asynchronous function."""

    def given(name: str) -> str:
        return GIVEN.get((made.name, node.name, name), name)

    arguments = [given(each.arg) for each in node.args.args[1:]]
    if node.args.vararg:
        arguments.append(f"*{node.args.vararg.arg}")
    for each in node.args.kwonlyargs:
        if (made.name, each.arg) not in SKIPPED:
            arguments.append(f"{each.arg}={given(each.arg)}")
    if node.args.kwarg:
        arguments.append(f"**{node.args.kwarg.arg}")
    return ", ".join(arguments)


def _docstring(text: str) -> str:
    lines = inspect.cleandoc(text)
    escaped = lines.replace("\\", "\\\\")
    return f'"""{escaped}\n"""\n' if "\n" in lines else f'"""{escaped}"""\n'


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")


def _tidied(text: str) -> str:
    """As the rest of the repository is."""
    for arguments in (
        ["check", "--quiet", "--fix-only", "--select", "I,F401", "-"],
        ["format", "--quiet", "-"],
    ):
        command: list[Any] = [sys.executable, "-m", "ruff", *arguments]
        name = ["--stdin-filename", str(FOLDER / "classes.py")]
        ran = subprocess.run(
            [*command, *name], input=text, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise RuntimeError(f"{ran.stderr}\n{text}")
        text = ran.stdout
    return text


def make() -> dict[Path, str]:
    """The modules, by where they belong."""
    job = Writer("A job, as users without an event loop hold it.")
    job.add(JOB)
    others = Writer("Queues and all that belongs to them, for users without an event loop.")
    for made in OTHERS:
        others.add(made)
    return {
        FOLDER / "job.py": _tidied(job.text()),
        FOLDER / "classes.py": _tidied(others.text()),
    }


if __name__ == "__main__":
    for path, text in make().items():
        path.write_text(text, encoding="utf-8")
