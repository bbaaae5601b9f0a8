"""Shards that a few queries are asked of together: one call of a kernel in place of several."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from puffin_ann.search.merge import Source
from puffin_ann.search.shards.snapshot_shard import SnapshotShard

if TYPE_CHECKING:
    from puffin_ann.ann.vamana.several import Several

FEW = 4
"""Queries, at most. More are asked of one shard after the other, whose nodes are then still in the
processor's caches; by several threads, too."""


@dataclass(frozen=True, eq=False)
class _Joined:
    """What was joined of shards, which are named by their places in the version.

    Attributes:
        known: shards that were looked at.
        places: by shard that is a graph of packed nodes, its place among those.
        several: those; None if there are none.
    """

    known: Mapping[int, SnapshotShard] = field(default_factory=dict)
    places: Mapping[int, int] = field(default_factory=dict)
    several: "Several | None" = None


class Together:
    """Asks shards together, as far as they are graphs of packed nodes; safe for several threads."""

    def __init__(self) -> None:
        self._joined = _Joined()

    def ask(
        self,
        shards: Mapping[int, SnapshotShard],
        queries: NDArray[np.float32],
        k: int,
        widths: NDArray[np.int64],
    ) -> dict[int, Source]:
        """Return answers of shards, as `SnapshotShard.search` gives them; not of all, or of none.

        Args:
            shards: to ask, by their places in the version.
            queries: (q, d) float32, contiguous.
            k: neighbours.
            widths: (shards of the version, q) int64, 0 for none.
        """
        joined = self._joined
        if not shards.keys() <= joined.known.keys():
            self._joined = joined = _join({**joined.known, **shards})
        asked = [number for number in shards if number in joined.places]
        if joined.several is None or len(asked) < 2:
            return {}
        wanted = np.zeros((len(joined.places), len(queries)), np.int64)
        for number in asked:
            wanted[joined.places[number]] = widths[number]
        found = joined.several.search(queries, k, wanted)
        if found is None:
            return {}
        sources = {}
        for number in asked:
            place, shard = joined.places[number], shards[number]
            ids, distances = found[0][place], found[1][place]
            sources[number] = Source(ids, distances, shard.keys, shard.entry.shard_id)
        return sources


def _join(shards: Mapping[int, SnapshotShard]) -> _Joined:
    numbers, searchers, masks = [], [], []
    for number, shard in shards.items():
        # Only engines of graphs have one, which others' searches would import in vain.
        searcher = getattr(shard.loaded.engine, "packed_searcher", None)
        if searcher is not None:
            numbers.append(number)
            searchers.append(searcher)
            masks.append(None if shard.deleted is None else shard.deleted.view(np.uint8))
    if not numbers:
        return _Joined(shards)
    from puffin_ann.ann.vamana.several import Several  # see above

    places = {number: place for place, number in enumerate(numbers)}
    return _Joined(shards, places, Several(searchers, masks))
