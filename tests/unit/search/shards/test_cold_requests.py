"""Requests of a first answer that are foretold, against those that were counted on S3."""

import pytest

from puffin_ann.engines.sizes import predict
from puffin_ann.search.shards.cold.requests import expected_requests
from tests.support.indexes.sized import shape_of

MILLION = 10**6
COUNTED = {
    "words, four shards": (
        shape_of(MILLION, 100, "ivf_pq", shards=4, files=8, row_groups=2),
        11,
        22,
    ),
    "words, lists alone": (
        shape_of(MILLION, 100, "ivf_pq", "none", shards=1, files=8, row_groups=2),
        24,
        56,
    ),
    "the million of benchmarks/cold.py": (
        shape_of(MILLION, 128, metric="l2", shards=4, partitions_per_shard=256, files=8),
        8,
        22,
    ),
    "its glosses": (
        shape_of(116_659, 384, metric="l2", shards=4, partitions_per_shard=256, files=8),
        62,
        43,
    ),
}
"""Index, cells or lists that a query read, and the requests it took on average."""


@pytest.mark.parametrize("name", COUNTED)
def test_requests_are_foretold_within_a_tenth(name):
    shape, cells, counted = COUNTED[name]
    assert abs(expected_requests(shape, predict(shape), cells) - counted) <= 0.1 * counted


@pytest.mark.parametrize("form", ["float32", "float16", "int8", "none"])
def test_whoever_reads_more_cells_asks_more_often(form):
    shape = shape_of(MILLION, 100, "ivf_pq", form, partitions_per_shard=256)
    few, many = (expected_requests(shape, predict(shape), cells) for cells in (2, 16))
    assert 2 < few < many


def test_rounded_vectors_are_looked_up_in_the_table():
    shapes = (
        shape_of(MILLION, 100, vectors=form, files=8, row_groups=9)
        for form in ("float32", "float16")
    )
    plain, rounded = (expected_requests(shape, predict(shape), 4) for shape in shapes)
    assert rounded > plain + 8


def test_without_shards_or_rows_only_the_file_is_found():
    for shape in (shape_of(MILLION, 100, "centroid"), shape_of(0, 100)):
        assert expected_requests(shape, predict(shape), 8) <= 3
