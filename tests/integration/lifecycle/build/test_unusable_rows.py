"""Rows without a vector, or with one that no index takes: skipped, counted, or refused."""

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.errors import (
    BadVectorsError,
    QueryError,
)
from puffin_ann.lifecycle.report.status import status
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(5).normal(size=(6, builds.DIMENSION)).astype(np.float32)


def bad_rows(schema) -> pa.Table:
    width = builds.DIMENSION
    vectors = [
        None,
        [float("nan")] * width,
        [float("inf")] + [0.0] * (width - 1),
        [1.0] * (width + 1),
        [],
        [1e19] + [0.0] * (width - 1),
    ]
    data = {"id": range(900, 906), "word": ["bad"] * 6, "embedding": vectors}
    return pa.table(data, schema=schema)


def test_unusable_vectors_are_skipped_counted_and_never_answered(words):
    words.append(bad_rows(builds.rows([]).schema))
    builds.build(builds.declaration(), "run")
    words.refresh()
    (found,) = status(words)
    assert found.skipped == {"null": 1, "wrong-length": 2, "not-finite": 2, "too-long": 1}
    assert found.vectors == 60
    index = open_index(words, builds.INDEX)
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 60)
    with pytest.raises(QueryError, match="only 60 rows"):
        index.search(QUERIES, 61)


def test_a_first_row_of_another_width_is_the_one_that_is_left_out(catalog):
    good = builds.rows(range(60))
    short = pa.table({"id": [900], "word": ["short"], "embedding": [[1.0] * 3]}, schema=good.schema)
    table = catalog.create_table("demo.words", schema=good.schema)
    table.append(short)
    table.append(pa.concat_tables([short, good]))
    builds.build(builds.declaration(), "run")
    (found,) = status(table.refresh())
    assert (found.vectors, found.skipped) == (60, {"wrong-length": 2})


def test_unusable_vectors_are_refused_where_the_declaration_says_so(words):
    words.append(bad_rows(builds.rows([]).schema))
    before = builds.snapshot_ids(words)
    counts = "2 not-finite, 1 null, 1 too-long, 2 wrong-length"
    with pytest.raises(BadVectorsError, match=rf"{counts}.*dimension 8 expected"):
        builds.build(builds.declaration(bad_vectors="refuse"), "run")
    assert builds.snapshot_ids(words) == before


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq", "exact"])
def test_fewer_usable_vectors_than_shards_are_indexed_and_found(catalog, algorithm):
    table = catalog.create_table("demo.holey", schema=builds.rows([0]).schema)
    table.append(builds.rows(range(2)))
    unusable = builds.rows(range(2, 8))
    nothing = pa.array([None] * 6, unusable.schema.field("embedding").type)
    table.append(unusable.set_column(2, "embedding", nothing))
    shape = {"shards": 4, "partitions_per_shard": 2, "algorithm": algorithm}
    builds.build(builds.declaration(table="test.demo.holey", **shape), "run")
    index = open_index("test.demo.holey", builds.INDEX)
    _, vectors = builds.live(table)
    builds.assert_answers(index, table, table.refresh().current_snapshot().snapshot_id, vectors, 2)


def test_rows_that_turn_out_to_hold_no_vector_are_missed_as_deleted_ones_are(words):
    builds.build(builds.declaration(), "run")
    words.refresh()
    more = builds.rows(range(1000, 1003))
    place = more.schema.get_field_index("embedding")
    none = pa.nulls(3, more.schema.field(place).type)
    words.append(more.set_column(place, more.schema.field(place), none))
    index = open_index(words, builds.INDEX)
    assert index.view.rows_to_scan == 3
    for exhaustive in (False, True):
        assert len(index.search(QUERIES, 60, exhaustive=exhaustive)) == 6 * 60
        fewer = index.search(QUERIES, 62, exhaustive=exhaustive, allow_fewer=True)
        assert len(fewer) == 6 * 60
        with pytest.raises(QueryError, match=r"only 60 rows hold usable vectors.* most 60"):
            index.search(QUERIES, 62, exhaustive=exhaustive)
