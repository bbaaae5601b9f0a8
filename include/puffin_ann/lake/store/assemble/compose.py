"""Make a new object of a table's store out of bytes made here and ranges of its other objects.

On S3 the store copies the ranges by itself, so that none of their bytes passes through this
process. Of local files see `local_copy`; elsewhere they are streamed through here.
"""

import logging
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO

from puffin_ann.errors import EnvironmentProblemError, StagingError
from puffin_ann.lake.store.assemble import local_copy, multipart
from puffin_ann.lake.store.assemble.object_plan import (
    CopiedRange,
    InlineBytes,
    ObjectPlan,
    Told,
    nobody,
)
from puffin_ann.lake.store.listing import delete_object
from puffin_ann.lake.store.objects import open_object
from puffin_ann.lake.store.s3 import Location, s3_of
from puffin_ann.lake.store.staging import local_path, naming

CHUNK = 8 << 20

_log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class Names:
    """How the new object is called: `<folder>/<kind>-<run>-n<number>-<its own>.puffin`.

    Attributes:
        folder: location of the folder.
        kind: what such objects have in common, whatever run makes them.
        run: what those of one run have in common.
        number: of the publication, see `registered.publication_number`.
    """

    folder: str
    kind: str
    run: str
    number: int

    def path(self, suffix: str) -> str:
        """Return the location of one object."""
        return f"{self.folder}/{self.kind}-{self.run}-n{self.number}-{suffix}.puffin"


class Assembly:
    """Collects what an object is made of, in `object_plan`, and makes it.

    assembly = Assembly(table.io, names)
    with PuffinWriter(assembly.object_plan) as writer:
        ...
    path = assembly.make()
    """

    def __init__(self, io: FileIO, names: Names) -> None:
        self._io = io
        self._names = names
        self._s3 = s3_of(io, names.folder)
        self.object_plan = ObjectPlan(self._version_of)

    def make(self, told: Told = nobody) -> str:
        """Make the object and return its location.

        Where the store copies, the name follows from the object plan: an attempt after this one
        goes on with what this one began, or finds that it is finished. Elsewhere no other attempt
        uses the name, and an object that could not be finished is removed.

        Args:
            told: gets the bytes of each part that is written; several threads may call it.

        Raises:
            StoreRefusedError: a source is gone or was changed since it was pinned.
            StagingError: a source is too short.
            EnvironmentProblemError: the object cannot be written, or a source not be read.
        """
        if self._s3 is None or any(Location.of(uri) is None for uri in self.object_plan.versions):
            path = self._names.path(uuid.uuid4().hex[:12])
            local = local_path(path)
            with naming(path):
                if local is not None and all(map(local_path, self.object_plan.versions)):
                    self._copy_locally(local, told)
                else:
                    self._stream(path, told)
            return path
        path = self._names.path(self.object_plan.digest()[:16])
        place = Location.require(path)
        kind = Location.require(f"{self._names.folder}/{self._names.kind}-").key
        multipart.sweep(self._s3, place, run=f"{kind}{self._names.run}-", all_runs=kind)
        multipart.assemble(self._s3, place, self.object_plan, told)
        return path

    def _version_of(self, uri: str) -> str:
        if self._s3 is None or Location.of(uri) is None:
            return ""
        return self._s3.version(uri)

    def _copy_locally(self, place: Path, told: Told) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        out = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try:
                local_copy.reserve(out, self.object_plan.length)
                for piece in self.object_plan.pieces:
                    if isinstance(piece, InlineBytes):
                        local_copy.append(piece.data, out)
                    else:
                        _append_local(piece, out)
                    told(piece.length)
            finally:
                os.close(out)
        except BaseException:
            place.unlink(missing_ok=True)
            raise

    def _stream(self, path: str, told: Told) -> None:
        try:
            with self._io.new_output(path).create(overwrite=False) as out:
                for piece in self.object_plan.pieces:
                    if isinstance(piece, InlineBytes):
                        out.write(piece.data)
                    else:
                        self._copy(piece, out)
                    told(piece.length)
        except BaseException:
            self._give_up(path)
            raise

    def _give_up(self, path: str) -> None:
        """Remove what is half written; why it was given up is what has to be told."""
        try:
            delete_object(self._io, path)
        except EnvironmentProblemError as error:
            _log.warning("%s is left behind: %s", path, error)

    def _copy(self, piece: CopiedRange, out: Any) -> None:
        with open_object(self._io, piece.source) as source:
            source.seek(piece.offset)
            left = piece.length
            while left:
                data = source.read(min(left, CHUNK))
                if not data:
                    raise _too_short(piece, left)
                out.write(data)
                left -= len(data)


def _append_local(piece: CopiedRange, out: int) -> None:
    path = local_path(piece.source)
    if path is None:
        raise ValueError(f"{piece.source} is not on the local file system")
    with path.open("rb", buffering=0) as source:
        done = local_copy.append_range(source.fileno(), piece.offset, piece.length, out)
    if done < piece.length:
        raise _too_short(piece, piece.length - done)


def _too_short(piece: CopiedRange, missing: int) -> StagingError:
    return StagingError(f"{piece.source} ends {missing} bytes too early")
