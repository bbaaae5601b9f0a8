"""Hand objects from one stage of a run to the next through the table's store.

A run's folder holds large objects, written under names that no other attempt uses, and small
markers, which are created if absent and name those objects: the first marker wins, so that a task
that was given up and still runs can do no harm.

On a local file system nothing here waits for the disk: a run's few dozen small objects took longer
than all else that a refresh of a few deleted rows does. Where the machine itself goes down, an
object may be torn. A large one is known by its digest then, a document by `discard_torn`, and what
was lost is done again.
"""

import hashlib
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlparse

from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import (
    EnvironmentProblemError,
    PuffinAnnError,
    StagingError,
    StagingGoneError,
    StoreDeniedError,
    StoreUnavailableError,
)
from puffin_ann.foreign_json import parse
from puffin_ann.lake.store.objects import object_exists, open_object, read_object
from puffin_ann.lake.store.outages import ask_again, is_of_a_store, telling, translate
from puffin_ann.lake.store.s3 import s3_of
from puffin_ann.redaction import shown_cause

_log = logging.getLogger("puffin_ann")


@dataclass(frozen=True)
class StagedObject:
    """An object in the store, and how to know that it is whole.

    Attributes:
        uri: where it is.
        length: bytes.
        sha256: lower-case hexadecimal digest.
    """

    uri: str
    length: int
    sha256: str


class Staging:
    """A folder of the table's store, `root`, reached through the table's FileIO."""

    def __init__(self, io: FileIO, root: str) -> None:
        self.io = io
        self.root = root.rstrip("/")
        self._s3 = s3_of(io, self.root)
        # Not PyArrowFileIO.parse_location: it takes an empty path for the working directory.
        location = urlparse(self.root)
        if len([part for part in (location.netloc, *location.path.split("/")) if part]) < 3:
            # delete_tree would take a whole bucket or much of a file system with it.
            raise StagingError(f"{root!r} is too short a path for a staging folder")

    def uri(self, *parts: str) -> str:
        """Return the location of an object of this folder."""
        for part in "/".join(parts).split("/"):
            if part in ("", ".", ".."):
                raise StagingError(f"{'/'.join(parts)!r} is not a name inside a staging folder")
        return "/".join((self.root, *parts))

    def exists(self, *parts: str) -> bool:
        """Tell whether an object is there."""
        return object_exists(self.io, self.uri(*parts))

    def read(self, *parts: str) -> bytes:
        """Return the bytes of a small object; StagingGoneError if it is missing."""
        with self.fetch(self.uri(*parts)) as stream:
            return stream.read()

    def put_new(self, name: str, data: bytes) -> bool:
        """Create an object if it is absent; True if this call created it.

        On a local file system and on S3 this is atomic: of any number of callers one gets True, and
        no reader sees half an object. FileIO has no conditional put, so elsewhere, and on stores
        that only resemble S3, the object is looked for, written and read back; of two callers
        within that span both may get True, and the later one's bytes stay. Callers therefore read
        what is there and go on with that.
        """
        uri = self.uri(name)
        path = local_path(uri)
        if path is not None:
            return _link_new(path, data)
        if object_exists(self.io, uri):
            return False
        if self._s3 is not None:
            created = self._s3.put_new(uri, data)
            if created is not None:
                return created
        self._put(uri, data)
        return self.read(name) == data

    def discard_torn(self, name: str) -> bool:
        """Remove a document that is not JSON, such as a machine leaves that went down; else False.

        Only on a local file system: elsewhere no reader sees half an object.
        """
        path = local_path(self.uri(name))
        if path is None:
            return False
        try:
            with telling(str(path)):
                parse(read_object(self.io, self.uri(name)))
        except ValueError:
            path.unlink(missing_ok=True)
            return True
        except FileNotFoundError:
            return True
        return False

    def put(self, name: str, data: bytes) -> None:
        """Create or replace a small object; no reader sees half of it.

        Only for objects that have one writer: of several, the last one's bytes stay.
        """
        uri = self.uri(name)
        path = local_path(uri)
        if path is None:
            self._put(uri, data)
            return
        partial = _written_beside(path, data)
        try:
            with naming(uri):
                os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    def _put(self, uri: str, data: bytes) -> None:
        """Write a whole object; done twice, it is the same."""

        def write() -> None:
            with self.io.new_output(uri).create(overwrite=True) as out:
                out.write(data)

        with naming(uri):
            ask_again(write)

    @contextmanager
    def create(self, *parts: str) -> "Iterator[StagedWriter]":
        """Open a new object for writing; its `staged` property says what was written, once closed.

        The name must be one that no other attempt uses. If the body raises, the object is removed.
        """
        uri = self.uri(*parts)
        with naming(uri):
            writer = StagedWriter(uri, self.io.new_output(uri).create(overwrite=True))
        try:
            yield writer
        except BaseException:
            self._give_up(writer)
            raise
        writer.close()

    def _give_up(self, writer: "StagedWriter") -> None:
        """Remove what is half written; why it was given up is what has to be told."""
        try:
            writer.close()
            self.io.delete(writer.uri)
        except (OSError, EnvironmentProblemError) as error:
            _log.warning("%s is left behind: %s", writer.uri, error)

    def fetch(self, uri: str) -> BinaryIO:
        """Open an object, of this folder or not, as a seekable stream.

        Raises:
            StagingGoneError: it is missing.
            StoreUnavailableError: the store does not say; here, or when it is read.
        """
        try:
            return cast(BinaryIO, open_object(self.io, uri))
        except FileNotFoundError as error:
            raise StagingGoneError(f"staged object {uri} is gone") from shown_cause(error)

    def read_checked(self, staged: StagedObject) -> bytes:
        """Return the bytes of a staged object; StagingGoneError if it is not what was staged."""
        with self.fetch(staged.uri) as source:
            data = source.read(staged.length + 1)
        _check(staged, len(data), hashlib.sha256(data).hexdigest())
        return data

    def delete_tree(self) -> None:
        """Remove the folder and all in it; no error if it is not there."""
        path = local_path(self.root)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
        elif self._s3 is not None:
            # Arrow would leave an object that stands for the empty folder.
            self._s3.delete_tree(self.root)
        else:
            with telling(self.root):
                _delete_remote_tree(self.io, self.root)


