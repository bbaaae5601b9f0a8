"""As much of an index as the choice of a search looks at."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from puffin_ann.blobs.version.partitions import Partitions


def index_in_cells(algorithm: str = "vamana", *, cells: int = 8, shards: int = 4) -> Any:
    """Cells on a line, each shard a run of them; the first is at its begin."""
    places = np.arange(cells, dtype=np.float32)[:, None]
    found = Partitions(
        metric="l2", dimension=1, centroids=places,
        shards=(np.arange(cells) * shards // max(1, cells)).astype(np.uint32),
        rows=np.full(cells, 50, np.uint64), radii=np.ones(cells, np.float32),
    )  # fmt: skip
    routing = SimpleNamespace(
        algorithm=algorithm, cells=found, metric="l2", shards=[object()] * shards
    )
    version = SimpleNamespace(routing=routing, cells=lambda _: found)
    return SimpleNamespace(version=version, table=SimpleNamespace(io=None))
