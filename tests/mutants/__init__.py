"""Guards that are taken out of the source one at a time: a file of mutants per package."""

from __future__ import annotations

from . import (
    app,
    cli,
    client,
    commands,
    core,
    database,
    engine,
    operations,
    processes,
    worker,
)
from .mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *core.MUTANTS,
    *database.MUTANTS,
    *processes.MUTANTS,
    *operations.MUTANTS,
    *engine.MUTANTS,
    *client.MUTANTS,
    *worker.MUTANTS,
    *app.MUTANTS,
    *commands.MUTANTS,
    *cli.MUTANTS,
)
