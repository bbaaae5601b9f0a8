"""The cells of a version: by far the most bytes of what is small, and only searches need them.

At 10,000 cells of 3,072 numbers the centroids are 123 MB, of an index whose other small blobs have
a few. Who asks what an index is, or how stale, does not read them.
"""

import threading
from collections.abc import Callable

from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Routing, decode_cells
from puffin_ann.errors import FormatError


class VersionCells:
    """The cells that a routing names, read when they are first asked for, by whichever thread.

    Args:
        routing: names them.
        data: their blob, where it came along with others; it may be damaged.
    """

    def __init__(self, routing: Routing, data: bytes = b"") -> None:
        self._routing, self._data = routing, data
        self._found: Partitions | None = None
        self._lock = threading.Lock()

    def get(self, read: Callable[[], bytes]) -> Partitions:
        """Return them.

        Args:
            read: returns the blob that has them.

        Raises:
            FormatError: the blob cannot be read, or is not the one that the routing names.
            StoreUnavailableError: its store does not say.
        """
        with self._lock:
            if self._found is None:
                self._found = self._decoded(read)
                self._data = b""
            return self._found

    def _decoded(self, read: Callable[[], bytes]) -> Partitions:
        # What a network garbled is whole when it is read again; broken twice, it is.
        try:
            return decode_cells(self._routing, self._data or read())
        except FormatError:
            return decode_cells(self._routing, read())
