"""A small ASGI application: counts of jobs, the newest failed jobs, and retry."""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.codec import decode, encode_plain
from ..errors import BulliteError
from .dispatch import FIGURES

if TYPE_CHECKING:
    from ..client.job.job import Job
    from .application import Bullite

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_LISTED = 50
MAX_BODY_BYTES = 64 * 1024
TOKEN = "BULLITE_TOKEN"  # noqa: S105  (the name of the variable that holds it)


class HttpError(Exception):
    """A request that is answered with an error status and a reason."""

    def __init__(self, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers


class Router:
    """Replies in JSON to requests with `Authorization: Bearer <token>`."""

    def __init__(self, app: Bullite, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers: Sequence[tuple[bytes, bytes]] = ()
        try:
            self._check_token(scope)
            status, body = 200, await self._handle(scope, receive)
        except HttpError as error:
            status, body, headers = error.status, {"error": str(error)}, error.headers
        except BulliteError as error:
            status, body = 409, {"error": str(error)}
        await _reply(send, status, body, headers)

    def _check_token(self, scope: Mapping[str, Any]) -> None:
        token = self._token or os.environ.get(TOKEN)
        if not token:
            raise HttpError(403, f"no token is set: give router(token=...) one, or set {TOKEN}")
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, sent = given.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(sent, token.encode()):
            raise HttpError(401, "the token is missing or wrong", (b"www-authenticate", b"Bearer"))

    async def _handle(self, scope: Mapping[str, Any], receive: Receive) -> Any:
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        match scope["method"], path:
            case "GET", "/stats":
                return await self._stats()
            case "GET", "/failed":
                return {"jobs": [_as_json(job) for job in await self._failed()]}
            case "POST", "/retry":
                return await self._retry(await _body(receive))
            case _, "/stats" | "/failed":
                raise HttpError(405, "this is asked for with GET", (b"allow", b"GET"))
            case _, "/retry":
                raise HttpError(405, "this is asked for with POST", (b"allow", b"POST"))
        raise HttpError(404, "there is /stats, /failed and /retry")

    async def _stats(self) -> dict[str, Any]:
        queues = {name: await self._app.stats(name) for name in await self._app._queues.names()}
        overall = {key: sum(counts[key] for counts in queues.values()) for key in FIGURES}
        return {"overall": overall, "queues": queues}

    async def _failed(self) -> list[Job]:
        """Return the newest failed jobs of all queues."""
        found: list[Job] = []
        for name in await self._app._queues.names():
            found += await self._app.queue(name).get_failed(0, MAX_LISTED - 1)
        found.sort(key=lambda job: job.finished_on or 0, reverse=True)
        return found[:MAX_LISTED]

    async def _retry(self, body: Any) -> dict[str, str]:
        id = body.get("job_id", body.get("jobId")) if isinstance(body, Mapping) else None
        if not isinstance(id, str | int) or isinstance(id, bool):
            raise HttpError(400, 'send {"job_id": …}, and "queue" if ids are your own')
        found = await self._jobs_with_id(str(id), body.get("queue"))
        if not found:
            raise HttpError(404, f"there is no job {id}")
        if len(found) > 1:
            queues = ", ".join(job.queue_name for job in found)
            raise HttpError(409, f'there is a job {id} in several queues, send "queue": {queues}')
        await found[0].retry("failed", reset_attempts=True)
        return {"status": "retrying"}

    async def _jobs_with_id(self, id: str, queue: Any) -> list[Job]:
        """Return the jobs of that id: each queue can have one."""
        names = [name for name in await self._app._queues.names() if queue in (None, name)]
        jobs = [await self._app.queue(name).get_job(id) for name in names]
        return [job for job in jobs if job is not None]


def _as_json(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "queue": job.queue_name,
        "type": job.name,
        "payload": job.data,
        "attempts": job.attempts_made,
        "max_attempts": job.attempts,
        "error": job.failed_reason,
        "created_at": job.timestamp,
        "processed_at": job.finished_on,
    }


async def _body(receive: Receive) -> Any:
    data = b""
    while True:
        message = await receive()
        data += message.get("body", b"")
        if len(data) > MAX_BODY_BYTES:
            raise HttpError(413, "that is too much")
        if not message.get("more_body"):
            break
    try:
        return decode(data.decode())
    except (ValueError, RecursionError):
        raise HttpError(400, "send JSON") from None


async def _reply(
    send: Send, status: int, body: Any, extra_headers: Sequence[tuple[bytes, bytes]]
) -> None:
    headers = [
        *extra_headers,
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": encode_plain(body)})
