"""Bytes of which some ranges are there, as a file: whatever lacks is fetched when it is read."""

import io
from bisect import bisect_right
from collections.abc import Callable


class SparseFile(io.RawIOBase):
    """Ranges of one object or blob that were read beforehand, at once, and a way to read others.

    Args:
        length: bytes of all of it.
        fetch: returns bytes `[start, stop)` of it; called for what is not there.
    """

    def __init__(self, length: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._length, self._fetch = length, fetch
        self._starts: list[int] = []
        self._parts: list[bytes | memoryview] = []
        self._position = 0

    def put(self, start: int, data: bytes | memoryview) -> None:
        """Add bytes that begin at `start`; of two parts that begin there, the longer one stays."""
        at = bisect_right(self._starts, start)
        if at and self._starts[at - 1] == start:
            if len(self._parts[at - 1]) < len(data):
                self._parts[at - 1] = data
            return
        self._starts.insert(at, start)
        self._parts.insert(at, data)

    def drop(self, start: int) -> None:
        """Let go of the part that begins at `start`."""
        at = bisect_right(self._starts, start) - 1
        if at >= 0 and self._starts[at] == start:
            del self._starts[at], self._parts[at]

    def has(self, start: int, stop: int) -> bool:
        """Tell whether one part has bytes `[start, stop)`."""
        return self._of_part(start, stop) is not None

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

    def read(self, size: int | None = -1, /) -> bytes:
        """Return so many bytes, fewer only at the end."""
        start = min(self._position, self._length)
        stop = self._length if size is None or size < 0 else min(start + size, self._length)
        self._position = stop
        if start == stop:
            return b""
        found = self._of_part(start, stop)
        return self._fetch(start, stop) if found is None else bytes(found)

    def _of_part(self, start: int, stop: int) -> bytes | memoryview | None:
        at = bisect_right(self._starts, start) - 1
        if at < 0 or stop > self._starts[at] + len(self._parts[at]):
            return None
        return self._parts[at][start - self._starts[at] : stop - self._starts[at]]
