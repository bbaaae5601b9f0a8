"""Turning the wire form into the searched form is done by whole arrays, never row by row."""

import io
import sys
from pathlib import Path

from puffin_ann.blobs.shards import graph
from tests.support.indexes.blob_samples import sample_graph, written


def calls_of_unpacking(rows: int, folder: Path) -> int:
    """Return how many functions are called to unpack a graph of so many rows."""
    data = written(graph.write, sample_graph(rows, d=20, r=16, m=5))
    folder.mkdir()
    count = 0

    def called(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        graph.unpack(io.BytesIO(data), folder)
    finally:
        sys.setprofile(None)
    return count


def test_unpacking_a_graph_calls_no_function_per_row(tmp_path):
    calls_of_unpacking(50, tmp_path / "compiled")
    few = calls_of_unpacking(500, tmp_path / "few")
    many = calls_of_unpacking(20_000, tmp_path / "many")
    assert many - few < 19_500 / 10, "blocks of rows may have calls of their own, rows may not"
