"""The size calculator against shards that were built, of every algorithm and form."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from puffin_ann.blobs.encoding.stored_vectors import Stored
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.declaration import AUTO, CENTROID, FORMS_OF
from puffin_ann.engines import engine
from puffin_ann.engines.sizes import LOCATOR_BYTES, predict
from tests.support.indexes.sized import shape_of
from tests.support.paths import SAMPLE

ROWS, DIMENSION = 6000, 100
STORED = [
    (algorithm, form)
    for algorithm, forms in FORMS_OF.items()
    for form in forms
    if algorithm not in (AUTO, CENTROID)
]


@pytest.fixture(scope="module")
def vectors():
    """Words."""
    column = pq.read_table(SAMPLE, columns=["embedding"]).slice(0, ROWS).column("embedding")
    found: np.ndarray = column.combine_chunks().flatten().to_numpy().reshape(ROWS, -1)
    return found.astype(np.float32)


@pytest.fixture(scope="module")
def built(vectors, tmp_path_factory):
    """By algorithm, what its engine built."""
    known = {}

    def of(algorithm):
        if algorithm not in known:
            made = engine(algorithm)
            known[algorithm] = made.build(
                vectors,
                metric="cosine",
                parameters=made.check({}, DIMENSION),
                norm_bound=0.0,
                seed=1,
                threads=2,
                scratch=tmp_path_factory.mktemp(algorithm),
            )
        return known[algorithm]

    return of


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "form"), STORED)
def test_a_shard_and_its_cache_are_predicted_within_a_tenth(algorithm, form, built, tmp_path):
    size = predict(shape_of(ROWS, DIMENSION, algorithm, form, shards=1))
    blob = io.BytesIO()
    length = engine(algorithm).encode(built(algorithm), blob, Stored(form))
    print(f"{size.shard:,} predicted, {length:,} written: {size.shard / length - 1:+.2%}")
    assert abs(size.shard - length) < 0.1 * length
    blob.seek(0)
    engine(algorithm).unpack(blob, tmp_path)
    unpacked = sum(path.stat().st_size for path in tmp_path.iterdir())
    cache = size.cache - LOCATOR_BYTES * ROWS
    print(f"{cache:,} predicted, {unpacked:,} unpacked: {cache / unpacked - 1:+.2%}")
    assert abs(cache - unpacked) < 0.1 * unpacked
    assert size.memory > 0


def test_rows_of_an_index_are_counted_once_where_packed_nodes_have_them():
    def cache(dimension, metric):
        return predict(shape_of(10**6, dimension, metric=metric, shards=1)).cache

    # Below 80 numbers a row there are no packed nodes: unit vectors lie beside the stored ones.
    assert cache(64, "cosine") - cache(64, "l2") == 4 * 64 * 10**6
    assert cache(128, "cosine") == cache(128, "l2")


def test_inner_products_of_hnsw_are_taken_of_rows_as_they_are():
    plain, product = (
        predict(shape_of(10**6, 64, "hnsw", metric=metric, shards=1)).cache
        for metric in ("l2", "ip")
    )
    assert plain == product


def test_too_few_rows_for_lists_are_stored_as_they_are():
    few, more = (predict(shape_of(rows, 100, "ivf_pq", "none", shards=1)) for rows in (255, 256))
    assert few.shard > 4 * 100 * 255
    assert few.shard > more.shard


@pytest.mark.parametrize("cells", [2, 32])
def test_a_rows_blob_is_predicted_within_a_third(cells):
    rng = np.random.default_rng(0)
    cell = rng.integers(0, cells, ROWS)
    order = np.argsort(cell, kind="stable")
    located = rows_blob.Rows(
        np.zeros(ROWS, np.uint32),
        (order // 5000).astype(np.uint32),
        (order % 5000).astype(np.uint32),
        cells=CellStarts.of(cell[order].astype(np.uint32)),
    )
    length = rows_blob.write(located, io.BytesIO())
    size = predict(shape_of(ROWS, DIMENSION, shards=1, partitions_per_shard=cells))
    assert abs(size.rows - length) < length / 3


def test_an_identities_blob_is_predicted_within_a_tenth():
    length = identities_blob.write(np.zeros((ROWS, 2), np.uint64), io.BytesIO())
    assert abs(predict(shape_of(ROWS, DIMENSION, shards=1)).identities - length) < 0.1 * length


@pytest.mark.parametrize("cells", [2, 32])
def test_a_columns_blob_is_predicted_within_a_tenth(cells):
    rng = np.random.default_rng(0)
    order = np.argsort(rng.integers(0, cells, ROWS), kind="stable")
    locators = np.array([np.zeros(ROWS, int), order // 5000, order % 5000]).astype(np.uint32)
    price = rng.integers(0, 1 << 31, ROWS, np.int32)  # numbers that do not compress
    kept = [
        (columns_blob.Values(np.ones(len(part), np.bool_), part.tobytes()), columns_blob.Bounds(0))
        for part in np.split(price, range(columns_blob.BLOCK_ROWS, ROWS, columns_blob.BLOCK_ROWS))
    ]
    column = columns_blob.IncludedColumn(field_id=3, type="int", bits=32, blocks=kept)
    values = columns_blob.ShardColumns(locators, (column,))
    length = columns_blob.write(values, io.BytesIO())
    shape = shape_of(ROWS, DIMENSION, shards=1, partitions_per_shard=cells, included=4)
    size = predict(shape)
    print(f"{size.columns:,} predicted, {length:,} written: {size.columns / length - 1:+.2%}")
    assert abs(size.columns - length) < 0.1 * length
    without = predict(shape_of(ROWS, DIMENSION, shards=1, partitions_per_shard=cells))
    assert without.columns == 0
    assert 0 <= size.file - without.file - size.columns < 1000  # and its place in the footer


@pytest.mark.parametrize(("dimension", "most"), [(384, 0.12 * 4 * 384), (768, 240)])
def test_an_index_without_vectors_is_as_small_as_it_is_said(dimension, most):
    size = predict(shape_of(10**6, dimension, "ivf_pq", "none"))
    assert size.row < most
    size = predict(shape_of(10**9, dimension, "ivf_pq", "none"))
    assert size.file / 10**9 < most


def test_small_blobs_are_predicted_with_the_files_and_manifests_they_name():
    one, many = (predict(shape_of(10**6, 100, files=files)).coverage for files in (1, 1000))
    assert many > 100 * one
