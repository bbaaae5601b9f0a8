"""Indexes whose shards have rounded vectors, or none: what they read of the table, and refuse."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.declaration import RefreshOptions
from puffin_ann.errors import BadVectorsError, BlobFormatError, ColumnNotFoundError
from puffin_ann.lake.read.data.column_chunks import KEPT
from puffin_ann.lifecycle.refresh.remake_cells import remake_cells
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.version.versions import require_versions
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(5).normal(size=(4, builds.DIMENSION)).astype(np.float32)
FORMS = ["none", "int8", "float16"]


@pytest.fixture(autouse=True)
def few_rows_have_lists(monkeypatch):
    """Else shards of so few rows keep their vectors."""
    monkeypatch.setattr("puffin_ann.ann.ivf.lists.LEAST_ROWS", 4)


def declared(form, **changes):
    return builds.declaration(algorithm="ivf_pq", vectors=form, recall_target=0.5, **changes)


def report(found):
    return json.loads(found.schema.metadata[b"puffin_ann"])


def read_of_table(table):
    """What the newest version's run read, in bytes of vectors."""
    newest = require_versions(table, builds.INDEX)[0]
    return int(newest.routing.properties["vector-bytes-read"])


@pytest.mark.parametrize("form", FORMS)
def test_answers_are_read_from_the_table_once_and_told(words, form):
    builds.build(declared(form), "run")
    index = open_index(words.refresh(), builds.INDEX)
    assert index.version.routing.vectors == form
    KEPT.clear()
    assert report(index.search(QUERIES, 5))["bytes_of_table"] > 0
    assert report(index.search(QUERIES, 5))["bytes_of_table"] == 0
    builds.assert_answers_are(index, builds.live(words), QUERIES, 12)
    builds.assert_within(index, builds.live(words), QUERIES)


@pytest.mark.parametrize(
    ("algorithm", "form"),
    [("exact", "int8"), ("exact", "float16"), *(("ivf_pq", f) for f in FORMS)],
)
def test_a_shard_that_gets_no_row_is_no_trouble(words, form, algorithm):
    """Two rows that are longer by far lie alone in their cells."""
    numbers = np.random.default_rng(1).normal(size=(400, builds.DIMENSION)).astype(np.float32)
    numbers[::200] *= 1e4
    column = pa.array(list(numbers), words.schema().as_arrow().field("embedding").type)
    rows = builds.rows(range(400))
    words.overwrite(rows.set_column(rows.schema.get_field_index("embedding"), "embedding", column))
    shape = {"shards": 5, "partitions_per_shard": 8, "metric": "ip", "recall_target": 0.5}
    builds.build(builds.declaration(algorithm=algorithm, vectors=form, **shape), "run")
    index = open_index(words.refresh(), builds.INDEX)
    assert any(not shard.rows for shard in index.version.routing.shards)
    builds.assert_answers_are(index, builds.live(words), QUERIES, 12)


def test_rounded_rows_that_are_no_answers_are_not_read(words):
    builds.build(declared("float16"), "run")
    KEPT.clear()
    index = open_index(words.refresh(), builds.INDEX)
    assert report(index.within(QUERIES, -1.0))["bytes_of_table"] == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_column_is_read_by_its_new_name_and_missed_where_it_was_dropped(words, form):
    builds.build(declared(form), "run")
    words.refresh()
    with words.update_schema() as update:
        update.rename_column("embedding", "vector")
    KEPT.clear()
    rows = builds.rows(range(3)).column("embedding").to_pylist()
    found = open_index(words.refresh(), builds.INDEX).search(rows, 1, columns=["id"])
    assert found.column("id").to_pylist() == [0, 1, 2]
    with words.update_schema() as update:
        update.delete_column("vector")
    words.refresh().append(builds.rows([70]).select(["id", "word"]))
    with pytest.raises(ColumnNotFoundError, match=r"column 'embedding'.*is not in the schema"):
        open_index(words.refresh(), builds.INDEX)


@pytest.mark.parametrize("form", FORMS)
def test_a_merge_reads_the_rows_that_came_and_a_rebuild_those_of_its_shard(words, form):
    first = len(builds.live(words)[0])
    options = RefreshOptions(min_rows=0, max_lag="0s", delta_ratio=0.0)
    plan = declared(form, rebuild={"tombstone_ratio": 0.05}).model_copy(update={"refresh": options})
    builds.build(plan, "run")
    more = range(first, first + 6)
    words.refresh().append(builds.rows(more))
    refresh_in_process(plan, run_id="merge", maintenance=True)
    assert read_of_table(words.refresh()) == 4 * builds.DIMENSION * len(more)
    builds.assert_answers_are(
        open_index(words, builds.INDEX), builds.live(words), QUERIES, first + 9
    )
    words.delete("id < 6")
    refresh_in_process(plan, run_id="rebuild", maintenance=True)
    assert read_of_table(words.refresh()) > 4 * builds.DIMENSION * len(more)
    builds.assert_answers_are(
        open_index(words, builds.INDEX), builds.live(words), QUERIES, first + 9
    )


@pytest.mark.parametrize("form", FORMS)
def test_cells_are_made_again_without_the_table(words, form, monkeypatch):
    builds.build(declared(form, metric="cosine"), "run")
    version = require_versions(words.refresh(), builds.INDEX)[0]
    was = version.cells(words.io)
    KEPT.clear()
    monkeypatch.setattr("puffin_ann.lake.read.data.row_vectors.RowVectorReader.read", None)
    made = remake_cells(words.io, version)
    np.testing.assert_array_equal(made.rows, was.rows)
    np.testing.assert_array_equal(made.shards, was.shards)
    assert np.isinf(made.radii[made.rows > 0]).all()


def test_halves_that_cannot_hold_a_number_fail_the_build_by_name(words):
    far = builds.rows([900])
    vector = [7e4, *[0.0] * (builds.DIMENSION - 1)]
    column = pa.array([vector], far.schema.field("embedding").type)
    words.append(far.set_column(2, far.schema.field("embedding"), column))
    with pytest.raises(BadVectorsError, match="vectors: float16"):
        builds.build(declared("float16"), "run")


def test_readers_of_other_forms_are_told_an_algorithm_that_they_do_not_know(words):
    builds.build(declared("none"), "run")
    routing = require_versions(words.refresh(), builds.INDEX)[0].routing
    data = routing_blob.encode(routing)
    assert b"ivf_pq with vectors none" in data
    assert routing_blob.decode(data).algorithm == "ivf_pq"
    later = routing_blob.encode(dataclasses.replace(routing, vectors="int4"))
    with pytest.raises(BlobFormatError, match="vectors of form 'int4' are not known"):
        routing_blob.decode(later)
