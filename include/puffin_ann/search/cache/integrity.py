"""Seal a folder of the local cache when it is filled, and check it before each use.

Lengths and times are compared at each use: they give away what was cut short, written over or put
there by another hand, for the price of looking at some names. A disk that loses bits is given away
by checksums alone, for which all is read: of small files at each use, of others once a day.
"""

import contextlib
import json
import os
import time
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from puffin_ann.foreign_json import long_of, object_of, parse

MARK = ".complete"
"""The file in a folder that holds the seal; it is written last."""

PROVED_FOR_SECONDS = 86_400
"""Checksums count as known to be right for this long."""

SMALL_BYTES = 512 << 10
"""Files of no more are read at each use, to compare their checksums: it takes a tenth of a
millisecond, and what says how others are to be read is among them."""

CHUNK = 8 << 20


@dataclass(frozen=True)
class Sealed:
    """A file: its length in bytes, when it was written last, in nanoseconds, and its CRC-32."""

    length: int
    written_ns: int
    checksum: int


@dataclass(frozen=True)
class Seal:
    """The files of a folder as they were.

    Attributes:
        folder: the folder.
        files: by path inside it; files that came later are not among them.
        proved_at: when checksums were compared last, seconds since 1970.
    """

    folder: Path
    files: Mapping[str, Sealed]
    proved_at: float

    @classmethod
    def put(cls, folder: Path) -> "Seal":
        """Seal a folder as it is."""
        names = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {str(path.relative_to(folder)): _sealed(path) for path in names}
        seal = cls(folder, files, time.time())
        seal._write()
        return seal

    @classmethod
    def of(cls, folder: Path) -> "Seal | None":
        """Return a folder's seal; None if it has none that can be read, as if it were not there."""
        try:
            told = object_of(parse((folder / MARK).read_bytes()))
            files = {
                name: Sealed(*map(long_of, sealed))
                for name, sealed in object_of(told.get("files")).items()
            }
            return cls(folder, files, float(told["proved_at"]))
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            return None

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.length for file in self.files.values())

    def holds(self) -> bool:
        """Tell whether the files are as they were, by length and time; small ones by content.

        Where times differ all are compared by content: a cache that was copied is as good.
        """
        for name, sealed in self.files.items():
            try:
                now = (self.folder / name).stat()
            except OSError:
                return False
            if now.st_size != sealed.length:
                return False
            if now.st_mtime_ns != sealed.written_ns:
                return self.proves()
            if sealed.length <= SMALL_BYTES and not self._has(name, sealed):
                return False
        return True

    def _has(self, name: str, sealed: Sealed) -> bool:
        """Tell whether a file has the bytes it had."""
        try:
            return _sealed(self.folder / name).checksum == sealed.checksum
        except OSError:
            return False

    def is_due(self) -> bool:
        """Tell whether checksums have to be compared again."""
        return abs(time.time() - self.proved_at) > PROVED_FOR_SECONDS

    def proves(self) -> bool:
        """Compare checksums, and note it if they are right."""
        found = {}
        for name, sealed in self.files.items():
            try:
                found[name] = _sealed(self.folder / name)
            except OSError:
                return False
            if (found[name].length, found[name].checksum) != (sealed.length, sealed.checksum):
                return False
        with contextlib.suppress(OSError):  # a read-only cache still serves
            Seal(self.folder, found, time.time())._write()
        return True

    def _write(self) -> None:
        files = {
            name: [file.length, file.written_ns, file.checksum] for name, file in self.files.items()
        }
        partial = self.folder / f"{MARK}.{uuid.uuid4().hex}"
        partial.write_text(json.dumps({"proved_at": self.proved_at, "files": files}))
        partial.replace(self.folder / MARK)


def _sealed(path: Path) -> Sealed:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            checksum = zlib.crc32(piece, checksum)
        now = os.fstat(file.fileno())
    return Sealed(now.st_size, now.st_mtime_ns, checksum)
