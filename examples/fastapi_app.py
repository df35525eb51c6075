"""Jobs beside FastAPI, in its own processes: `pip install fastapi uvicorn`, then
`BULLITE_TOKEN=… uvicorn examples.fastapi_app:api --workers 4`. Jobs are in jobs.db, or where
BULLITE_URL says. `curl -X POST localhost:8000/greetings/Ada`; `/jobs/stats` wants the token.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fastapi import FastAPI, HTTPException

from bullite import Bullite

app = Bullite(os.environ.get("BULLITE_URL", "jobs.db"))


@app.task(attempts=3, backoff="1s")
async def greet(name: str) -> str:
    await asyncio.sleep(0.1)  # here it would send a mail
    return f"Hello, {name}!"


@app.every("10s")
@app.task(remove_on_complete=100)
def tidy_up() -> int:
    """Once every ten seconds, however many processes serve; a plain function runs in a thread."""
    return os.getpid()


api = FastAPI(lifespan=app.lifespan)
api.mount("/jobs", app.router(token=os.environ.get("BULLITE_TOKEN")))


@api.post("/greetings/{name}", status_code=202)
async def order_greeting(name: str) -> dict[str, str]:
    job = await greet.enqueue(name)
    return {"id": job.id}


@api.get("/greetings/{id}")
async def show_greeting(id: str) -> dict[str, Any]:
    job = await app.queue().get_job(id)
    if job is None or job.name != greet.name:
        raise HTTPException(404, "there is no such greeting")
    return {"state": await job.get_state(), "greeting": job.return_value}
