"""A disk whose power can be cut: it follows a recording, and makes the images a cut would leave.

It keeps for each page of a file what is on the disk for sure, and every version of it that was
written since, for the kernel may have written back any of them. A sync puts the newest of those on
the disk that were written before it began. One that *fails* leaves the disk as it is and the pages
clean, as Linux does: their contents are not written again, unless somebody changes the page again.

Names count as well: that a file was made or deleted is on the disk once the folder is synced, as
POSIX has it; file systems in use promise more. The -shm file is never part of an image, nor is the
side folder: after a start of the machine both are made anew.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from .recorder import (
    Acknowledged,
    Create,
    Operation,
    SyncBegins,
    SyncEnds,
    Truncate,
    Unlink,
    Write,
)

PAGE = 4096
SECTOR = 512
KINDS = ("synced", "written", "torn", "reordered")


@dataclass(slots=True)
class Version:
    """A page of a file as it was after a write; shorter at the end of the file."""

    at: int
    data: bytes


@dataclass(slots=True)
class File:
    """One file: what programs see, what is on the disk, and what is between the two."""

    seen: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    dirty: dict[int, list[Version]] = field(default_factory=dict)
    given_up: dict[int, Version] = field(default_factory=dict)
    """Pages that a failed sync was to write back: clean for the kernel, on the disk perhaps."""
    shortest: int | None = None
    """To which size it was cut since it was last synced."""

    def write(self, offset: int, data: bytes, at: int) -> None:
        end = offset + len(data)
        if len(self.seen) < end:
            self.seen.extend(bytes(end - len(self.seen)))
        self.seen[offset:end] = data
        for page in range(offset // PAGE, (end - 1) // PAGE + 1):
            version = Version(at, bytes(self.seen[page * PAGE : (page + 1) * PAGE]))
            self.dirty.setdefault(page, []).append(version)
            self.given_up.pop(page, None)

    def truncate(self, size: int, at: int) -> None:
        if size >= len(self.seen):
            self.seen.extend(bytes(size - len(self.seen)))
            return
        del self.seen[size:]
        self.shortest = size if self.shortest is None else min(size, self.shortest)
        for pages in (self.dirty, self.given_up):
            for page in [page for page in pages if page * PAGE >= size]:
                del pages[page]
        if size % PAGE and (versions := self.dirty.get(size // PAGE)):
            versions.append(Version(at, bytes(self.seen[size // PAGE * PAGE :])))

    def synced(self, began: int, good: bool) -> None:
        if good and self.shortest is not None:
            del self.disk[self.shortest :]
            self.shortest = None
        for page, versions in list(self.dirty.items()):
            covered = [version for version in versions if version.at < began]
            if not covered:
                continue
            if good:
                _put(self.disk, page, covered[-1].data)
            if len(covered) < len(versions):
                self.dirty[page] = versions[len(covered) :]
            else:
                del self.dirty[page]
                if not good:
                    self.given_up[page] = covered[-1]

    # --- images ---

    def written(self) -> bytearray:
        """Everything that was not given up has reached the disk."""
        image = self._cut_short()
        for page, versions in self.dirty.items():
            _put(image, page, versions[-1].data)
        return image

    def _cut_short(self) -> bytearray:
        return self.disk[: self.shortest]

    def reordered(self, dice: random.Random, sectors: bool) -> bytearray:
        """Any version of any page has; with `sectors` also some sectors of it and others not."""
        image = self._cut_short() if dice.random() < 0.5 else self.disk[:]
        pages = {page: list(versions) for page, versions in self.dirty.items()}
        if dice.random() < 0.5:
            pages |= {page: [version] for page, version in self.given_up.items()}
        often = dice.choice((0.1, 0.5, 0.9))
        for page, versions in sorted(pages.items()):
            if dice.random() >= often:
                continue
            version = dice.choice(versions)
            if sectors and dice.random() < 0.5:
                _tear(image, page, version.data, dice)
            else:
                _put(image, page, version.data)
        return image

    def torn(self, dice: random.Random) -> bytearray:
        """All has, but what was written last did so in part."""
        last = max((versions[-1].at for versions in self.dirty.values()), default=0)
        since = last - dice.choice((0, 1, 3))
        image = self._cut_short()
        for page, versions in sorted(self.dirty.items()):
            before = [version for version in versions if version.at < since]
            if before:
                _put(image, page, before[-1].data)
            if versions[-1].at >= since:
                _tear(image, page, versions[-1].data, dice)
        return image


def _put(image: bytearray, page: int, data: bytes, start: int = 0) -> None:
    offset = page * PAGE + start
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


def _tear(image: bytearray, page: int, data: bytes, dice: random.Random) -> None:
    """Put some sectors of a page: those up to one of them, those from one on, or any."""
    number = -(-len(data) // SECTOR)
    middle = dice.randrange(number + 1)
    chosen = dice.choice(
        (
            range(middle),
            range(middle, number),
            [sector for sector in range(number) if dice.random() < 0.5],
        )
    )
    for sector in chosen:
        _put(image, page, data[sector * SECTOR : (sector + 1) * SECTOR], sector * SECTOR)


Names = dict[str, File]


class Disk:
    """The files of one folder. A sync of a file whose path ends like `deaf` has no effect: controls
    show with it that the test would notice."""

    def __init__(self, folder: Path, deaf: str | None = None) -> None:
        self._folder = str(folder)
        self._deaf = deaf
        self._names: Names = {}
        self._on_disk: Names = {}
        self._under_way: dict[int, tuple[int, File | Names]] = {}
        self._time = 0
        self.acknowledged: list[str] = []
        self.failed_syncs = 0

    def follow(self, operation: Operation) -> None:
        self._time += 1
        match operation:
            case Acknowledged():
                self.acknowledged += operation.lines
            case Create():
                file = self._names.setdefault(operation.path, File())
                if operation.emptied:
                    file.truncate(0, self._time)
            case Write():
                file = self._names[operation.path]
                offset = len(file.seen) if operation.offset is None else operation.offset
                file.write(offset, operation.data, self._time)
            case Truncate():
                self._names[operation.path].truncate(operation.size, self._time)
            case Unlink():
                self._names.pop(operation.path, None)
            case SyncBegins():
                self._sync_begins(operation)
            case SyncEnds():
                self._sync_ends(operation)

    def _sync_begins(self, sync: SyncBegins) -> None:
        what = dict(self._names) if sync.path == self._folder else self._names[sync.path]
        self._under_way[sync.number] = self._time, what

    def _sync_ends(self, sync: SyncEnds) -> None:
        began, what = self._under_way.pop(sync.number)
        self.failed_syncs += not sync.good
        if self._deaf is not None and sync.path.endswith(self._deaf):
            return
        if isinstance(what, File):
            what.synced(began, sync.good)
        elif sync.good:
            self._on_disk = what

    def image(self, kind: str, dice: random.Random) -> dict[str, bytearray]:
        """The files after a cut of the power at this moment, by name."""
        if kind == "synced":
            return _named({path: file.disk for path, file in self._on_disk.items()})
        if kind == "written":
            return _named({path: file.written() for path, file in self._names.items()})
        if kind == "torn":
            return _named({path: file.torn(dice) for path, file in self._names.items()})
        sectors = dice.random() < 0.5
        names = self._some_names(dice)
        return _named({path: file.reordered(dice, sectors) for path, file in names.items()})

    def _some_names(self, dice: random.Random) -> Names:
        """Each name as it was when the folder was last synced, or as it is now."""
        names: Names = {}
        for path in sorted(self._names.keys() | self._on_disk.keys()):
            which = dice.choice((self._names, self._on_disk))
            if path in which:
                names[path] = which[path]
        return names


def _named(files: dict[str, bytearray]) -> dict[str, bytearray]:
    return {Path(path).name: data for path, data in files.items()}
