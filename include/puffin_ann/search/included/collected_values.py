"""Values of a column, collected block by block for a lookup, in no more memory than it may take.

Text that is repeated is far larger in memory than in a blob, by how much nobody knows before it is
decoded. So of values of any width each is held once, as soon as there are many bytes of them.
"""

import pyarrow as pa

from puffin_ann.settings import MIB

DECODED_BYTES = 64 * MIB
"""Values are held as they come up to so many bytes, then each that differs once."""

MOST_WIDE_BYTES = (2 << 30) - 256 * MIB
"""Of values of any width, whatever is allowed: Arrow counts 2 GiB of an array's, and some are added
before their bytes are known."""


class CollectedValues:
    """Collects the values of a column.

    Args:
        kind: that Arrow has for the column.
        most: bytes that they may take, of those of any width each that differs once.
        is_wide: whether they are of any width.
    """

    def __init__(self, kind: pa.DataType, most: int, *, is_wide: bool) -> None:
        self._kind, self._is_wide = kind, is_wide
        self._most = min(most, MOST_WIDE_BYTES) if is_wide else most
        self._parts: list[pa.Array] = []
        self._bytes = 0
        self._encoded: list[pa.Array] = []

    def add(self, values: pa.Array) -> bool:
        """Take the values of a block, and tell whether all may be held."""
        self._parts.append(values)
        self._bytes += values.nbytes
        if not self._is_wide or self._bytes <= min(DECODED_BYTES, self._most):
            return True
        self._encode()
        if self._size() > self._most and len(self._encoded) > 1:
            self._encoded = [pa.concat_arrays(self._encoded)]
        return self._size() <= self._most

    def column(self) -> pa.ChunkedArray:
        """Return all values; as a dictionary where they were held so."""
        if not self._encoded:
            return pa.chunked_array(self._parts, self._kind)
        self._encode()
        return pa.chunked_array(self._encoded)

    def _encode(self) -> None:
        if self._parts:
            self._encoded.append(pa.concat_arrays(self._parts).dictionary_encode())
        self._parts, self._bytes = [], 0

    def _size(self) -> int:
        return sum(part.indices.nbytes + part.dictionary.nbytes for part in self._encoded)
