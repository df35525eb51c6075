"""The page about the API names exactly the public members of the classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bullite
from bullite.client.runtime.named_lock import NamedLock
from tests.unit.test_job_attributes import job_with

PAGE = Path(__file__).parents[2] / "docs" / "api.md"

CLASSES = (
    *(bullite.Queue, bullite.Job, bullite.Worker, bullite.FlowProducer, bullite.QueueEvents),
    *(bullite.QueueEventsProducer, bullite.EventEmitter, bullite.Signal, bullite.Store),
    *(NamedLock, bullite.Scheduler, bullite.Bullite, bullite.Task),
)


def sections() -> dict[str, set[str]]:
    """The names in the first column of the tables, by the heading of their class."""
    _, *parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.partition("\n")[0]: set(names_of(part)) for part in parts}


def names_of(section: str) -> Iterator[str]:
    for line in section.splitlines():
        if line.startswith("| `"):
            yield from re.findall(r"`(\w+)", line.split(" | ")[0])


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def send() -> None:
    """A task."""


@pytest.fixture
def objects(tmp_path: Path) -> dict[str, object]:
    """One of each class; none is opened."""
    store = bullite.Store(tmp_path / "jobs.db")
    queue = bullite.Queue("emails", store)
    app = bullite.Bullite(store)
    found = (
        *(queue, job_with(queue), bullite.FlowProducer(store)),
        *(bullite.Worker(queue, autorun=False), bullite.QueueEvents("emails", store)),
        *(bullite.QueueEventsProducer("emails", store), bullite.EventEmitter(), bullite.Signal()),
        *(store, store.lock("a"), bullite.Scheduler(store), app, app.task(send)),
    )
    return {type(one).__name__: one for one in found}


def test_the_page_has_a_section_for_each_class() -> None:
    assert list(sections()) == [of.__name__ for of in CLASSES]


@pytest.mark.parametrize("name", [of.__name__ for of in CLASSES])
def test_the_page_names_the_public_members_of_a_class_and_no_others(
    objects: dict[str, object], name: str
) -> None:
    members = public(objects[name])
    if isinstance(objects[name], bullite.EventEmitter) and name != "EventEmitter":
        members -= public(bullite.EventEmitter)
    assert sections()[name] == members


@pytest.mark.parametrize("of", CLASSES, ids=lambda of: of.__name__)
def test_every_public_member_has_a_docstring(of: type) -> None:
    silent = [name for name in public(of) if not docstring(inspect.getattr_static(of, name))]
    assert silent == []


def docstring(member: object) -> str | None:
    return (member.fget if isinstance(member, property) else member).__doc__
