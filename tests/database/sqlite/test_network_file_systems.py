"""Databases on network file systems are refused, unless the risk is taken in writing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bullite import Queue
from bullite.database.sqlite import files
from bullite.database.sqlite.files import file_system_of, refuse_network_file_system
from bullite.errors import NetworkFileSystem


def mount(place: str | Path, kind: str) -> str:
    return f"36 35 98:0 / {place} rw,noatime master:1 - {kind} server:/share rw,errors=continue\n"


ROOT = mount("/", "ext4")


def test_the_deepest_mount_around_a_file_decides():
    mounts = mount("/srv/data/fast", "xfs") + ROOT + mount("/srv/data", "nfs4")

    assert file_system_of(Path("/srv/jobs.db"), mounts) == "ext4"
    assert file_system_of(Path("/srv/data/jobs.db"), mounts) == "nfs4"
    assert file_system_of(Path("/srv/data/fast/jobs.db"), mounts) == "xfs"


def test_a_folder_whose_name_only_begins_like_a_mount_is_not_inside_it():
    assert (
        file_system_of(Path("/srv/database/jobs.db"), ROOT + mount("/srv/data", "nfs4")) == "ext4"
    )


def test_of_two_mounts_at_one_place_the_later_one_counts():
    mounts = ROOT + mount("/srv", "nfs4") + mount("/srv", "ext4")

    assert file_system_of(Path("/srv/jobs.db"), mounts) == "ext4"


def test_a_mount_with_a_space_in_its_name_is_recognised():
    assert (
        file_system_of(Path("/srv/my data/a.db"), ROOT + mount(r"/srv/my\040data", "nfs")) == "nfs"
    )


def test_a_mount_with_letters_beyond_ascii_in_its_name_is_recognised():
    assert file_system_of(Path("/srv/größe/a.db"), ROOT + mount("/srv/größe", "nfs")) == "nfs"


def test_a_link_leads_to_the_file_system_of_its_target(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")

    mounts = ROOT + mount(tmp_path / "far", "cifs")

    assert file_system_of(tmp_path / "near" / "jobs.db", mounts) == "cifs"


def test_without_a_table_of_mounts_nothing_is_known_and_nothing_refused():
    assert file_system_of(Path("/srv/jobs.db"), "") is None
    refuse_network_file_system(Path("/srv/jobs.db"), "")


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph"])
def test_a_network_file_system_is_refused_by_name_with_the_ways_out(kind):
    with pytest.raises(NetworkFileSystem) as caught:
        refuse_network_file_system(Path("/srv/jobs.db"), ROOT + mount("/srv", kind))

    for part in ("/srv/jobs.db", kind, "local disk", "?network=allow"):
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs"])
def test_a_local_file_system_is_not_refused(kind):
    refuse_network_file_system(Path("/srv/jobs.db"), ROOT + mount("/srv", kind))


def test_a_store_on_a_network_file_system_is_opened_only_when_that_is_allowed(
    database, monkeypatch
):
    monkeypatch.setattr(files, "_mounts", lambda: ROOT + mount(database.parent, "nfs4"))

    async def use(location: str) -> str:
        async with Queue("work", location) as queue:
            return (await queue.add("job")).id

    with pytest.raises(NetworkFileSystem):
        asyncio.run(use(f"sqlite:///{database}"))
    assert list(database.parent.iterdir()) == []

    assert asyncio.run(use(f"sqlite:///{database}?network=allow")) == "1"
