"""The benchmark: what it reads, chooses, judges and shows; measuring is seen by running it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import check, tuning
from bench.cells import KINDS, Bench, Figures
from bench.charts import write_charts
from bench.contest import Contest, Line, Trial
from bench.contestants import About, Entry, entries, everybody
from bench.environments import Unavailable, last_line
from bench.folders import PROGRAMS
from bench.page import BEGIN, END, with_block
from bench.results import Results
from bench.rounds import QUICK
from bench.tables import report
from bench.targets import BARE, BULLMQ, SQLITE, named_for, verdicts


def about(key: str, **changes: Any) -> About:
    made = About(
        key=key,
        name=key.title(),
        language="python",
        place="redis",
        note="as it is",
        survives=False,
        survives_why="nothing is synced",
        cells={},
        requirements=("thing[fast]==1.2.3",),
    )
    return replace(made, **changes)


def line(*rates: float) -> Line:
    return Line({"concurrency": 8}, 100, [{"rate": rate, "seconds": 1.0} for rate in rates])


def results() -> Results:
    field = {
        SQLITE: about(SQLITE, language="ours", place="sqlite", survives=True, requirements=()),
        BARE: about(BARE, language="ours", place="sqlite", survives=True, requirements=()),
        BULLMQ: about(BULLMQ, language="node"),
        "huey": about("huey", place="sqlite"),
        "rq": about("rq"),
    }
    cells = {
        "process": {
            SQLITE: line(800, 700, 900),
            BARE: line(1000, 1000, 1000),
            BULLMQ: line(100, 100, 100),
            "huey": Line(failed="work failed: no <such> thing"),
        }
    }
    return Results(field, {"rq": "not installed: no index"}, cells, {"process": []})


# --- who takes part -------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(everybody()))
def test_a_contestant_has_a_program_pinned_packages_and_cells_that_exist(key: str) -> None:
    found = everybody()[key]
    suffix = "mjs" if found.language == "node" else "py"
    assert (PROGRAMS / f"{key}.{suffix}").exists()
    assert set(found.cells) <= set(KINDS)
    assert found.is_ours or all("==" in one or "@" in one for one in found.requirements)
    assert found.place in ("sqlite", "redis", "postgres")
    assert found.survives_why


def test_versions_are_those_of_the_first_requirement() -> None:
    assert about("x").version == "1.2.3"
    assert about("x", requirements=("@scope/thing@4.5.6", "other@1")).version == "4.5.6"
    assert about("x", requirements=()).version == ""


def test_a_line_that_is_shown_beside_has_a_key_of_its_own() -> None:
    found = entries(everybody()[SQLITE], "process_1")
    assert [entry.key for entry in found] == [SQLITE, f"{SQLITE}, without prefetch"]


def test_whom_a_target_names_takes_part() -> None:
    assert {"huey", "dramatiq", SQLITE, BARE} <= named_for("threads")


def test_the_last_telling_line_of_an_error_is_the_reason() -> None:
    assert last_line("Error: no\n    at file.js:1\n\nNode.js v20\n") == "Error: no"
    assert last_line("") == "no reason given"


# --- a contest ------------------------------------------------------------------------------------


class FakeBench(Bench):
    """Does jobs at a rate that depends on its settings, or fails."""

    def __init__(self, rates: dict[int, float], log: list[str], name: str) -> None:
        self._rates, self._log, self._name = rates, log, name
        self.fails_after = 10**9

    def measure(
        self, cell: str, settings: Any, jobs: int, seconds: float, checked: bool
    ) -> Figures:
        self._log.append(self._name)
        self.fails_after -= 1
        if self.fails_after < 0:
            raise Unavailable("it broke")
        rate = self._rates[settings.get("concurrency", 0)]
        return {"rate": rate, "seconds": jobs / rate}


class NoPlaces:
    def sweep(self) -> None: ...


def contest(benches: dict[str, FakeBench], candidates: Sequence[dict[str, int]]) -> Contest:
    pairs: Any = {
        name: (Entry(about(name), "process", candidates), bench) for name, bench in benches.items()
    }
    return Contest("process", pairs, QUICK)


def test_the_best_settings_are_kept_and_jobs_fill_the_time() -> None:
    bench = FakeBench({1: 100.0, 10: 400.0, 50: 300.0}, [], "a")
    found = contest({"a": bench}, [{"concurrency": n} for n in (1, 10, 50)])
    [line] = found.run(NoPlaces(), 1000.0).values()  # type: ignore[arg-type]
    assert line.settings == {"concurrency": 10}
    assert line.jobs == 400 * QUICK.longest
    assert line.column("rate") == [400.0] * QUICK.rounds


def test_each_round_begins_with_another() -> None:
    log: list[str] = []
    benches = {name: FakeBench({0: 1e6}, log, name) for name in "abc"}
    contest(benches, [{}]).run(NoPlaces(), 1000.0)  # type: ignore[arg-type]
    assert log[-9:] == [*"abc", *"bca", *"cab"]


def test_who_fails_in_a_round_is_out_and_the_reason_is_kept() -> None:
    log: list[str] = []
    good, bad = FakeBench({0: 50.0}, log, "good"), FakeBench({0: 50.0}, log, "bad")
    bad.fails_after = 2
    found = contest({"good": good, "bad": bad}, [{}]).run(NoPlaces(), 1000.0)  # type: ignore[arg-type]
    assert found["good"].failed is None
    assert "it broke" in (found["bad"].failed or "")


# --- what is shown --------------------------------------------------------------------------------


def test_targets_are_judged_by_ratios_of_the_same_round() -> None:
    judged = {verdict.what: verdict for verdict in verdicts(results())}
    assert judged["process, to the bare loop"].values == [0.8, 0.7, 0.9]
    assert judged["process, to the bare loop"].is_met
    assert judged["process, to BullMQ on Node"].is_met
    assert judged["add_bulk, to the bare loop"].as_cells()[1] == "not measured"


def test_nobody_is_dropped_from_the_table() -> None:
    text = report(results())
    assert "Rq 1.2.3: not installed: no index" in text
    assert "no <such> thing" in text
    assert "8.00 (7.00-9.00)" in text


def test_charts_are_whole_files_and_escape_what_they_show(tmp_path: Path) -> None:
    found = results()
    found.field[SQLITE].__dict__["name"] = "ours <&>"
    [file] = write_charts(found, tmp_path)
    texts = [node.text for node in ElementTree.parse(file).iter() if node.tag.endswith("text")]
    assert "ours <&>" in texts


def test_the_json_file_holds_every_round(tmp_path: Path) -> None:
    results().write(tmp_path / "results.json")
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["cells"]["process"]["lines"][SQLITE]["rounds"]["rate"] == [800, 700, 900]
    assert found["contestants"]["rq"]["missing"] == "not installed: no index"


def test_only_the_generated_block_of_the_page_is_replaced() -> None:
    first = with_block("# Figures\n\nText.\n", f"{BEGIN}\nold\n{END}")
    second = with_block(first, f"{BEGIN}\nnew\n{END}")
    assert "old" not in second
    assert second.startswith("# Figures\n")
    assert second.endswith("Text.\n")


def test_a_ratio_that_lost_a_quarter_is_found() -> None:
    known = {"one": 0.8, "two": 0.8}
    assert check._dropped({"one": 0.61, "two": 0.59, "new": 0.1}, known) == ["two"]


def test_a_ratio_is_taken_between_the_best_rounds_of_both() -> None:
    assert check._ratio([(50.0, 100.0), (60.0, 100.0), (30.0, 90.0)]) == 0.6


def test_a_check_is_not_misled_by_one_quick_round_of_the_bare_loop() -> None:
    assert check._ratio([(60.0, 100.0), (62.0, 200.0), (58.0, 96.0)]) == 0.6


def test_a_check_finds_what_is_slower_in_all_rounds() -> None:
    assert check._ratio([(40.0, 100.0), (41.0, 100.0), (39.0, 100.0)]) == 0.41


def test_whose_best_settings_are_known_is_not_tried_again() -> None:
    log: list[str] = []
    bench = FakeBench({1: 100.0, 10: 400.0}, log, "a")
    pairs: Any = {"a": (Entry(about("a"), "process", [{"concurrency": n} for n in (1, 10)]), bench)}
    known = {"a": Trial({"concurrency": 1}, {}, 100.0, 0.0, 0.5)}
    Contest("process", pairs, QUICK, known).run(NoPlaces(), 1000.0)  # type: ignore[arg-type]
    assert len(log) == QUICK.rounds


def test_settings_are_kept_until_the_version_is_another(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tuning, "SETTINGS", tmp_path / "settings.json")
    field = {"a": about("a")}
    trial = Trial({"concurrency": 10}, {"rate": 5.0}, 400.0, 0.0, 0.5)
    tuning.keep("process", {"a": trial, "a, special": trial}, field)

    found = tuning.known_trials("process", field)
    assert found == dict.fromkeys(["a", "a, special"], replace(trial, figures={}))
    assert tuning.known_trials("add", field) == {}
    newer = replace(field["a"], requirements=("a==99",))
    assert tuning.known_trials("process", {"a": newer}) == {}
