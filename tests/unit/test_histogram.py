"""Durations, counted by their size."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullite.core.histogram import DurationHistogram

DURATIONS = st.lists(st.floats(0.1, 1e10), min_size=1, max_size=200)


def sketch_of(durations: list[float]) -> DurationHistogram:
    sketch = DurationHistogram()
    for duration in durations:
        sketch.add(duration)
    return sketch


@given(durations=DURATIONS, share=st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_right_to_two_per_cent(durations: list[float], share: float) -> None:
    exact = sorted(durations)[max(1, math.ceil(share * len(durations))) - 1]
    assert sketch_of(durations).quantile(share) == pytest.approx(exact, rel=0.0201)


@given(one=DURATIONS, other=DURATIONS)
def test_sketches_add_up_to_the_sketch_of_everything(one: list[float], other: list[float]) -> None:
    together, whole = sketch_of(one), sketch_of(one + other)
    together.merge(sketch_of(other))
    assert together.buckets == whole.buckets
    assert (together.count, together.least, together.most) == (
        whole.count,
        whole.least,
        whole.most,
    )
    assert together.mean == pytest.approx(whole.mean)


@given(durations=DURATIONS)
def test_a_sketch_is_stored_as_json(durations: list[float]) -> None:
    sketch = sketch_of(durations)
    again = DurationHistogram.from_json(json.loads(json.dumps(sketch.as_json())))
    assert again.buckets == sketch.buckets
    assert again.mean == pytest.approx(sketch.mean, rel=1e-3)


def test_a_sketch_of_nothing_knows_nothing() -> None:
    empty = DurationHistogram.from_json(DurationHistogram().as_json())
    assert (empty.count, empty.mean, empty.quantile(0.5)) == (0, None, None)


def test_what_takes_no_time_counts_as_the_shortest() -> None:
    sketch = sketch_of([0.0, 0.0])
    assert (sketch.count, sketch.mean, sketch.quantile(0.99)) == (2, 0.0, 0.0)


def test_a_duration_may_be_counted_many_times_at_once() -> None:
    sketch = DurationHistogram()
    sketch.add(7, times=3)
    assert (sketch.count, sketch.mean, sketch.buckets) == (3, 7.0, sketch_of([7, 7, 7]).buckets)
