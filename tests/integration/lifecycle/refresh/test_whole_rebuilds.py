"""What no refresh can mend is built anew; a change that shapes nothing publishes nothing.

Each cause comes about on a real table, and the next run finds it; a cause that is left when the
table no longer changes is told, and left to the maintenance. That rows are far from all centroids
is shown with drift.
"""

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType

from puffin_ann import open_index
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.maintain.rename import rename
from puffin_ann.lifecycle.policy.decision import Rates
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import declared, maintained, newest, refresh

VAMANA = builds.PARAMETERS["vamana"]


def with_vectors(ids, vectors):
    """Rows with vectors of one's own."""
    data = builds.rows(ids)
    column = pa.array(np.asarray(vectors).tolist(), pa.list_(pa.float32()))
    return data.set_column(2, data.schema.field("embedding"), column)


def test_other_parameters(build):
    table = build(declared("vamana"))
    other = builds.declaration(algorithm="vamana", parameters={**VAMANA, "R": 12})
    done = refresh(table, other, "other parameters")
    assert (done["action"], "'R': 12" in done["reason"]) == ("build", True)
    assert IndexProperties(newest(table).routing.properties).fingerprint == other.fingerprint()


def test_what_shapes_no_byte_publishes_nothing(build):
    table = build(declared("vamana"))
    before = table.metadata_location
    for change in (
        {"recall_target": 0.99},
        {"gate": {"queries": 20}},
        {"retention": {"versions": 5}},
        {"refresh": {"min_rows": 7, "poll_interval": "3s"}},
        {"evaluate": {"queries": 50}},
    ):
        other = builds.declaration(**{"algorithm": "vamana", "parameters": VAMANA, **change})
        done = refresh_in_process(other, run_id="other", force=True)
        assert done["action"] == "none", change
    assert table.refresh().metadata_location == before


def test_another_type_of_the_column(build):
    table = build(declared("vamana"))
    with table.update_schema() as update:
        update.update_column("embedding.element", DoubleType())
    table.append(builds.rows(range(60, 64)))
    done = refresh(table, declared("vamana"), "doubles")
    assert (done["action"], "holds double now" in done["reason"]) == ("build", True)


def test_an_index_that_was_renamed_is_rebuilt_for_what_changed_all_the_same(build):
    table = build(declared("vamana"))
    renamed = declared("vamana", name="other_name")
    rename(builds.INDEX, renamed)
    with table.refresh().update_schema() as update:
        update.update_column("embedding.element", DoubleType())
    done = refresh_in_process(renamed, run_id="renamed")
    assert done["action"] == "build"
    assert "holds double now" in done["reason"]


def test_another_width_of_the_column(build):
    table = build(declared("vamana", metric="l2"))
    vectors = np.random.default_rng(1).normal(size=(40, 5)).astype(np.float32)
    table.overwrite(with_vectors(range(40), vectors))
    parameters = {**VAMANA, "pq_m": 5}
    wide = builds.declaration(algorithm="vamana", parameters=parameters, recall_target=0.5)
    done = refresh_in_process(wide, run_id="width")
    assert done["action"] == "build"
    assert newest(table.refresh()).routing.dimension == 5
    found = open_index(table, builds.INDEX).search(vectors, 1, columns=["id"])
    assert found.column("id").to_pylist() == list(range(40))


def test_norms_above_the_bound_of_an_inner_product(build):
    declaration = declared("vamana", metric="ip", refresh={"delta_ratio": 1.0})
    table = build(declaration)
    bound = newest(table).routing.norm_bound
    _, vectors = builds.live(table)
    longer = 3 * vectors[:2] / np.linalg.norm(vectors[:2], axis=1)[:, None] * bound
    table.append(with_vectors([60, 61], longer))
    assert refresh(table, declaration, "append")["action"] == "refresh"
    assert maintained(table, declaration, "above the bound")["action"] == "build"
    assert newest(table).routing.norm_bound >= 3 * bound


def test_a_shard_that_grew_beyond_the_others(build):
    declaration = declared("vamana", rebuild={"imbalance": 1.3, "drift": 1e9})
    table = build(declaration)
    version = newest(table)
    cells = version.cells(table.io)
    largest = max(version.routing.shards, key=lambda shard: shard.rows).shard_id
    (place, *_) = np.flatnonzero(cells.shards == largest)
    noise = np.random.default_rng(2).normal(0, 0.2, (70, builds.DIMENSION))
    table.append(with_vectors(range(100, 170), cells.centroids[place] + noise))
    done = refresh(table, declaration, "append")
    assert (done["action"], "merge" in done["reason"]) == ("refresh", True)
    assert maintained(table, declaration, "the largest shard holds")["action"] == "build"


def test_files_rewritten_with_other_rows_than_expected(build):
    declaration = declared("vamana")
    table = build(declaration)
    table.overwrite(builds.rows(range(100, 150)))
    done = refresh(table, declaration, "overwrite")
    assert (done["action"], "identify them" in done["reason"]) == ("refresh", True)
    assert all(shard.tombstones == shard.rows for shard in newest(table).routing.shards[:2])
    assert maintained(table, declaration, "none of the rows its shards were")["action"] == "build"


def test_a_refresh_dearer_than_building_by_the_rates_that_were_recorded(build, monkeypatch):
    monkeypatch.setattr("puffin_ann.lifecycle.build.stages._rates", lambda *_: Rates(insert=1.0))
    declaration = declared("vamana")
    table = build(declaration)
    table.append(builds.rows(range(60, 90)))
    done = refresh(table, declaration)
    assert (done["action"], "refreshing is expected to take 3" in done["reason"]) == ("build", True)
    assert {shard.kind for shard in newest(table).routing.shards} == {"graph"}


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_a_few_rows_like_the_others_are_no_cause(build, metric):
    declaration = declared("vamana", metric=metric)
    table = build(declaration)
    table.append(builds.rows(range(60, 62)))
    assert refresh(table, declaration)["action"] == "refresh"
