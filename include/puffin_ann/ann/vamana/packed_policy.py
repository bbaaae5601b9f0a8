"""Which shards have packed nodes: wide ones, not too large, that are searched as well by them.

Queries per second of one thread at recall@10 of 0.90, 0.95 and 0.99, all beams over one graph:

| rows | packed nodes | full vectors | product-quantised codes |
|---|---|---|---|
| GloVe, 99,000 × 100 | 51,700, 35,200, 14,700 | 27,600, 17,000, 7,500 | 14,000, 9,300, 4,900 |
| glosses, 39,000 × 384 | 51,400, 40,000, 19,700 | 23,400, 16,000, 6,400 | 18,000, 14,500, 7,500 |
| glosses twice, 15,000 × 768 | 27,800, 19,800, 8,900 | 12,800, 8,600, 3,800 | 9,000, 7,300, 3,900 |
| GloVe, 40,000 × 64 | 53,600, 40,200, 21,600 | 49,500, 38,100, 21,700 | 15,000, 9,100, 4,700 |
| GloVe, 40,000 × 32 | 71,700, 47,800, 22,800 | 93,100, 66,600, 36,200 | 15,400, 10,700, 5,700 |
| normal, 20,000 × 16 | 89,500, 66,200, 37,600 | 175,900, 135,600, 90,700 | 17,300, 13,100, 7,500 |

With more rows memory counts for more: of GloVe, 99,000 × 64, packed nodes answer 62,500, 38,000 and
15,300, full vectors 44,600, 27,000 and 10,800, each over the graph that is built for it. But of
12,000 normal rows × 64 they take half as long again, of 2,600 twice as long, and such rows find
less at the same width: so they begin at 80 numbers.

The longer rows are, the better: so their length decides, not a race on each shard, by which another
run would choose otherwise. What is tried on each is whether estimates find the way: where rows lie
in clusters far narrower than the distances between those, a query's tables of bytes cannot tell
them apart.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.graph.searcher import EXHAUSTIVE_ROWS
from puffin_ann.ann.graph.space import padded_dim
from puffin_ann.ann.simd.fastscan import BLOCK
from puffin_ann.ann.vamana.packed import layout
from puffin_ann.ann.vamana.packed.layout import FRAME, NARROWEST, PACKED, Layout, PackedNodes
from puffin_ann.ann.vamana.search import Beam, Linked, LinkedInSpace, Searcher, choose_beam
from puffin_ann.settings import settings

CACHE_PARTS = 16
"""A shard's packed nodes may take one part of so many of the cache."""
TRIED_ROWS, TRIED_NEIGHBOURS, TRIED_WIDTH = 100, 10, 32
ENOUGH = 0.9
"""Share of neighbours, as near as those that full vectors find, that packed nodes must find: 0.93
to 1 wherever rows do not lie in such clusters, in which it is 0.2."""

log = logging.getLogger("puffin_ann")


def open_or_make(
    folder: Path,
    dim: int,
    degrees: NDArray[np.uint16],
    linked: Callable[[], LinkedInSpace],
    threads: int,
    *,
    forced: bool = False,
) -> PackedNodes | None:
    """Return the packed nodes of a shard's folder, made if they are not there; None without.

    There are none of rows of extreme length, or where the disk has no room for them; and, unless
    they are forced, none of narrow rows, of so few that all are compared anyway, where packed nodes
    would be larger than the settings allow, and where too little is found by them.

    Args:
        folder: of the shard. Files appear in it under their names only when they are whole.
        dim: numbers in a row of the space.
        degrees: `(n,) uint16`, of its graph.
        linked: returns the graph, if it is needed.
        threads: threads to use; the packed nodes do not depend on it.
        forced: whether packed nodes are wanted at any price.
    """
    needed = len(degrees) * Layout.of(dim, degrees).stride
    if not needed or not (forced or _is_worth_its_room(len(degrees), dim, needed)):
        return None
    try:
        return layout.open_packed(folder, dim, degrees)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        log.warning("%s: %s; made again", folder, error)
    try:
        if shutil.disk_usage(folder).free < 2 * needed:
            return None
        return _made(folder, linked(), threads, forced)
    except FileNotFoundError:  # the process ends, and what removes its temporary folders was first
        return None
    except OSError as error:
        log.warning("%s: searched without records: %s", folder, error)
        return None


def expected_bytes(rows: int, metric: str, dimension: int, max_degree: int) -> int:
    """Return the bytes of the packed nodes that a shard of such rows will have; 0 without any."""
    dim = padded_dim(metric, dimension)
    needed = rows * Layout(dim, -(-max_degree // BLOCK)).stride
    return needed if max_degree and _is_worth_its_room(rows, dim, needed) else 0


def reads_codes(beam: Beam, rows: int, metric: str, dimension: int, max_degree: int) -> bool:
    """Tell whether searches of a shard of such rows will read product-quantised codes.

    Left to choose, they do of long rows, more than are compared anyway, where there will be no
    packed nodes: see `choose_beam`.
    """
    if beam != "auto" or not max_degree or rows <= EXHAUSTIVE_ROWS:
        return beam == "pq"
    is_packed = expected_bytes(rows, metric, dimension, max_degree) > 0
    dim = padded_dim(metric, dimension)
    return choose_beam(beam, dim, codes=True, packed=is_packed) == "pq"


def _is_worth_its_room(rows: int, dim: int, needed: int) -> bool:
    most = min(settings().records_max_bytes, settings().cache_max_bytes // CACHE_PARTS)
    return rows > EXHAUSTIVE_ROWS and dim >= NARROWEST and needed <= most


def _made(folder: Path, linked: LinkedInSpace, threads: int, forced: bool) -> PackedNodes | None:
    with tempfile.TemporaryDirectory(prefix="records-", dir=folder) as work:
        made = layout.make(
            linked.vectors,
            linked.space,
            linked.neighbours,
            linked.degrees,
            threads=threads,
            folder=Path(work),
        )
        if made is not None and (forced or finds_enough(linked, made)):
            os.replace(Path(work, PACKED), folder / PACKED)
        else:
            made = None
            layout.refuse(Path(work))
        os.replace(Path(work, FRAME), folder / FRAME)
    return made


def finds_enough(linked: Linked, made: PackedNodes) -> bool:
    """Tell if packed nodes find nearly what full vectors do, asked for rows of the shard."""
    rows = np.linspace(0, len(linked.vectors) - 1, TRIED_ROWS).astype(np.int64)
    queries = np.ascontiguousarray(linked.vectors[rows])
    by_rows, by_records = (
        searcher.search(queries, TRIED_NEIGHBOURS, width=TRIED_WIDTH)[1]
        for searcher in (Searcher(linked, beam="full"), Searcher(linked, packed=made))
    )
    return float((by_records <= by_rows[:, -1:]).mean()) >= ENOUGH
