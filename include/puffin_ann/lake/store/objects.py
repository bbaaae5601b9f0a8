"""Ask the table's store for an object: everything that is not Parquet is read through here.

Here a store is asked with patience, and what it says is told as `outages` tells it: an object that
is missing is an `ObjectMissingError`, a store that fails a `StoreUnavailableError`.
"""

import errno
import io as streams
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import FormatError
from puffin_ann.lake.store.outages import patiently
from puffin_ann.lake.store.s3 import S3, ranges_of
from puffin_ann.redaction import shown_cause

if TYPE_CHECKING:
    from typing_extensions import Buffer

FOLDER = -1
"""In place of a length: there is something else than an object, such as a folder."""

FIRST_BYTES = 1 << 20
"""Of an object on S3 that is read whole, asked for before its length is known."""


@contextmanager
def locating(uri: str) -> Iterator[None]:
    """Tell a location that no store can have from one where there is nothing.

    Raises:
        FormatError: the table's FileIO does not take its scheme or its name.
    """
    try:
        yield
    except ValueError as error:  # Arrow's `ArrowInvalid` is one
        raise FormatError(
            f"{uri} is no location that can be opened: {error}; if a store has it, the catalog's "
            "'py-io-impl' has to know its scheme"
        ) from shown_cause(error)


def object_length(io: FileIO, uri: str) -> int | None:
    """Return the length of an object; None if it is not there, `FOLDER` if it is not an object.

    Raises:
        StoreUnavailableError: the store does not say.
    """

    def ask() -> int:
        # Not `exists()`: fsspec says of whatever fails that it does not exist. Not `len()`, which
        # Arrow's folders have not.
        try:
            with locating(uri):
                _check_regular(uri)
                length: Any = io.new_input(uri).__len__()
        except RuntimeError:  # as fsspec's file raises that has no length
            return FOLDER
        return length if isinstance(length, int) else FOLDER

    try:
        return patiently(uri, ask)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        return FOLDER


def is_special(mode: int) -> bool:
    """Tell whether a file's mode is that of a pipe, a socket, or a device."""
    return any(of(mode) for of in (stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISCHR, stat.S_ISBLK))


def _check_regular(uri: str) -> None:
    """Refuse what a local file system has in a file's place: to open a pipe waits for a writer.

    Raises:
        IsADirectoryError: it is a pipe, a device or a folder.
    """
    scheme, _, path = PyArrowFileIO.parse_location(uri)
    if scheme != "file":
        return
    # Arrow takes what follows a `?` for no part of the path, fsspec does.
    for place in {path, uri.removeprefix("file:")}:
        try:
            mode = os.stat(place).st_mode
        except OSError:  # which opening it tells
            continue
        if not stat.S_ISREG(mode):
            raise IsADirectoryError(errno.EISDIR, "it is not a regular file", place)


def object_exists(io: FileIO, uri: str) -> bool:
    """Tell whether an object is there, or anything else in its place.

    Raises:
        StoreUnavailableError: the store does not say.
    """
    return object_length(io, uri) is not None


def read_object(io: FileIO, uri: str) -> bytes:
    """Return the bytes of an object; raises as `open_object` does.

    S3 is not asked for its length first: most objects that are read whole come with one request.
    """
    store = ranges_of(io, uri)
    if store is None:
        with open_object(io, uri) as stream:
            return stream.read()
    data, length = _part_of(store, uri, 0, FIRST_BYTES)
    if length <= len(data):
        return data
    return data + _part_of(store, uri, len(data), length - len(data))[0]


def _part_of(store: S3, uri: str, offset: int, size: int) -> tuple[bytes, int]:
    """Return a range of an object as far as it reaches, and the length of the object."""

    def once() -> tuple[bytes, int]:
        data, length = store.range(uri, offset, size)
        if len(data) < min(size, length - offset):
            raise ConnectionResetError(f"{len(data)} of {size} bytes arrived at {offset}")
        return data, length

    return patiently(uri, once)


def open_object(io: FileIO, uri: str, length: int | None = None) -> "ObjectStream":
    """Open an object.

    Args:
        io: reads it.
        uri: its location.
        length: of it in bytes, if that is known: then S3 is not asked for it, and that the object
            is not there shows when it is first read.

    Raises:
        ObjectMissingError: it is not there.
        IsADirectoryError: it is not a file but a folder, a pipe, a device, or a link that leads
            to itself.
        StoreUnavailableError: the store does not answer, or refuses access.
    """
    return ObjectStream(io, uri, length)


class ObjectStream(streams.RawIOBase):
    """An object of the store as a seekable stream; a range that does not come is asked for again.

    Reads raise as `open_object` does. One thread at a time.
    """

    def __init__(self, io: FileIO, uri: str, length: int | None = None) -> None:
        super().__init__()
        self._io = io
        self.uri = uri
        self._position = 0
        self._inner: Any = None
        self._ranges = None if length is None else ranges_of(io, uri)
        self._length = None if self._ranges is None else length
        self._inner = patiently(uri, self._open)

    def readable(self) -> bool:  # noqa: D102
        return True

    def seekable(self) -> bool:  # noqa: D102
        return True

    def tell(self) -> int:  # noqa: D102
        return self._position

    def seek(self, offset: int, whence: int = streams.SEEK_SET, /) -> int:  # noqa: D102
        if whence == streams.SEEK_CUR:
            offset += self._position
        elif whence == streams.SEEK_END:
            offset += self.length()
        if offset < 0:
            raise ValueError(f"seek to a negative position: {offset}")
        self._position = offset
        return offset

    def length(self) -> int:
        """Return the bytes of the object."""
        if self._length is None:
            self._length = patiently(self.uri, lambda: int(self._stream().seek(0, 2)))
        return self._length

    def read(self, size: int | None = -1, /) -> bytes:
        """Return so many bytes, fewer only at the object's end."""
        left = max(self.length() - self._position, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        data = patiently(self.uri, lambda: self._range(wanted)) if wanted else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:  # noqa: D102
        return self.read()

    def readinto(self, buffer: "Buffer", /) -> int:  # noqa: D102
        target = memoryview(buffer).cast("B")
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:  # noqa: D102
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close()
        super().close()

    def _open(self) -> Any:
        if self._ranges is not None:
            return _Ranges(self._ranges, self.uri)
        with locating(self.uri):
            _check_regular(self.uri)
            return self._io.new_input(self.uri).open()

    def _stream(self) -> Any:
        """Return the stream, opened again where the last one failed."""
        if self._inner is None:
            self._inner = self._open()
        return self._inner

    def _range(self, wanted: int) -> bytes:
        try:
            stream = self._stream()
            stream.seek(self._position)
            data: bytes = stream.read(wanted)
        except Exception:
            self._inner = None  # what is left of a broken connection answers no better
            raise
        if self._ranges is not None and stream.length is not None and stream.length < self.length():
            self._length = stream.length  # it is shorter than it was said to be
        elif len(data) < wanted:
            self._inner = None
            raise ConnectionResetError(
                f"{len(data)} of {wanted} bytes arrived at {self._position} of {self.length()}"
            )
        return data


class _Ranges:
    """An object on S3 as a stream of which each read is one request.

    Attributes:
        length: of the object, as the store said it last.
    """

    def __init__(self, store: S3, uri: str) -> None:
        self._store, self._uri = store, uri
        self._position = 0
        self.length: int | None = None

    def seek(self, offset: int) -> None:
        self._position = offset

    def read(self, size: int) -> bytes:
        data, self.length = self._store.range(self._uri, self._position, size)
        return data

    def close(self) -> None:
        """Nothing is held."""
