"""The deduplication keys of a queue: read the holder of a key, free a key."""

from __future__ import annotations

from ...core.codec import as_json
from ...core.deduplication import KeyHolder
from ...core.names import check_name
from ...operations.deduplicate_release import FreeKey
from ..runtime import bridge
from .reads import QueueReads


class DeduplicationMethods(QueueReads):
    """What a queue can do about its deduplication keys."""

    async def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """The id of the job that holds a key, which with a `ttl` may be gone; None if none does."""
        check_name("deduplication_id", deduplication_id)
        await self._ensure_open()
        params = {"queue": self.key, "keys": as_json([deduplication_id])}
        now = self.store.open().clock.now()
        for _, *row in await bridge.query(self.store, "key_holders", params):
            holder = KeyHolder(*row)
            if holder.holds_at(now):
                return str(holder.public_id)
        return None

    async def remove_deduplication_key(self, deduplication_id: str) -> bool:
        """Free a deduplication key, whatever job holds it. Return True if it was held.

        The next job with the key is added. A job that was kept until the holder had finished is
        added now, and holds the key.
        """
        check_name("deduplication_id", deduplication_id)
        await self._ensure_open()
        held: bool = await bridge.submit(self.store, FreeKey(self.key, deduplication_id))
        return held
