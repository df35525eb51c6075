"""An application that uses everything there is for one; type checkers must accept all of it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bullite import (
    Bullite,
    InvalidArguments,
    Job,
    JobFields,
    Queue,
    Store,
    Task,
    TaskJob,
    TaskTaken,
    current_job,
)
from bullite.app.middleware import Next
from bullite.app.router import Router
from bullite.app.task import Producer

app = Bullite(Store(sys.argv[1]), concurrency=4, capture_logs="INFO")
handler = logging.StreamHandler()
handler.addFilter(JobFields())


@dataclass
class Point:
    x: int
    y: int = 0


@app.task
def double(number: int) -> int:
    """Twice as much."""
    return 2 * number


@app.task(queue="typed", attempts=3, backoff={"type": "fixed", "delay": "1s"}, concurrency=2)
async def move(point: Point, *, by: int = 1) -> Point:
    return Point(point.x + by, point.y)


@app.task(name="tell", priority=-1)
def tell(job: Job, text: str) -> str:
    return f"{job.name}: {text}"


@app.task
async def tell_later(job: Job, text: str = "nothing") -> str:
    await job.log(text)
    return current_job().id


@app.task(name="keep")
def keep(data: Any = None, *, times: int = 1) -> list[Any]:
    return [data] * times


@app.task(name="count")
async def count(first: object, *rest: object) -> int:
    return 1 + len(rest)


@app.task(name="parse")
def parse(text: str) -> Any:
    return {"text": text}


@app.task(name="keys")
def keys(job: Job, data: dict[str, Any]) -> list[str]:
    return [job.name, *data]


@app.task(name="keys later", attempts=2)
async def keys_later(job: Job, data: dict[str, Any]) -> dict[str, Any]:
    return {"of": job.name, **data}


@app.task(name="times")
def times(data: Any, number: int) -> int:
    return len(data) * number


@app.task(name="times later")
async def times_later(data: Any, number: int) -> int:
    return len(data) * number


@app.task(name="whatever")
def whatever(*args: Any, **kwargs: Any) -> int:
    return len(args) + len(kwargs)


@app.task(name="if there is one")
def if_there_is_one(text: str, job: Job | None = None) -> str:
    return text if job is None else job.name


def with_x(data: dict[str, Any]) -> dict[str, Any]:
    return {"args": [], "kwargs": {"x": data["args"][0]}}


@app.task(version=2, upcasters={1: with_x})
def place(*, x: int) -> int:
    return x


@app.cron("0 2 * * *", tz="Europe/Berlin", missed="skip")
@app.task
async def nightly() -> None: ...


@app.task
@app.every(timedelta(hours=1))
def hourly() -> None: ...


@app.cron("0 3 * * *")
def morning() -> int:
    return 1


@app.every("1h")
@app.task
async def tidy(job: Job, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"by": job.name, "settings": settings}


@app.before
def begin(job: Job) -> None: ...


@app.after
async def end(job: Job, result: object, error: Exception | None) -> None: ...


@app.around
async def surround(job: Job, call_next: Next) -> Any:
    return await call_next()


class Fetcher:
    queue_name = "fetch"
    concurrency = 5
    poll_interval = 500

    async def handle(self, payload: dict[str, int], job: Job) -> int:
        return payload["id"]


app.register(Fetcher)


async def shout(job: Job) -> str:
    return str(job.data).upper()


app.process("plain", "shout", shout, concurrency=1)
router: Router = app.router(token="secret")
plain: Task[[int], int] = double
coroutine: Task[..., Coroutine[Any, Any, str]] = tell_later
later: Producer[[int], int] = double.options(delay="1ms", tags=["typed"])
scheduled: Task[[], int] = morning


def each(function: Callable[[int], int], numbers: Iterable[int]) -> list[int]:
    return [function(number) for number in numbers]


async def values_of_any() -> None:
    """What is Any, in a function or in a call of it, hides nothing else."""
    anything: Any = "x"
    parsed: TaskJob[Any] = await parse.enqueue("a")
    assert await parsed.result("10s") == {"text": "a"}
    first: TaskJob[list[str]] = await keys.enqueue({"a": 1})
    second: TaskJob[dict[str, Any]] = await keys_later.options(priority=1).enqueue(data={"a": 1})
    assert await first.result("10s") == ["keys", "a"]
    assert await second.result("10s") == {"of": "keys later", "a": 1}
    third: TaskJob[int] = await times.enqueue("ab", 2)
    fourth: TaskJob[int] = await times_later.enqueue(data=anything, number=2)
    assert (await third.result("10s"), await fourth.result("10s")) == (4, 2)
    fifth: TaskJob[int] = await whatever.enqueue(1, two=2)
    assert await fifth.wait_until_finished("10s") == 2
    sixth: TaskJob[str] = await if_there_is_one.enqueue("a")
    seventh: TaskJob[str] = await tell_later.enqueue(anything)
    assert await sixth.result("10s") == "if there is one"
    assert await seventh.result("10s") == seventh.id
    many: list[TaskJob[int]] = await times_later.map([("a", 1), anything] * 0)
    assert many == []
    eighth: TaskJob[dict[str, Any]] = await tidy.enqueue(settings={})
    assert await eighth.result("10s") == {"by": tidy.name, "settings": {}}
    job: Job = eighth
    assert keys(job, {"b": 2}) == [tidy.name, "b"]
    assert if_there_is_one("here") == "here"
    after: TaskJob[int] = await scheduled.options(depends_on=job).enqueue()
    assert await after.result("10s") == 1


async def from_inside(job: Job) -> str:
    inside: str = tell("called")
    return f"{await keys_later({})} {inside}"


app.process("plain", "from inside", from_inside)


async def main() -> None:
    twice: int = double(1)
    moved: Point = await move(Point(1), by=2)
    async with app:
        first: TaskJob[int] = await double.enqueue(number=2)
        value: int = await first.result("10s")
        second: TaskJob[Point] = await move.enqueue(Point(1), by=2)
        point: Point = await second.result(timeout=timedelta(seconds=10))
        third: TaskJob[str] = await tell.enqueue("hello")
        text: str = await third.result("10s")
        fourth = await tell_later.enqueue(text="x")
        assert await fourth.result("10s") == fourth.id
        kept: TaskJob[list[Any]] = await keep.enqueue(data={"a": 1}, times=2)
        assert await kept.result("10s") == [{"a": 1}] * 2
        assert await (await count.enqueue("a", 2, None)).result("10s") == 3
        many: list[TaskJob[int]] = await later.map([1, (2,), {"number": 3}], chunk=2)
        results: list[int] = [await one.result("10s") for one in many]
        await values_of_any()
        inside: Job = await app.add("plain", "from inside")
        assert await inside.result("10s") == "{'of': 'from inside'} from inside: called"
        raw: Job = first
        queue: Queue = app.queue(first.queue_name)
        job: Job = await app.add("plain", "shout", "hello", attempts=2)
        assert await job.result("10s") == "HELLO"
        fetched: Job = await app.dispatch("fetch", "id", {"id": 1}, priority=-10, delay=0.001)
        assert await fetched.result("10s") == 1
        bulk: list[Job] = await app.dispatch_many(
            "fetch", "id", [{"id": 2}], max_attempts=1, chunk=10
        )
        assert await bulk[0].result("10s") == 2
        stats: dict[str, int] = await app.stats("fetch")
        deleted: int = await app.cleanup(older_than_days=0.5)
        refused: InvalidArguments | None = None
        try:
            await double.map(["2"])
        except InvalidArguments as error:
            refused = error
        running: bool = app.is_running
    assert (twice, moved.x, value, point) == (2, 3, 4, Point(3))
    assert (text, results, stats["completed"], deleted) == ("tell: hello", [2, 4, 6], 2, 0)
    assert (raw.name, raw.state, each(double, [1])) == (double.name, "completed", [2])
    assert queue.name == "default"
    assert "number" in str(refused)
    assert running
    assert not app.is_running
    assert issubclass(TaskTaken, ValueError)
    await app.stop(timeout=1)


if __name__ == "__main__":
    asyncio.run(main())
