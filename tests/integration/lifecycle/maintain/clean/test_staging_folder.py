"""The folder of staging, leases and evaluations: hidden from Spark, found again, survived."""

import shutil
from pathlib import Path

import pytest

from puffin_ann.errors import StagingGoneError
from puffin_ann.lake.store.leases import Lease
from puffin_ann.lake.store.listing import list_objects
from puffin_ann.lake.store.locations import staging_folder
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.evaluate import stages as evaluation_stages
from puffin_ann.lifecycle.evaluate.records import evaluations
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.runs import build, publish
from puffin_ann.lifecycle.runs.evaluate import plan_evaluation
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.moments import now_ms
from tests.support.lake import table_events
from tests.support.lifecycle import builds


def measure(declaration, run_id: str) -> None:
    planned = plan_evaluation(declaration, run_id=run_id, queries=10)
    evaluation_stages.evaluate(InProcess(), planned)


def stored(table) -> set[str]:
    """Names of all objects below the folder."""
    root = staging_folder(table)
    return {file.uri[len(root) + 1 :] for file in list_objects(table.io, root, recursive=True)}


def put(table, name: str) -> str:
    uri = f"{table.location()}/{name}"
    with table.io.new_output(uri).create() as out:
        out.write(b"stray")
    return uri


@pytest.fixture
def remove_orphans(spark):
    """Iceberg's own action, for everything older than now, which the SQL procedure refuses."""

    def remove(lake, prefix_listing: bool) -> set[str]:
        jvm = spark.sparkContext._jvm
        loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            spark._jsparkSession, lake.named()
        )
        action = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
        action = action.deleteOrphanFiles(loaded).olderThan(now_ms() + 10_000)
        result = action.usePrefixListing(prefix_listing).execute()
        return {str(location) for location in result.orphanFileLocations()}

    return remove


