"""Mistakes that a type checker must flag, each on a line that is marked; and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bullite import Bullite, Job, Task

app = Bullite("jobs.db")


@app.task
def double(number: int) -> int:
    return 2 * number


@app.task(queue="mail", attempts=3)
async def send(to: str, *, subject: str = "") -> bool:
    return bool(to and subject)


@app.task
def tell(job: Job, text: str) -> str:
    return job.name + text


@app.task
def keep(data: object, times: int = 1) -> int:
    return times


@app.task
def parse(text: str) -> Any:
    return text


@app.task
def keys(job: Job, data: dict[str, Any]) -> list[str]:
    return [job.name, *data]


@app.task(attempts=2)
async def keys_later(job: Job, data: dict[str, Any]) -> dict[str, Any]:
    return {job.name: data}


@app.task
def times(data: Any, number: int) -> int:
    return number


@app.every("1h")
def hourly() -> int:
    return 1


def each(function: Callable[[int], int]) -> None: ...


class Fetcher:
    queue_name = "fetch"

    def handle(self, payload: int, job: Job) -> int:
        return payload


class NoQueue:
    def handle(self, payload: int, job: Job) -> int:
        return payload


app.register(Fetcher)
app.register(NoQueue)  # wrong: it has no queue_name
app.task(attempts="3")  # wrong: the type of an option
app.task(atempts=3)  # wrong: no such option
app.task(queue=1)  # wrong: a queue has a name
app.cron(5)  # wrong: a pattern is text
app.process("mail", "send", "send")  # wrong: no function
Bullite("jobs.db", concurency=1)  # wrong: no such argument
double("1")  # wrong: the type of an argument, called
tell(1)  # wrong: neither a job nor text
each(double)
each(send)  # wrong: a function of something else
task: Task[[str], int] = double  # wrong: the type of a parameter
app.every("1h")(5)  # wrong: no function


async def main(job_of_another_task: Job) -> None:
    await double.enqueue(1)
    await double.enqueue("1")  # wrong: the type of an argument
    await double.enqueue()  # wrong: an argument is missing
    await double.enqueue(1, 2)  # wrong: one argument too many
    await double.enqueue(nmber=1)  # wrong: no such argument
    await double(1)  # wrong: a plain function is not awaited
    await double.options(delay=1).enqueue(2)
    await double.options(delay=1).enqueue("2")  # wrong: the type of an argument
    double.options(delai=1)  # wrong: no such option
    double.options(priority="high")  # wrong: the type of an option
    await send.enqueue("ada", subject="hello")
    await send.enqueue("ada", "hello")  # wrong: subject is given by its name
    await send.enqueue(1)  # wrong: the type of an argument
    await tell.enqueue("hello")
    await tell.enqueue(1)  # wrong: the job is not an argument, and this is no text
    await tell.enqueue()  # wrong: an argument is missing
    await tell.options(delay=1).enqueue(1)  # wrong: the type of an argument
    tell.enqueue_sync(1)  # wrong: the type of an argument
    await double.enqueue_sync(1)  # wrong: what blocks is not awaited
    await parse.enqueue(1)  # wrong: the type of an argument
    await parse.enqueue()  # wrong: an argument is missing
    await keys.enqueue(1)  # wrong: the type of an argument
    await keys.enqueue({}, 1)  # wrong: one argument too many
    await keys.enqueue(job_of_another_task, {})  # wrong: the job is not an argument
    await keys_later.enqueue([])  # wrong: the type of an argument
    await keys_later.options(delay=1).enqueue()  # wrong: an argument is missing
    await times.enqueue(1, "2")  # wrong: the type of an argument
    await times.enqueue(1)  # wrong: an argument is missing
    await hourly.enqueue(1)  # wrong: it takes no argument
    names: str = await (await keys.enqueue({})).result()  # wrong: the type of the result
    later: str = await (await keys_later.enqueue({})).result()  # wrong: the type of the result
    ticks: list[str] = (await hourly.enqueue()).result_sync()  # wrong: the type of the result
    each_of: list[str] = await double.map([1])  # wrong: it gives jobs
    await double.map([1], chunk="2")  # wrong: a chunk is a number
    await keep.enqueue({"a": 1}, times=2)
    await keep.enqueue()  # wrong: an argument is missing
    await keep.enqueue(1, "2")  # wrong: the type of an argument
    number: int = await (await double.enqueue(1)).result()
    text: str = await (await double.enqueue(1)).result()  # wrong: the type of the result
    truth: str = await (await send.enqueue("ada")).result()  # wrong: the type of the result
    call: int = send("ada")  # wrong: a coroutine has to be awaited
    await app.dispatch("mail", "send", {}, priority="high")  # wrong: priorities are numbers
    await app.add("mail", "send", {}, dealy=1)  # wrong: no such option
    print(number, text, truth, call, names, later, ticks, each_of)  # noqa: T201
