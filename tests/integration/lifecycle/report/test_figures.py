"""An index in figures: as events, metrics and lineage tell of it."""

import pytest

from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.report.figures import figures_of
from puffin_ann.lifecycle.report.status import status
from tests.support.lifecycle import builds

INDEX = builds.declaration()


@pytest.fixture
def built(words):
    builds.build(INDEX, "build-1")
    return words.refresh()


def test_an_index_that_was_just_built_covers_all_of_its_table(built):
    found = figures_of(INDEX.table, INDEX.name)
    (shown,) = status(built, INDEX.name)
    assert (found.index, found.table, found.run_id) == (INDEX.name, INDEX.table, "build-1")
    assert own_tags(built).keys() == {found.snapshot_id}
    assert found.base_snapshot_id == built.current_snapshot().snapshot_id
    assert (found.coverage, found.lag_seconds, found.tombstone_ratio) == (1.0, 0.0, 0.0)
    assert (found.rows, found.bytes) == (shown.vectors, shown.bytes)
    assert (found.recall, found.recall_target) == (shown.recall, INDEX.recall_target)
    assert found.seconds == pytest.approx(sum(shown.seconds.values()))


def test_rows_added_since_lower_the_coverage_and_age(built):
    rows = figures_of(built, INDEX.name).rows
    built.append(builds.rows(range(100, 100 + rows)))
    at_ms = built.refresh().current_snapshot().timestamp_ms
    found = figures_of(built, INDEX.name, at_ms=at_ms + 5_000)
    assert (found.coverage, found.lag_seconds, found.rows) == (0.5, 5.0, rows)


def test_of_an_index_that_is_not_built_there_are_none(words):
    with pytest.raises(IndexNotFoundError):
        figures_of(INDEX.table, INDEX.name)
