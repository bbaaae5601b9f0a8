"""What a version records of how fast its runs were, and how well its centroids fit what came."""

import numpy as np
import pyarrow as pa

from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.policy.decision import Rates
from puffin_ann.lifecycle.report.plan import preview
from puffin_ann.lifecycle.versions.index_state import state_of
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import (
    declared,
    delete_merge_on_read,
    maintained,
    newest,
    refresh,
)


def noted(table) -> IndexProperties:
    return IndexProperties(newest(table).routing.properties)


def test_rates_are_those_of_runs_of_many_rows_and_later_plans_go_by_them(build, words):
    declaration = declared("vamana", refresh={"delta_ratio": 0.05})
    words.append(builds.rows(range(60, 1200)))
    table = build(declaration)
    built = noted(table).rates
    assert built.build != Rates().build
    assert built.insert == Rates().insert, "nothing was inserted yet"
    table.append(builds.rows(range(1200, 1203)))
    refresh(table, declaration, "few")
    assert noted(table).rates.insert == built.insert, "a few rows say nothing"
    table.append(builds.rows(range(1300, 2400)))
    expected = preview(table, declaration).decision
    refresh(table, declaration, "many")
    found = noted(table).rates
    assert found.insert != built.insert
    assert state_of(table, newest(table)).rates == found
    assert expected.seconds > 1100 / built.insert


def test_drift_is_recorded(build):
    declaration = declared("vamana", refresh={"delta_ratio": 1.0})
    table = build(declaration)
    assert noted(table).drift.built > 0
    table.append(builds.rows(range(60, 66)))
    refresh(table, declaration)
    drift = noted(table).drift
    assert drift.added > 0
    assert drift.largest_norm > 0


def test_rows_far_from_all_centroids_that_were_merged_at_once_are_seen(build):
    declaration = declared("vamana", refresh={"delta_ratio": 0.05})
    table = build(declaration)
    before = noted(table).drift
    far = builds.rows(range(60, 72))
    vectors = 10 * np.array(far.column("embedding").to_pylist())
    column = far.schema.field("embedding")
    table.append(far.set_column(2, column, pa.array(vectors.tolist(), column.type)))
    assert "merge" in refresh(table, declaration, "append")["reason"]
    drift = noted(table).drift
    assert drift.merged == 12
    assert drift.added > 4 * before.built
    done = maintained(table, declaration, "times as far from their centroids")
    assert done["action"] == "build"


def test_rows_that_leave_and_come_keep_what_was_merged_apart_from_deltas(build):
    declaration = declared("vamana", refresh={"delta_ratio": 0.05})
    table = build(declaration)
    table.append(builds.rows(range(60, 72)))
    refresh(table, declaration, "append")
    merged = noted(table).drift
    delete_merge_on_read(table, 2)
    refresh(table, declaration, "delete")
    assert noted(table).drift == merged
    table.append(builds.rows(range(80, 82)))
    refresh(table, declaration, "append-2")
    drift = noted(table).drift
    assert (drift.merged, drift.added > 0) == (0, True)
