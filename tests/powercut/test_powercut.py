"""Power cuts, rebuilt from recorded system calls: what was acknowledged is there afterwards."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from . import recorder
from .disk import File
from .recorder import Acknowledged, Failed, Operation, SyncBegins, SyncEnds, Unlink, Write
from .trial import DATABASE, Report, recording_of, trial
from .workloads import FAILING, WORKLOADS

ROUNDS, IMAGES = 16, 60
IMAGES_OF_FAILING = 24


# --- the product ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_was_acknowledged_survives_a_power_cut(workload: str, tmp_path: Path) -> None:
    operations = recording_of(workload, ROUNDS, tmp_path)
    report = trial(workload, operations, tmp_path, IMAGES, seed=1)
    assert report.examples == []
    assert (report.images, report.bad) == (IMAGES, 0)
    assert report.promises >= ROUNDS


@pytest.mark.parametrize("workload", FAILING)
def test_what_is_acknowledged_after_a_failed_sync_survives_a_power_cut(
    workload: str, tmp_path: Path
) -> None:
    operations = recording_of(workload, ROUNDS, tmp_path)
    report = trial(workload, operations, tmp_path, IMAGES_OF_FAILING, seed=1)
    assert report.examples == []
    assert (report.images, report.bad) == (IMAGES_OF_FAILING, 0)
    assert report.failed_syncs == 1
    assert report.promises > 1


# --- controls: the same judge, where promises are broken -----------------------------------------


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Operation], Path]:
    folder = tmp_path_factory.mktemp("worked")
    return recording_of("working", ROUNDS, folder), folder


def judged_deaf_to(worked: tuple[list[Operation], Path], what: str) -> Report:
    operations, folder = worked
    return trial("working", operations, folder, IMAGES, seed=1, deaf=what)


def test_jobs_and_ends_are_missed_when_the_log_is_not_synced(
    worked: tuple[list[Operation], Path],
) -> None:
    report = judged_deaf_to(worked, "-wal")
    assert report.total("lost") > 0
    assert report.total("undone") > 0


def test_jobs_are_missed_when_the_names_of_files_are_not_synced(
    worked: tuple[list[Operation], Path],
) -> None:
    assert judged_deaf_to(worked, "/files").total("lost") > 0


def test_damage_is_found_when_checkpoints_are_not_synced(
    worked: tuple[list[Operation], Path],
) -> None:
    assert judged_deaf_to(worked, DATABASE).total("corrupt") > 0


def test_jobs_are_missed_with_relaxed_durability(tmp_path: Path) -> None:
    operations = recording_of("relaxed", ROUNDS, tmp_path)
    report = trial("relaxed", operations, tmp_path, IMAGES, seed=1)
    assert report.total("lost") > 0
    assert report.total("corrupt") == 0


def test_jobs_are_missed_when_nobody_learns_of_a_failed_sync(tmp_path: Path) -> None:
    operations = recording_of("failing_unguarded", ROUNDS, tmp_path)
    report = trial("failing_unguarded", operations, tmp_path, IMAGES, seed=1)
    assert report.failed_syncs == 1
    assert report.total("lost") > 0


def test_damage_is_found_when_the_log_is_not_written_again(tmp_path: Path) -> None:
    operations = recording_of("failing_and_not_rewritten", 4, tmp_path)
    report = trial("failing_and_not_rewritten", operations, tmp_path, 160, seed=1)
    assert report.failed_syncs == 1
    assert report.total("corrupt") > 0


# --- the disk ------------------------------------------------------------------------------------

A, B = bytes([1]) * 4096, bytes([2]) * 4096


def images_of(file: File) -> set[bytes]:
    dice = random.Random(1)
    return {bytes(file.reordered(dice, sectors=False)) for _ in range(200)}


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    file = File()
    file.write(0, A, at=1)
    file.write(4096, B, at=3)
    file.synced(began=2, good=True)
    assert file.disk == A
    assert images_of(file) == {A, A + B}


def test_any_version_of_a_page_may_have_reached_the_disk() -> None:
    file = File()
    file.write(0, A, at=1)
    file.write(0, B[:2048], at=2)
    file.write(4096, A, at=3)
    mixed = B[:2048] + A[2048:]
    assert images_of(file) == {b"", A, mixed, bytes(4096) + A, A + A, mixed + A}
    assert file.written() == mixed + A


def test_a_page_is_torn_at_a_sector() -> None:
    file = File()
    file.write(0, A, at=1)
    file.synced(began=2, good=True)
    file.write(0, B, at=3)
    dice = random.Random(1)
    images = {bytes(file.torn(dice)) for _ in range(200)}
    assert {A, B, B[:512] + A[512:], A[:3584] + B[3584:]} <= images
    assert all(
        len(set(image[at : at + 512])) == 1 for image in images for at in range(0, 4096, 512)
    )


def test_after_a_failed_sync_pages_are_on_the_disk_only_when_they_are_written_again() -> None:
    file = File()
    file.write(0, A + A, at=1)
    file.synced(began=2, good=False)
    file.synced(began=4, good=True)
    assert file.disk == b""
    assert images_of(file) >= {b"", A + A}, "it may have been written in part"
    file.write(4096, B[:1], at=5)
    file.synced(began=6, good=True)
    assert file.disk == bytes(4096) + B[:1] + A[1:]


def test_a_file_that_was_cut_may_be_as_long_as_before() -> None:
    file = File()
    file.write(0, A + A, at=1)
    file.synced(began=2, good=True)
    file.truncate(4096, at=3)
    assert images_of(file) == {A, A + A}
    file.synced(began=4, good=True)
    assert file.disk == A


# --- the recorder --------------------------------------------------------------------------------


def hexed(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def read(*lines: str) -> list[Operation]:
    reading = recorder._Reading("/db/", "/db/ledger")
    return list(reading.of([f"{line}\n" for line in lines]))


def test_calls_that_overlap_are_told_apart() -> None:
    log = hexed("/db/x-wal")
    assert read(
        f"11 fdatasync(5<{log}> <unfinished ...>",
        f'12  pwrite64(6<{log}>, "{hexed("abc")}", 3, 24) = 3',
        f'12  write(7<{hexed("/db/ledger")}>, "{hexed("told")}", 4) = 4',
        "11 <... fdatasync resumed>) = -1 EIO (Input/output error) (INJECTED)",
    ) == [
        SyncBegins("/db/x-wal", 1),
        Write("/db/x-wal", b"abc", 24),
        Acknowledged(["told"]),
        SyncEnds("/db/x-wal", 1, good=False),
    ]


def test_only_what_concerns_the_files_of_the_folder_is_read() -> None:
    assert read(
        f'11  pwrite64(6<{hexed("/db/x-wal")}>(deleted), "{hexed("abc")}", 3, 24) = 3',
        f'11  write(6<{hexed("/else/x")}>, "{hexed("abc")}", 3) = 3',
        f'11  write(6<{hexed("/db/side/x")}>, "{hexed("abc")}", 3) = 3',
        f"11  ftruncate(6<{hexed('/db/x-shm')}>, 32768) = 0",
        f'11  unlink("{hexed("/db/none")}") = -1 ENOENT (No such file or directory)',
        f'11  unlink("{hexed("/db/x-wal")}") = 0',
        "11  +++ exited with 0 +++",
    ) == [Unlink("/db/x-wal")]


def test_a_call_that_is_not_understood_ends_the_recording() -> None:
    with pytest.raises(Failed, match="pwritev of /db/x-wal"):
        read(f'11  pwritev(6<{hexed("/db/x-wal")}>, [{{iov_base="a", iov_len=1}}], 1, 0) = 1')


def test_a_missing_strace_is_told_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed, match="apt-get install strace"):
        recording_of("adding", 1, tmp_path)