LISTINGS = (
    pytest.param("embedded_lake", False, "", id="disk-hadoop"),
    pytest.param("embedded_lake", False, "own", id="disk-hadoop-own-metadata-path"),
    pytest.param("rest_lake", True, "", id="s3-prefix"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("where", "prefix_listing", "metadata_path"), LISTINGS)
def test_spark_removes_a_stray_file_and_nothing_of_staging_leases_and_evaluations(
    request, remove_orphans, where, prefix_listing, metadata_path
):
    lake = request.getfixturevalue(where)
    table = lake.create(builds.rows(range(60)))
    if metadata_path:
        declared = f"{table.location()}/{metadata_path}"
        table.transaction().set_properties({"write.metadata.path": declared}).commit_transaction()
    declaration = builds.declaration(table=lake.named())
    builds.build(declaration, "first")
    measure(declaration, "measured")
    plan = build.plan_build(declaration, run_id="second", overrides={"force": True})
    builds.run_stages(plan)
    leases.begin(lake.named(), builds.INDEX, "second", "build")
    table = lake.load()
    before = stored(table)
    strays = {put(table, "metadata/stray.bin"), put(table, "data/stray.bin")}

    removed = remove_orphans(lake, prefix_listing)

    assert {uri.rpartition("/")[2] for uri in removed} == {"stray.bin"}
    assert len(removed) == len(strays)
    assert stored(lake.load()) == before
    assert {name.split("/")[-1].split("-")[0] for name in before} >= {"_lease", "_evaluation"}
    assert plan.plan.startswith(staging_folder(table) + "/")
    publish.publish(RunRef.planned(plan))


@pytest.mark.slow
def test_a_run_whose_staging_a_cleaner_of_everything_took_fails_and_plans_anew(
    embedded_lake, remove_orphans
):
    """By prefix, Iceberg hides nothing in a location that is spelt `file:///`, as this one is."""
    lake = embedded_lake
    lake.create(builds.rows(range(60)))
    declaration = builds.declaration(table=lake.named())
    plan = build.plan_build(declaration, run_id="run")
    stages.train(InProcess(), RunRef.planned(plan))
    assert len(remove_orphans(lake, prefix_listing=True)) > 3
    with pytest.raises(StagingGoneError, match=r"orphan files.*--force"):
        stages.assign(InProcess(), RunRef.planned(plan))
    builds.build(declaration, "run")
    table_events.assert_alive(lake.load())


def test_staging_lies_where_the_table_says_that_its_metadata_belongs(words):
    elsewhere = f"{words.location()}-metadata"
    words.transaction().set_properties({"write.metadata.path": elsewhere}).commit_transaction()
    plan = build.plan_build(builds.declaration(), run_id="run")
    assert plan.plan == f"{elsewhere}/_ann-staging/{builds.INDEX}/run/plan.json"
    builds.run_stages(plan)
    publish.publish(RunRef.planned(plan))
    table_events.assert_alive(words)

    killed = build.plan_build(builds.declaration(), run_id="killed", overrides={"force": True})
    gone = clean(words.refresh(), at_ms=now_ms() + 25 * table_events.HOUR_MS).gone

    assert killed.plan.rpartition("/")[0] in [leftover.location for leftover in gone]
    assert not Path(killed.plan.removeprefix("file://")).exists()


def as_before(table) -> None:
    """Give the folder the name that it had."""
    folder = Path(staging_folder(table).removeprefix("file://"))
    folder.rename(folder.with_name("ann-staging"))


def test_a_run_that_was_planned_under_the_former_name_goes_on(words):
    plan = build.plan_build(builds.declaration(), run_id="run")
    as_before(words)
    former = plan.plan.replace("_ann-staging", "ann-staging")
    plan = plan.model_copy(update={"plan": former})
    builds.run_stages(plan)
    publish.publish(RunRef.planned(plan))
    publish.report(plan)
    table_events.assert_alive(words)


def test_what_lies_under_the_former_name_is_read_and_cleared_away(words):
    builds.build(builds.declaration(), "first")
    measure(builds.declaration(), "measured")
    killed = build.plan_build(builds.declaration(), run_id="killed", overrides={"force": True})
    index_lease = leases.index_lease(words, builds.INDEX)
    index_lease.acquire("killed", "build", 60)
    as_before(words.refresh())
    measure(builds.declaration(), "measured-since")

    found = evaluations(words, builds.INDEX)
    report = clean(words.refresh(), at_ms=now_ms() + 25 * table_events.HOUR_MS)

    assert [evaluation.run_id for evaluation in found] == ["measured", "measured-since"]
    told = [entry.record.run_id for entry in history(words, builds.INDEX).entries]
    assert told == ["measured-since", "measured", "first"]
    cleared = {leftover.location.rpartition("/ann-staging/")[2] for leftover in report.gone}
    assert f"{builds.INDEX}/killed" in cleared
    assert f"{builds.INDEX}/_lease-00000001" in cleared
    assert killed.run_id == "killed"
    assert evaluations(words, builds.INDEX) == found
    assert not report.failed


def test_a_run_goes_on_and_publishes_though_its_lease_and_the_evaluations_vanished(words):
    """What any cleaner may do that lists the whole location: neither is needed to be right."""
    builds.build(builds.declaration(), "first")
    measure(builds.declaration(), "measured")
    plan = build.plan_build(builds.declaration(), run_id="second", overrides={"force": True})
    with leases.writing(plan.table, builds.INDEX, "second", "build"):
        builds.run_stages(plan)
        folder = leases.index_folder(words, builds.INDEX)
        for file in list_objects(words.io, folder):
            words.io.delete(file.uri)
        other = Lease(words.io, folder, "the index").acquire("other", "build", 1)
        publish.publish(RunRef.planned(plan))
    assert other.number == 1
    table_events.assert_alive(words)
    assert evaluations(words, builds.INDEX) == []
    told = [entry.record.run_id for entry in history(words, builds.INDEX).entries]
    assert told == ["second", "first"]
    assert Staging(words.io, folder).exists("_lease-00000001")
    shutil.rmtree(folder.removeprefix("file://"))
    builds.build(builds.declaration(), "third", {"force": True})
    table_events.assert_alive(words)
