"""What has to be approved: what it would cost, and refreshes that do without it."""

import pytest

from puffin_ann import open_index
from puffin_ann.lifecycle.runs.expect_build import expect_build, expect_due
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import declared, refresh, shards

ASKS = {"build": {"approve_above": {"rows": 50}}}
ABOVE = "above build.approve_above.rows 50"


@pytest.fixture
def drifted(monkeypatch):
    """Every version that holds a row counts as drifted, so that a build is due."""
    monkeypatch.setattr("puffin_ann.lifecycle.policy.decide.why_drifted", lambda *_: "it drifted")


def test_a_first_build_is_asked_about_by_its_rows(words, folder):
    expected = expect_build(declared("vamana", **ASKS))
    assert (expected.cost.rows, expected.cost.bytes) == (60, 0)
    assert expected.asks == f"60 rows, {ABOVE}"
    assert expected.reason == "no version of the index is published"
    assert expect_due(declared("vamana", **ASKS)).asks == expected.asks
    assert expect_build(declared("vamana")).asks == ""


def test_nobody_is_asked_where_nothing_is_built(build, folder):
    build(declared("vamana", **ASKS))
    idle = expect_build(declared("vamana", **ASKS))
    assert (idle.cost, idle.asks) == (None, "")
    forced = expect_build(declared("vamana", **ASKS), overrides={"force": True})
    assert forced.asks == f"60 rows, {ABOVE}"
    assert forced.cost.bytes > 60 * builds.DIMENSION * 4


def test_rows_are_found_and_deleted_ones_are_not_while_a_build_waits(build, drifted):
    table = build(declared("vamana", **ASKS))
    table.append(builds.rows(range(60, 90)))
    table.delete("id < 7")
    assert expect_due(declared("vamana", **ASKS)).asks == f"83 rows, {ABOVE}"
    done = refresh(table, declared("vamana", **ASKS), "without", postpones=True)
    assert (done["action"], done["rows_added"], done["rows_gone"]) == ("refresh", 30, 7)
    found = open_index(table, builds.INDEX)
    assert (found.view.rows_to_scan, found.view.rows_masked) == (0, 0)
    assert refresh(table, declared("vamana", **ASKS), "then")["action"] == "none"
    table.append(builds.rows([90]))
    assert refresh(table, declared("vamana", **ASKS), "approved")["action"] == "build"


def test_a_merge_that_has_to_be_approved_is_left_and_its_rows_are_found_in_a_delta(build, folder):
    asks = {"build": {"approve_above": {"rows": 20}}, "refresh": {"min_rows": 1}}
    table = build(declared("exact", **asks))
    table.append(builds.rows(range(60, 85)))
    expected = expect_due(declared("exact", **asks), force=True)
    assert expected.asks == "25 rows, above build.approve_above.rows 20"
    assert "refresh.delta_ratio" in expected.reason
    before = set(shards(table))
    done = refresh(table, declared("exact", **asks), "without", postpones=True)
    assert (done["action"], done["rows_added"]) == ("refresh", 25)
    assert before < set(shards(table))  # which stay, and a delta is beside them
    asked = expect_build(declared("exact", **asks), overrides={"force": True})
    assert asked.cost.rows == 85
    assert "refresh.delta_ratio" in asked.reason
    table.append(builds.rows([85]))
    done = refresh(table, declared("exact", **asks), "approved")
    assert {shard.kind for shard in shards(table).values()} == {"graph"}, done["reason"]
