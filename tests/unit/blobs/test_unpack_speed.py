"""Turning the wire form into the searched form is fast enough not to be what a probe waits for."""

import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from puffin_ann.blobs import graph
from tests.support.blob_samples import written


def test_unpacking_a_graph_takes_little_more_than_writing_its_bytes(tmp_path, record_property):
    n, d, r, m = 30_000, 100, 64, 25
    rng = np.random.default_rng(1)
    value = graph.Graph(
        metric="l2",
        max_degree=r,
        build_width=100,
        alpha=1.2,
        entry=0,
        codebook=rng.standard_normal((m, 256, d // m)).astype(np.float32),
        codes=rng.integers(0, 256, (n, m)).astype(np.uint8),
        degrees=np.full(n, r, np.uint16),
        neighbours=(np.sort(rng.integers(0, n - r, (n, r))) + np.arange(r)).astype(np.uint32),
        vectors=rng.standard_normal((n, d)).astype(np.float32),
        dimension=d,
    )
    data = written(graph.write, value)

    def unpack(folder: Path) -> None:
        graph.unpack(io.BytesIO(data), folder)

    def copy(folder: Path) -> None:
        (folder / "copy").write_bytes(data)

    def seconds(work: Callable[[Path], None]) -> float:
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            start = time.perf_counter()
            work(Path(folder))
            return time.perf_counter() - start

    both = [(seconds(unpack), seconds(copy)) for _ in range(6)]
    unpacked, copied = (min(column) for column in zip(*both, strict=True))
    record_property("unpack_to_copy", round(unpacked / copied, 1))
    assert unpacked < 15 * copied
