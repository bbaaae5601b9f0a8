"""What is kept of shards for one condition, up to a number of bytes."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable

from puffin_ann.search.conditions.shard_rows import ShardRows
from puffin_ann.settings import MIB

SHARDS_BYTES = 256 * MIB
"""What is kept of shards for one condition; the rest is made again when it is asked for."""


class KeptShards:
    """Rows of shards that may be answered, those asked for longest ago leaving first.

    One of them stays, whatever it takes. Any number of threads use it.

    Attributes:
        bytes: that the rows take, and what is kept beside them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: OrderedDict[int, ShardRows] = OrderedDict()
        self._counted: dict[int, int] = {}
        self._beside = 0
        self.bytes = 0

    def get(self, shard_id: int) -> ShardRows | None:
        """Return the rows of a shard; None if they are not kept."""
        with self._lock:
            found = self._rows.get(shard_id)
            if found is not None:
                self._rows.move_to_end(shard_id)
            return found

    def keep(self, shard_id: int, rows: ShardRows) -> ShardRows:
        """Keep the rows of a shard, and return them, or those that another thread kept before."""
        with self._lock:
            found = self._rows.setdefault(shard_id, rows)
            self._rows.move_to_end(shard_id)
            if found is rows:
                rows.when_grown = _counting(weakref.ref(self), shard_id, weakref.ref(rows))
                self._count(shard_id, rows)
            return found

    def all(self) -> list[ShardRows]:
        """Return the rows of all shards that are kept."""
        with self._lock:
            return list(self._rows.values())

    def fits(self, size: int) -> bool:
        """Tell whether rows that take so many bytes may all be kept, were there no others."""
        return size <= SHARDS_BYTES

    def make_room(self, size: int) -> None:
        """Count what is kept beside the rows, in bytes, and let go of rows in its place."""
        with self._lock:
            self.bytes += size - self._beside
            self._beside = size
            self._shrink()

    def count(self, shard_id: int, rows: ShardRows) -> None:
        """Count rows again, of which a mask or a copy was made; nothing if they left."""
        with self._lock:
            if self._rows.get(shard_id) is rows:
                self._count(shard_id, rows)

    def _count(self, shard_id: int, rows: ShardRows) -> None:
        size = rows.size
        self.bytes += size - self._counted.get(shard_id, 0)
        self._counted[shard_id] = size
        self._shrink()

    def _shrink(self) -> None:
        while self.bytes > SHARDS_BYTES and len(self._rows) > 1:
            shard_id, _ = self._rows.popitem(last=False)
            self.bytes -= self._counted.pop(shard_id)


def _counting(
    keeper: "weakref.ref[KeptShards]", shard_id: int, rows: "weakref.ref[ShardRows]"
) -> Callable[[], None]:
    """Return what counts rows again, and holds nothing: what is let go of leaves at once."""

    def count() -> None:
        kept, grown = keeper(), rows()
        if kept is not None and grown is not None:
            kept.count(shard_id, grown)

    return count
