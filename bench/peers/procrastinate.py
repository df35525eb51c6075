# mypy: disable-error-code="import-not-found, untyped-decorator"
# The package is not in our environment, so its names have no types here.
"""procrastinate: one worker, a pool of connections, jobs kept when they are done (its default)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import procrastinate

from .handling import Handler
from .protocol import main, run_until

QUEUE = "bench"

CONNECTIONS_TO_ADD = 20
"""For callers that add at a time; more than that wait for each other."""

COUNT = """
select count(*) filter (where status = 'todo') as waiting,
    count(*) filter (where status = 'succeeded') as finished
from procrastinate_jobs
"""


class Procrastinate:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._concurrency: int = options.get("concurrency", 1)
        self._poll: float = options.get("poll", 5.0)
        # One for each running job, one to fetch with; the server has not more than some hundred.
        size = min(self._concurrency, 100) + 1
        if options.get("callers", 1) > 1:
            size = CONNECTIONS_TO_ADD
        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(
                conninfo=url, min_size=size, max_size=size, configure=_commit_each_statement
            )
        )
        self._handle: Callable[..., None] = print
        if options.get("threads"):

            @self._app.task(name="mail", queue=QUEUE)
            def mail(**data: Any) -> None:
                self._handle(data)

        else:

            @self._app.task(name="mail", queue=QUEUE)
            async def mail(**data: Any) -> None:
                self._handle(data)

        @self._app.task(name="flaky", queue=QUEUE, retry=1, pass_context=True)
        async def flaky(context: Any, **data: Any) -> None:
            self._handle(data, context.job.attempts + 1)

        self._mail, self._flaky = mail, flaky

    async def install(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async()

    async def close(self) -> None:
        await self._app.close_async()

    async def add(self, data: dict[str, Any]) -> None:
        await self._mail.defer_async(**data)

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        await self._mail.batch_defer_async(*jobs)

    async def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        await self._flaky.batch_defer_async(*jobs)

    async def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        later = self._mail.configure(schedule_in={"milliseconds": milliseconds})
        await later.defer_async(**data)

    async def work(self, handle: Handler, stop: asyncio.Event) -> None:
        self._handle = handle
        worker = asyncio.create_task(
            self._app.run_worker_async(
                queues=[QUEUE],
                concurrency=self._concurrency,
                fetch_job_polling_interval=self._poll,
                install_signal_handlers=False,
            )
        )
        await run_until(stop, worker)
        worker.cancel()  # as its documentation says: jobs that run are waited for
        await asyncio.gather(worker, return_exceptions=True)

    async def count(self) -> dict[str, int | None]:
        found: dict[str, int | None] = await self._app.connector.execute_query_one_async(COUNT)
        return found


async def _commit_each_statement(connection: Any) -> None:
    """Each of its queries is one statement: this saves a round trip before and one after it."""
    await connection.set_autocommit(True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(Procrastinate)
