"""The file-level tier: which of 10,000 data files a query has to look into."""

import time
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.results import Result, Row
from puffin_ann.ann.clustering.bounds import Bounds

FILES = 10_000
DIMENSION = 768
QUERIES = 200
WANTED = 10


def measure(rounds: int) -> Result:
    """Probe random centroids: the time depends on their number and width, not on their values."""
    rng = np.random.default_rng(0)
    centroids = rng.standard_normal((FILES, DIMENSION), dtype=np.float32)
    radii = np.full(FILES, 10.0, dtype=np.float32)
    queries = rng.standard_normal((QUERIES, DIMENSION), dtype=np.float32)
    owners = np.arange(FILES)
    rows = []
    for metric in ("l2", "ip"):
        bounds = Bounds(metric, centroids, radii, owners, FILES)
        bounds.nearest(queries[0], WANTED)  # compiles
        timed: list[float] = []
        plain: list[float] = []
        for _ in range(rounds):
            for query in queries:
                began = time.perf_counter()
                bounds.nearest(query, WANTED)
                between = time.perf_counter()
                _plain(metric, centroids, radii, query)
                timed.append(between - began)
                plain.append(time.perf_counter() - between)
        rows.append(
            Row(
                key=f"centroids-{metric}",
                what=f"{FILES:,} files' centroids × {DIMENSION} probed by one query, `{metric}`",
                ours=f"{1e3 * median(timed):.2f} ms",
                theirs=f"{1e3 * median(plain):.2f} ms in NumPy",
                measured=1e3 * median(timed),
                least=1.0,
                aim=1.0,
                below=True,
                unit="ms",
                note=f"95th percentile {1e3 * float(np.quantile(timed, 0.95)):.2f} ms; "
                f"{bounds.resident_bytes / 2**20:.0f} MiB resident",
            )
        )
    return Result(family="centroids", rows=rows)


def _plain(
    metric: str,
    centroids: NDArray[np.float32],
    radii: NDArray[np.float32],
    query: NDArray[np.float32],
) -> NDArray[np.intp]:
    """Bound by one matrix product over float32 centroids, whose norms are not even counted."""
    products = centroids @ query
    if metric == "ip":
        bounds = -products - np.linalg.norm(query) * radii
    else:
        bounds = (query @ query) - 2.0 * products - radii
    return np.argpartition(bounds, WANTED)[:WANTED]
