"""What ids mean."""

from __future__ import annotations

import pytest

from bullite.core.names import check_queue_name, job_number
from bullite.errors import InvalidOption


@pytest.mark.parametrize("number", [0, 7, 10**18 - 1])
def test_a_number_as_the_queue_writes_it_is_one(number: int) -> None:
    assert job_number(str(number)) == number


@pytest.mark.parametrize(
    "id", ["", "007", "-7", "+7", " 7", "7 ", "1_0", "٧", "²", "7a", "a", "9" * 19, "9" * 5_000]
)
def test_every_other_id_is_a_name(id: str) -> None:
    assert job_number(id) is None


def test_the_name_of_a_queue_is_not_all_digits() -> None:
    assert check_queue_name("queue", "7a") == "7a"
    with pytest.raises(InvalidOption, match="queue must not be all digits"):
        check_queue_name("queue", "7")
