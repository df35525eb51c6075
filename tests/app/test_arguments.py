"""The arguments of tasks: checked before anything is written, typed when they arrive."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
)
from uuid import UUID

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, PositiveInt, PrivateAttr, SecretStr

import bullite.app.arguments
from bullite import Bullite, InvalidArguments, Job, JobFailed
from bullite.app.arguments import Signature
from bullite.app.task import Task
from tests.support.helpers import case, python

if TYPE_CHECKING:
    from nowhere import Unknown


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(NamedTuple):
    width: int
    height: int = 1


class Movie(TypedDict, total=False):
    title: str
    year: int


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Trip:
    start: datetime
    stops: list[Point] = field(default_factory=list)
    color: Color | None = None


class Box(msgspec.Struct):
    size: Size
    tags: set[str] = set()


class User(BaseModel):
    name: str
    born: date
    friends: list[User] = []
    nick: str | None = Field(None, alias="nickName")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    at: datetime


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
TODAY = NOON.date()
ID = UUID("12345678-1234-5678-1234-567812345678")
ADA = User(name="ada", born=date(1815, 12, 10), nickName="a")


def task_of(function: Callable[..., Any]) -> Task[..., Any]:
    """It as a task of an application that opens nothing."""
    task: Task[..., Any] = Bullite("never.db").task(name="mine")(function)
    return task


def taking(annotation: Any, default: Any = ...) -> Task[..., Any]:
    """A task with one argument of this type."""

    def function(value: Any = default) -> None:
        """Does nothing."""

    function.__annotations__ = {"value": annotation}
    if default is ...:
        function.__defaults__ = None
    return task_of(function)


def arrived(task: Task[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """What the function of a task would be called with, after a way through a database."""
    stored = json.loads(json.dumps(task._pack(args, kwargs), allow_nan=False))
    positional, by_name = task._signature.unpack(stored, None)
    return list(positional), dict(by_name)


FITTING: list[tuple[Any, Any]] = [
    *((int, 1), (int, 0), (int, -5), (int, 2**70), (int, -(2**64)), (float, 1.5), (bool, True)),
    *((str, "a"), (str, "\u00e9\n\x00"), (bytes, b"\x00\xff"), (type(None), None)),
    *((list, [1, "a"]), (list[int], [1, 2]), (dict, {"a": 1}), (dict[str, int], {"a": 1})),
    *((dict[int, str], {1: "a"}), (dict[UUID, int], {ID: 1}), (dict[date, int], {NOON.date(): 1})),
    *((tuple[int, str], (1, "a")), (tuple[int, ...], (1, 2, 3)), (set[int], {1, 2})),
    *((frozenset[str], frozenset({"a"})), (Optional[int], None), (Optional[int], 1)),  # noqa: UP045
    *((Union[int, str], "a"), (int | str, 1), (int | None, None), (list[Point | None], [None])),  # noqa: UP007
    *((Point, Point(1, 2)), (list[Point], [Point(1)]), (dict[str, Point], {"a": Point(1)})),
    *((Trip, Trip(NOON, [Point(1)], Color.BLUE)), (Trip, Trip(NOON))),
    *((Movie, {"title": "a", "year": 1}), (Movie, {}), (Size, Size(1, 2)), (list[Size], [Size(1)])),
    *((Color, Color.RED), (dict[str, Color], {"a": Color.BLUE}), (Color | None, Color.RED)),
    *((datetime, NOON), (datetime, NOON.replace(tzinfo=None)), (date, NOON.date())),
    *((timedelta, timedelta(days=1, seconds=1.5)), (UUID, ID), (Decimal, Decimal("1.10"))),
    *((Literal["a", 1], "a"), (Literal["a", 1], 1), (Annotated[int, msgspec.Meta(ge=1)], 1)),
    *((Box, Box(Size(1, 2), {"a"})), (list[Box], [Box(Size(1))])),
    *((User, ADA), (list[User], [ADA]), (dict[str, User], {"a": ADA}), (User | None, ADA)),
    *((User, ADA.model_copy(update={"friends": [ADA]})), (Strict, Strict(at=NOON))),
    *((Any, {"a": [1, None, True, "x", 1.5]}), (object, [1]), (Sequence[int], [1, 2])),
    *((Mapping[str, int], {"a": 1}),),
]


@pytest.mark.parametrize(("annotation", "value"), FITTING, ids=str)
def test_an_argument_arrives_as_what_it_was(annotation: Any, value: Any) -> None:
    [[found], _] = arrived(taking(annotation), value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        *((int, "1"), (int, 1.5), (int, True), (int, None), (str, 1), (str, None), (float, "1.5")),
        *((bool, 1), (bytes, "YQ=="), (str, b"a"), (list[int], ["a"]), (list[int], "ab")),
        *((dict[str, int], {"a": "b"}), (tuple[int, str], (1, 2)), (tuple[int, str], (1,))),
        *((set[int], {"a"}), (int | None, "a"), (int | str, 1.5), (Literal["a"], "b")),
        *((datetime, "2030-01-01T00:00:00Z"), (str, NOON), (datetime, NOON.date()), (date, NOON)),
        *((str, ID), (UUID, str(ID)), (Decimal, "1.1"), (str, Decimal(1)), (timedelta, 5)),
        *((Color, "green"), (Color, 1), (Point, {"x": "a"}), (Point, {}), (Point, 1)),
        *((list[Point], [{"x": None}]), (Movie, {"year": "a"}), (Size, ("a", 1))),
        *((Box, {}), (Annotated[int, msgspec.Meta(ge=1)], 0)),
        *((User, {"name": "ada"}), (User, 1), (list[User], [{}]), (Strict, {"at": "soon"})),
    ],
    ids=str,
)
def test_an_argument_of_another_type_is_refused_by_name(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidArguments, match="task mine: argument 'value' does not fit"):
        taking(annotation)._pack((value,), {})


def cyclic() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


@pytest.mark.parametrize("annotation", [Any, ..., list, dict])
@pytest.mark.parametrize(
    "value",
    [object(), math.nan, math.inf, [1, -math.inf], {"a": math.nan}, {(1, 2): 3}, print, 1j],
    ids=lambda value: str(value).partition(" at ")[0],
)
def test_what_json_cannot_say_is_refused_by_name(annotation: Any, value: Any) -> None:
    task = task_of(lambda value: None) if annotation is ... else taking(annotation)
    with pytest.raises(InvalidArguments, match=r"task mine: .*argument 'value'"):
        task._pack((value,), {})


def test_what_holds_itself_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="argument 'value'"):
        taking(Any)._pack((cyclic(),), {})


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="argument 'value'"):
        taking(str)._pack(("\ud800",), {})


def test_a_float_that_is_no_number_is_refused_although_it_is_a_float() -> None:
    with pytest.raises(InvalidArguments, match="argument 'value'"):
        taking(float)._pack((math.nan,), {})


def test_a_whole_number_is_a_float_where_one_is_wanted() -> None:
    [[found], _] = arrived(taking(float), 1)
    assert type(found) is float


@dataclass
class Place(Point):
    name: str = "here"


@dataclass
class Other:
    x: int
    y: int = 0


@dataclass
class Doubled:
    x: int

    def __post_init__(self) -> None:
        self.x *= 2


class Crate(Box):
    weight: int = 1


class Admin(User):
    level: int = 1


@dataclass
class Team:
    lead: User


LEADER = Admin(name="ada", born=date(1815, 12, 10))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        *((Point, Place(1)), (Place, Point(1)), (Point, Other(1)), (list[Point], [Place(1)])),
        *((dict[str, Point], {"a": Place(1)}), (Point | None, Place(1)), (Box, Crate(Size(1)))),
        *((tuple[Point, ...], (Point(1), Place(1))), (Trip, Trip(NOON, [Place(1)]))),
        *((Team, Team(LEADER)), (Movie, {"title": "a", "stars": 5})),
        (list[Movie], [{"title": "a", "stars": 5}]),
    ],
    ids=str,
)
def test_what_would_arrive_as_something_else_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidArguments, match="argument 'value' does not fit"):
        taking(annotation)._pack((value,), {})


def test_what_changes_itself_when_it_is_made_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="argument 'value' would arrive changed"):
        taking(Doubled)._pack((Doubled(1),), {})


@pytest.mark.parametrize("annotation", [Any, dict, object], ids=str)
def test_an_object_arrives_as_a_mapping_where_that_is_what_is_said(annotation: Any) -> None:
    assert arrived(taking(annotation), Place(1)) == ([{"x": 1, "y": 0, "name": "here"}], {})


def test_a_mapping_stands_for_a_dataclass() -> None:
    assert arrived(taking(Point), {"x": 1}) == ([Point(1, 0)], {})


def test_without_an_annotation_json_arrives() -> None:
    task = task_of(lambda value: None)
    assert arrived(task, {"a": Point(1), "b": (NOON,)}) == (
        [{"a": {"x": 1, "y": 0}, "b": ["2030-01-01T12:00:00Z"]}],
        {},
    )


def test_a_value_that_its_annotation_could_not_bring_back_is_refused() -> None:
    @dataclass
    class Other:
        z: int

    with pytest.raises(InvalidArguments, match=r"argument 'value'.*more than one dataclass"):
        taking(Point | Other)._pack((Point(1),), {})


class Quacks(Protocol):
    def quack(self) -> None: ...


@pytest.mark.parametrize("annotation", [Iterable[int], Collection, TypeVar("T")], ids=str)
def test_an_annotation_that_says_nothing_about_values_lets_json_through(annotation: Any) -> None:
    assert arrived(taking(annotation), [1]) == ([[1]], {})


@pytest.mark.parametrize("annotation", [Iterator[int], Callable, Quacks, Signature], ids=str)
def test_what_json_cannot_be_is_refused(annotation: Any) -> None:
    with pytest.raises(InvalidArguments):
        taking(annotation)._pack(([1],), {})


# --- parameters of all kinds ---------------------------------------------------------------------


def everything(
    first: int, /, second: str, third: date = TODAY, *rest: Color, key: Point, **more: UUID
) -> None:
    """Has parameters of every kind."""


def test_parameters_of_every_kind_are_typed() -> None:
    day = date(2031, 2, 3)
    assert arrived(
        task_of(everything), 1, "a", day, Color.RED, Color.BLUE, key=Point(1), id=ID, first=ID
    ) == ([1, "a", day, Color.RED, Color.BLUE], {"key": Point(1), "id": ID, "first": ID})


def test_what_has_a_default_may_be_left_out() -> None:
    assert arrived(task_of(everything), 1, "a", key=Point(1)) == ([1, "a"], {"key": Point(1)})


def test_a_positional_argument_may_be_given_by_its_name() -> None:
    assert arrived(task_of(everything), 1, second="a", key=Point(1)) == (
        [1],
        {"second": "a", "key": Point(1)},
    )


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing a required argument: 'first'"),
        ((1,), {"key": Point(1)}, "missing a required argument: 'second'"),
        ((1, "a"), {}, "missing a required argument: 'key'"),
        ((1, "a"), {"key": 5}, "argument 'key' does not fit"),
        ((1, "a", NOON.date(), "green"), {"key": Point(1)}, "argument 'rest' does not fit"),
        ((1, "a"), {"key": Point(1), "other": 5}, "argument 'other' does not fit"),
        ((1, "a"), {"key": Point(1), "second": "b"}, "multiple values for argument 'second'"),
    ],
)
def test_arguments_that_do_not_fit_the_signature_are_refused_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArguments, match=f"task mine: .*{problem}"):
        task_of(everything)._pack(args, kwargs)


def test_an_argument_that_is_not_known_is_refused() -> None:
    def function(value: int) -> None:
        """Takes one."""

    with pytest.raises(InvalidArguments, match=r"task mine: got an unexpected .* 'vlaue'"):
        task_of(function)._pack((), {"vlaue": 1, "value": 1})
    with pytest.raises(InvalidArguments, match="task mine: too many positional arguments"):
        task_of(function)._pack((1, 2), {})


def test_a_task_without_arguments_stores_nothing() -> None:
    assert task_of(lambda: None)._pack((), {}) == {}


def test_defaults_are_taken_from_the_code_that_runs() -> None:
    assert taking(int, default=5)._pack((), {}) == {}


# --- annotations that are texts ------------------------------------------------------------------


def late(value: Below) -> None:  # noqa: F821
    """Its annotation names what is defined below."""


def test_an_annotation_may_name_what_is_defined_later(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(late)
    monkeypatch.setitem(globals(), "Below", Point)
    assert arrived(task, Point(1)) == ([Point(1)], {})
    with pytest.raises(InvalidArguments, match="'value'"):
        task._pack(("a",), {})


def half_known(value: Unknown, number: int) -> None:
    """Its annotation is known to type checkers alone."""


def test_an_annotation_that_cannot_be_made_out_says_nothing_and_the_others_count() -> None:
    task = task_of(half_known)
    assert arrived(task, {"a": 1}, 2) == ([{"a": 1}, 2], {})
    with pytest.raises(InvalidArguments, match="'number'"):
        task._pack(("a", "b"), {})


@pytest.mark.parametrize(
    "job",
    [
        *("Job", "Job | None", "None | bullite.Job", "Optional[Job]", "typing.Optional[Job]"),
        *("Union[None, Job]", "Annotated[Job, 'x']", "Annotated[Optional[Job], Unknown]"),
        *(Annotated[Job, "x"], Annotated[Optional[Job], "x"]),  # noqa: UP045
    ],
    ids=str,
)
def test_the_job_is_found_among_annotations_that_cannot_be_made_out(job: Any) -> None:
    def function(value: Any, it: Any, other: Any) -> None:
        """A job among what cannot be made out."""

    function.__annotations__ = {"value": "Unknown", "it": job, "other": "dict[Unknown, Job]"}
    assert task_of(function)._signature.injected == ["it"]


def test_an_annotation_that_is_no_expression_is_no_job() -> None:
    assert task_of(taking("a Job, or so").function)._signature.injected == []


def test_a_wrapped_function_has_the_types_of_what_it_wraps() -> None:
    @functools.wraps(everything)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        """Hands on what it is given."""

    with pytest.raises(InvalidArguments, match="argument 'first'"):
        task_of(wrapped)._pack(("a", "b"), {"key": Point(1)})


def test_a_partial_has_the_types_of_its_function() -> None:
    task = task_of(functools.partial(everything, 1, key=Point(1)))
    assert arrived(task, "a") == (["a"], {})
    with pytest.raises(InvalidArguments, match="argument 'second'"):
        task._pack((1,), {})


# --- the job among them --------------------------------------------------------------------------

JOB: Any = object()


def first(job: Job, a: int, b: int = 2) -> None: ...
def between(a: int, job: Job, b: int = 2) -> None: ...
def last(a: int, b: int = 2, job: Job | None = None) -> None: ...
def by_name(a: int, *rest: int, job: Job, **more: int) -> None: ...
def before_rest(job: Job, *rest: int) -> None: ...
def positional(a: int, b: int = 2, job: Job | None = None, /) -> None: ...
def twice(job: Job, a: int, *, same: Optional[Job]) -> None: ...  # noqa: UP045


@pytest.mark.parametrize(
    ("function", "given", "called"),
    [
        (first, (1,), "JOB 1 2"),
        (first, (1, 3), "JOB 1 3"),
        (between, (1, 3), "1 JOB 3"),
        (between, (1,), "1 JOB 2"),
        (last, (1,), "1 2 JOB"),
        (last, (1, 3), "1 3 JOB"),
        (by_name, (1,), "1 job=JOB"),
        (by_name, (1, 2, 3), "1 2 3 job=JOB"),
        (before_rest, (), "JOB"),
        (before_rest, (1, 1), "JOB 1 1"),
        (positional, (1,), "1 2 JOB"),
        (twice, (1,), "JOB 1 same=JOB"),
    ],
)
def test_the_job_is_put_where_its_annotation_is(
    function: Callable[..., Any], given: tuple[int, ...], called: str
) -> None:
    task = task_of(function)
    args, kwargs = task._signature.unpack(task._pack(given, {}), JOB)
    shown = ["JOB" if value is JOB else str(value) for value in args]
    shown += [f"{key}={'JOB' if value is JOB else value}" for key, value in kwargs.items()]
    assert " ".join(shown) == called


def test_the_job_is_no_argument() -> None:
    with pytest.raises(InvalidArguments, match="unexpected keyword argument 'job'"):
        task_of(first)._pack((1,), {"job": 1})


# --- through a database --------------------------------------------------------------------------


async def test_nothing_is_written_when_an_argument_is_refused(app: Bullite) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    for args in (("1",), (), (1, 2), (math.nan,)):
        with case(args), pytest.raises(InvalidArguments):
            await double.enqueue(*args)
    with pytest.raises(InvalidArguments):
        await double.map([1, 2, "3"])
    assert await app.queue().get_jobs() == []


RESULTS: list[tuple[Any, Any]] = [
    *((Point, Point(1, 2)), (list[Point], [Point(1)]), (User, ADA), (list[User], [ADA])),
    *((datetime, NOON), (Size, Size(1)), (set[int], {1}), (Color, Color.RED), (None, None)),
    *((dict[int, Point], {1: Point(1)}), (bytes, b"a"), (Box, Box(Size(1))), (int, 2**70)),
    *((Trip, Trip(NOON, [Point(1)])), (Any, [1]), (Decimal, Decimal("1.5")), (UUID, ID)),
]


async def test_results_have_the_type_that_the_task_returns(app: Bullite) -> None:
    tasks = []
    for number, (annotation, value) in enumerate(RESULTS):

        async def in_loop(value: Any = value) -> Any:
            return value

        def in_thread(value: Any = value) -> Any:
            return value

        for kind, function in (("loop", in_loop), ("thread", in_thread)):
            function.__annotations__["return"] = annotation
            tasks.append((app.task(name=f"{kind} {number}")(function), annotation, value))
    async with app:
        for task, annotation, value in tasks:
            with case((task, annotation)):
                found = await (await task.enqueue()).result("10s")
                assert found == value
                assert type(found) is type(value)


async def test_a_result_that_does_not_fit_its_annotation_is_given_as_it_is(app: Bullite) -> None:
    @app.task
    def lie() -> int:
        return "no number"  # type: ignore[return-value]

    async with app:
        assert await (await lie.enqueue()).result("10s") == "no number"


async def test_arguments_are_typed_when_the_task_runs(app: Bullite) -> None:
    @app.task
    async def types_of(trip: Trip, *users: User, sizes: dict[str, Size]) -> list[str]:
        return [type(one).__name__ for one in (trip.start, trip.stops[0], users[0], sizes["a"])]

    async with app:
        job = await types_of.enqueue(Trip(NOON, [Point(1)]), ADA, sizes={"a": Size(1)})
        assert await job.result("10s") == ["datetime", "Point", "User", "Size"]


async def test_data_that_does_not_fit_fails_the_job_with_a_reason(app: Bullite) -> None:
    @app.task(name="mine")
    def double(number: int) -> int:
        return 2 * number

    async with app:
        for data in ({"args": ["1"]}, {"args": []}, None, "text", [1], {"kwargs": {"a": 1}}):
            job = await app.add("default", "mine", data)
            with case(data), pytest.raises(Exception, match="task mine: "):
                await job.result("10s")


# --- annotations that are kept, or refused -------------------------------------------------------


@dataclass
class Circle:
    r: int


@dataclass
class Drawing:
    shape: Point | Circle


@dataclass
class Unnamed:
    value: Unknown


class Undone(BaseModel):
    value: Unknown


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Lion(Cat):
    mane: bool = True


class Tagged(msgspec.Struct, tag=True):
    x: int


class Marked(msgspec.Struct, tag=True):
    x: int


@pydantic.dataclasses.dataclass
class Checked:
    x: PositiveInt


Positive = Annotated[int, Field(gt=0)]
Age = NewType("Age", Positive)  # type: ignore[valid-newtype]
Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
P = ParamSpec("P")

CANNOT_BE_KEPT = "task mine: argument 'value' has an annotation that cannot be kept: "


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        *(
            (list[Point | Circle], [Point(1)]),
            (list[Point | Circle], []),
            (Drawing, Drawing(Point(1))),
        ),
        *((Point | Circle, {"junk": 1}), (list[str | datetime], [5]), (str | datetime, "text")),
        *((dict[str, Point | dict[str, int]], {}), (TypeVar("C", int, str), 1), (Box | User, ADA)),
    ],
    ids=str,
)
def test_an_annotation_that_json_cannot_tell_is_refused_with_the_reason_and_the_fix(
    annotation: Any, value: Any
) -> None:
    with pytest.raises(InvalidArguments, match=f"{CANNOT_BE_KEPT}.+; annotate it with one class"):
        taking(annotation)._pack((value,), {})


def test_such_an_annotation_is_refused_when_the_job_runs_too() -> None:
    with pytest.raises(InvalidArguments, match=CANNOT_BE_KEPT):
        taking(Point | Circle)._signature.unpack({"args": [{"x": 1}]}, None)


def test_such_an_annotation_does_not_matter_while_its_default_is_taken() -> None:
    assert arrived(taking(Point | Circle | None, default=None)) == ([], {})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        *((Cat | str, Cat(lives=1)), (Cat | str, "text"), (list[Cat | Dog], [Dog(), Cat()])),
        *((dict[str, Cat | str], {"a": Cat(), "b": "c"}), (dict[int, Cat | int], {1: Cat(), 2: 3})),
        *((Positive, 1), (PositiveInt, 1), (Age, 1), (Pet, Dog()), (list[Positive], [1, 2])),
        *((HttpUrl, HttpUrl("https://a.b/c")), (Annotated[datetime, Field()], NOON)),
        *((Tagged | Marked, Marked(1)), (list[Tagged | Marked], [Tagged(1), Marked(1)])),
        *((Checked, Checked(1)), (tuple[Box, User], (Box(Size(1)), ADA)), (User | int, 5)),
        *((Iterable[datetime], [NOON]), (Iterable[Point], [Point(1)]), (Movie | None, {"year": 1})),
    ],
    ids=str,
)
def test_an_argument_of_a_richer_annotation_arrives_as_what_it_was(
    annotation: Any, value: Any
) -> None:
    test_an_argument_arrives_as_what_it_was(annotation, value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        *((Cat | str, 5), (dict[str, Cat | int], {"a": "5"}), (Positive, 0), (Positive, "1")),
        *((PositiveInt, -1), (PositiveInt, True), (Age, 0), (list[Positive], [1, 0])),
        *(
            (Pet, {"kind": "cow"}),
            (Checked, {"x": 0}),
            (Annotated[datetime, Field()], "2030-01-01"),
        ),
        *((Iterable[int], ["a"]), (Iterable[Point], [{}])),
    ],
    ids=str,
)
def test_an_argument_that_a_richer_annotation_forbids_is_refused_by_name(
    annotation: Any, value: Any
) -> None:
    test_an_argument_of_another_type_is_refused_by_name(annotation, value)


def test_an_annotation_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    known = bullite.app.arguments.serializer_for
    monkeypatch.setattr(
        bullite.app.arguments, "serializer_for", lambda one: looked.append(one) or known(one)
    )
    task = taking(Cat | str)
    for _ in range(3):
        arrived(task, "text")
    assert looked == [Cat | str]


def test_pydantic_is_not_imported_for_annotations_that_are_not_its_own() -> None:
    code = """
