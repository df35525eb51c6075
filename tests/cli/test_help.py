"""`queuectl VERB --help`: what a verb is for, by example, and what each option means."""

from __future__ import annotations

import click
import pytest

from bullite.cli.program import queuectl
from tests.cli.program import run_well

ADDING = ["enqueue", "run", "add", "enqueue-batch"]


@pytest.mark.parametrize("verb", ADDING)
def test_the_help_of_what_adds_jobs_has_examples(verb: str) -> None:
    examples = run_well(verb, "--help").out.partition("Examples:\n")[2].splitlines()
    assert len([line for line in examples if f"queuectl {verb} " in line]) >= 2


@pytest.mark.parametrize("verb", ADDING)
def test_every_option_of_what_adds_jobs_is_explained(verb: str) -> None:
    found = queuectl.get_command(click.Context(queuectl), verb)
    assert found is not None
    options = [param for param in found.params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("verb", ["enqueue", "run"])
def test_it_is_said_whose_folder_is_meant(verb: str) -> None:
    text = " ".join(run_well(verb, "--help").out.split())
    assert "the worker's unless given" in text
    assert "relative to yours" in text
