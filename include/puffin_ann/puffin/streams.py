"""What the container asks of streams, and a seekable view of a part of one."""

import io
import threading
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from puffin_ann.errors import PuffinFormatError

if TYPE_CHECKING:
    from typing_extensions import Buffer


SMALLEST_FETCH = 64 << 10
LARGEST_FETCH = 8 << 20


class ReadableStream(Protocol):
    """A seekable source: a Python file, or the `NativeFile` that PyIceberg's `open()` gives."""

    def read(self, size: int = -1, /) -> bytes: ...  # noqa: D102
    def seek(self, offset: int, whence: int = 0, /) -> int: ...  # noqa: D102


class WritableStream(Protocol):
    """A sink that is only ever appended to, as object stores offer."""

    def write(self, data: bytes, /) -> Any: ...  # noqa: D102


@runtime_checkable
class RangeSink(WritableStream, Protocol):
    """A sink that takes a range of a file by the name of its reader, without seeing its bytes."""

    def write_range(self, source: str, offset: int, length: int, /) -> Any: ...  # noqa: D102


class RangeSource:
    """Reads exact byte ranges of one stream, by any number of threads."""

    def __init__(self, stream: ReadableStream, name: str) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.name = name

    def length(self) -> int:
        """Return the length of the stream in bytes."""
        with self._lock:
            return self._stream.seek(0, io.SEEK_END)

    def read_some(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes at `offset`; nothing only at the end of the stream."""
        with self._lock:
            self._stream.seek(offset)
            return self._stream.read(length)

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes at `offset`; `PuffinFormatError` if the stream ends."""
        parts: list[bytes] = []
        got = 0
        while got < length:
            part = self.read_some(offset + got, length - got)
            if not part:
                raise PuffinFormatError(
                    f"{self.name}: ends at byte {offset + got}, {length - got} bytes too early"
                )
            parts.append(part)
            got += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class RangeView(io.RawIOBase):
    """Bytes `[offset, offset + length)` of a source as a file of their own, read-only.

    On an object store every read of the source is a request, so reading on from where the last
    fetch ended fetches twice as much as that did, up to 8 MiB; a jump begins small again.
    """

    def __init__(self, source: RangeSource, offset: int, length: int) -> None:
        self._source = source
        self._offset = offset
        self._length = length
        self._position = 0
        self._fetched = b""
        self._fetched_at = 0
        self._window = SMALLEST_FETCH

    def readable(self) -> bool:  # noqa: D102
        return True

    def seekable(self) -> bool:  # noqa: D102
        return True

    def tell(self) -> int:  # noqa: D102
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:  # noqa: D102
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to a negative position: {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: "Buffer", /) -> int:  # noqa: D102
        target = memoryview(buffer).cast("B")
        want = min(len(target), max(self._length - self._position, 0))
        if want == 0:
            return 0
        start = self._position - self._fetched_at
        if not 0 <= start < len(self._fetched):
            self._fetch(want, in_sequence=start == len(self._fetched))
            start = 0
        piece = memoryview(self._fetched)[start : start + want]
        target[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _fetch(self, want: int, *, in_sequence: bool) -> None:
        self._window = min(2 * self._window, LARGEST_FETCH) if in_sequence else SMALLEST_FETCH
        size = min(max(want, self._window), self._length - self._position)
        self._fetched = self._source.read_some(self._offset + self._position, size)
        self._fetched_at = self._position
        if not self._fetched:
            raise PuffinFormatError(f"{self._source.name}: ends within a blob")