import sys
from bullite import Bullite

@Bullite("never.db").task
def f(a: int, b: list[str] | None = None) -> None: ...

f._pack((1,), {"b": ["a"]})
print("pydantic" in sys.modules)
"""
    assert python(code) == "False\n"


@pytest.mark.parametrize("value", [Point(1), [Point(1)], {"a": NOON}, (1,), {1: 2}], ids=str)
def test_what_is_no_json_needs_an_annotation_that_can_be_made_out(value: Any) -> None:
    with pytest.raises(
        InvalidArguments,
        match=r"argument 'value'.*'Unknown' is not defined; import it outside of TYPE_CHECKING",
    ):
        task_of(half_known)._pack((value, 1), {})


def test_a_class_whose_fields_cannot_be_made_out_is_refused() -> None:
    with pytest.raises(InvalidArguments, match=r"'Unknown' is not defined; import it outside"):
        taking(Unnamed)._pack(({"value": 1},), {})


@pytest.mark.parametrize(
    "annotation", [Undone, Undone | str, list[Undone], Annotated[Undone, Field()]]
)
def test_a_model_that_is_not_wholly_defined_is_refused(annotation: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"argument 'value' .* not fully defined"):
        taking(annotation)._pack(([{"value": 1}],), {})


def test_parameters_that_stand_for_those_of_another_function_are_free() -> None:
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        """Hands on what it is given."""

    assert arrived(task_of(wrapper), 1, [2], a={"b": 3}) == ([1, [2]], {"a": {"b": 3}})


def test_keyword_arguments_may_be_annotated_by_a_typed_dict() -> None:
    def release(**movie: Unpack[Movie]) -> None:
        """Takes what a movie has."""

    assert arrived(task_of(release), title="a", year=1) == ([], {"title": "a", "year": 1})
    with pytest.raises(InvalidArguments, match="argument 'year' does not fit"):
        task_of(release)._pack((), {"year": "1"})


# --- models that JSON changes --------------------------------------------------------------------


class Account(BaseModel):
    token: SecretStr


class Forgetful(BaseModel):
    kept: int = 0
    lost: int = Field(0, exclude=True)
    _own: int = PrivateAttr(0)


@dataclass
class Customer:
    account: Account


SECRET = Account(token=SecretStr("hush"))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        *((Account, SECRET), (Any, SECRET), (list[Account], [SECRET]), (Account | str, SECRET)),
        *((Customer, Customer(SECRET)), (SecretStr, SecretStr("hush")), (Any, {"a": [SECRET]})),
        *((Forgetful, Forgetful(lost=1)), (Cat, Lion()), (list[Cat | str], [Lion()])),
    ],
    ids=str,
)
def test_a_model_that_would_arrive_changed_is_refused_without_its_value(
    annotation: Any, value: Any
) -> None:
    with pytest.raises(InvalidArguments, match="argument 'value' would arrive changed: ") as told:
        taking(annotation)._pack((value,), {})
    assert "hush" not in str(told.value)


def test_a_model_that_json_keeps_is_not_refused_for_what_it_could_lose() -> None:
    assert arrived(taking(Forgetful), Forgetful(kept=1)) == ([Forgetful(kept=1)], {})


# --- as they are stored --------------------------------------------------------------------------


def transfer(source: str, target: str) -> None:
    """Takes two of one type."""


@pytest.mark.parametrize(
    ("args", "kwargs", "stored"),
    [
        ((), {"source": "a", "target": "b"}, {"kwargs": {"source": "a", "target": "b"}}),
        (("a",), {"target": "b"}, {"args": ["a"], "kwargs": {"target": "b"}}),
        (("a", "b"), {}, {"args": ["a", "b"]}),
    ],
)
def test_arguments_are_stored_as_they_were_given(
    args: tuple[str, ...], kwargs: dict[str, str], stored: dict[str, Any]
) -> None:
    assert task_of(transfer)._pack(args, kwargs) == stored


def test_arguments_by_name_survive_another_order_of_the_parameters() -> None:
    def reordered(target: str, job: Job, source: str) -> None:
        """The same, deployed later."""

    stored = task_of(transfer)._pack((), {"source": "a", "target": "b"})
    assert list(task_of(reordered)._signature.unpack(stored, JOB)[0]) == ["b", JOB, "a"]


@pytest.mark.parametrize(
    "data",
    [
        *({"x": 7}, 7, "text", [1], {"args": 5}, {"args": {"a": 1}}, {"kwargs": [1]}, {"v": "2"}),
        *({"v": 0}, {"args": [1], "more": 1}, {"args": None}, True),
    ],
    ids=str,
)
async def test_data_of_another_form_fails_the_job_with_both_told(app: Bullite, data: Any) -> None:
    @app.task(name="mine")
    def double(number: int = 5) -> int:
        return 2 * number

    async with app:
        job = await app.add("default", "mine", data)
        with pytest.raises(JobFailed) as told:
            await job.result("10s")
    assert f"task mine: the data of the job is {data!r}, and must be of the form" in str(told.value)
    assert '{"args": [...], "kwargs": {...}, "v": 1}' in str(told.value)


@pytest.mark.parametrize("data", [None, {}, {"args": []}, {"kwargs": {}}, {"v": 1}], ids=str)
async def test_data_without_arguments_leaves_all_to_the_defaults(app: Bullite, data: Any) -> None:
    @app.task(name="mine")
    def double(number: int = 5) -> int:
        return 2 * number

    async with app:
        assert await (await app.add("default", "mine", data)).result("10s") == 10