def _check(staged: StagedObject, length: int, sha256: str) -> None:
    if (length, sha256) != (staged.length, staged.sha256):
        raise StagingGoneError(
            f"staged object {staged.uri} has {length} bytes, sha256 {sha256}; its marker says "
            f"{staged.length}, {staged.sha256}"
        )


class StagedWriter:
    """A binary stream that counts and digests what goes through it."""

    def __init__(self, uri: str, out: Any) -> None:
        self.uri = uri
        self._out = out
        self._length = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write all of `data`; returns its length in bytes."""
        with naming(self.uri):
            self._out.write(data)
        self._digest.update(data)
        size = memoryview(data).nbytes
        self._length += size
        return size

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._length

    def flush(self) -> None:
        """Do nothing: objects appear when they are closed."""

    def close(self) -> None:
        """Close the underlying stream, which makes the object appear."""
        with naming(self.uri):
            self._out.close()

    @property
    def staged(self) -> StagedObject:
        """What was written through this stream."""
        return StagedObject(self.uri, self._length, self._digest.hexdigest())


def local_path(uri: str) -> Path | None:
    """Return the path of a location on the local file system, else None."""
    scheme, _, path = PyArrowFileIO.parse_location(uri)
    return Path(path) if scheme == "file" else None


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Name an object in what keeps it from being written.

    Not a StagingError, which says that something staged is not there.
    """
    try:
        yield
    except PuffinAnnError:
        raise
    except Exception as error:
        if not is_of_a_store(error):
            raise
        said = getattr(error, "strerror", None) or str(error)
        source, folder = str(getattr(error, "filename", None) or ""), where.rpartition("/")[0]
        is_there = folder.endswith(os.path.dirname(source))  # or it is what would be copied
        told = translate(error, where)
        if isinstance(told, StoreDeniedError) and is_there:
            # The object's own name, hidden or for the time being, helps nobody.
            raise StoreDeniedError(
                f"this user may not write to {folder}: {said}; give them permission to, or correct "
                "the credentials"
            ) from shown_cause(error)
        if source and source not in where:
            said += f" ({source})"
        said = f"{where} cannot be written: {said}"
        if isinstance(told, StoreUnavailableError):
            raise type(told)(f"{said}; look at its store, and try again") from shown_cause(error)
        raise EnvironmentProblemError(said) from shown_cause(error)


def _link_new(path: Path, data: bytes) -> bool:
    partial = _written_beside(path, data)
    try:
        with naming(str(path)):
            return _linked(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _linked(source: Path, path: Path) -> bool:
    try:
        os.link(source, path)
    except FileExistsError:
        return False
    return True


_PARTIAL = re.compile(r"\..+\.[0-9a-f]{32}")


def is_partial(name: str) -> bool:
    """Tell whether a name is that of an object that is not complete yet."""
    return _PARTIAL.fullmatch(name) is not None


def _written_beside(path: Path, data: bytes) -> Path:
    """Write bytes to a file that nobody else knows, in the folder of another one."""
    with naming(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile: its files are for one user, and Spark's workers may be another.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with naming(str(path)), partial.open("xb") as out:
            out.write(data)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return partial


def _delete_remote_tree(io: FileIO, root: str) -> None:
    scheme, netloc, path = PyArrowFileIO.parse_location(root)
    if isinstance(io, PyArrowFileIO):
        io.fs_by_scheme(scheme, netloc).delete_dir_contents(path, missing_dir_ok=True)
        return
    get_fs = getattr(io, "get_fs", None)
    if get_fs is None:
        raise StagingError(f"{type(io).__name__} cannot list {root}; delete it by hand")
    filesystem = get_fs(scheme)
    if filesystem.exists(root):
        filesystem.rm(root, recursive=True)
