"""When a build has something to do, and for which rows and parameters."""

from puffin_ann.lifecycle.report.status import status
from tests.support.lifecycle import builds


def test_a_second_build_of_the_same_rows_publishes_nothing(words):
    builds.build(builds.declaration(), "first")
    before = builds.snapshot_ids(words)
    plan = builds.build(builds.declaration(recall_target=0.9), "second")
    assert plan.action == "none"
    assert builds.snapshot_ids(words) == before
    forced = builds.build(builds.declaration(), "third", {"force": True})
    assert forced.action == "build"
    assert len(builds.snapshot_ids(words)) == len(before) + 1


def test_changed_parameters_or_rows_are_built_again(words):
    builds.build(builds.declaration(), "first")
    assert builds.build(builds.declaration(shards=3), "second").action == "build"
    words.refresh().append(builds.rows(range(60, 70)))
    assert builds.build(builds.declaration(shards=3), "third").action == "build"
    (found,) = status(words.refresh())
    assert (found.shards, found.vectors, found.coverage) == (3, 70, 1.0)


def test_overrides_count_for_one_run(words):
    builds.build(builds.declaration(), "first", {"shards": 4, "partitions_per_shard": 1})
    (found,) = status(words.refresh())
    assert (found.shards, found.partitions) == (4, 4)


def test_a_run_published_and_cleared_away_is_not_mistaken_for_a_new_one(words):
    builds.build(builds.declaration(), "run")
    words.refresh().append(builds.rows(range(60, 70)))
    plan = builds.build(builds.declaration(), "run")
    assert plan.run_id == "run-2"
    assert status(words.refresh())[0].vectors == 70
