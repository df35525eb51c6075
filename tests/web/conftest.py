from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.crash.conftest import location
from tests.support.databases import Database
from tests.support.processes import problems
from tests.web.servers import Web

__all__ = ["location", "serve"]


@pytest.fixture
def serve(database: Database, tmp_path: Path) -> Iterator[Callable[..., Web]]:
    """Starts a server that does not outlive the test; it may log nothing but what is expected, and
    leave no books wrong."""
    served: list[tuple[Web, str | None]] = []

    def serve(
        command: Sequence[str],
        application: str = "tests.web.served:api",
        environment: Mapping[str, str] = MappingProxyType({}),
        *,
        expected: str | None = None,
        **settings: str,
    ) -> Web:
        web = Web(tmp_path, database, command, settings, application, environment)
        served.append((web, expected))
        return web

    yield serve
    for web, expected in served:
        web.end()
        assert web.complaints(expected) == []
        assert problems(database.location) == ()
