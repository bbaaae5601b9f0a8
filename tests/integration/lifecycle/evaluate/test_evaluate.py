"""Recall measured after publication, on the table as it is then."""

import pytest

from puffin_ann.errors import IndexNotFoundError, RecallTooLowError, StagingError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.evaluate import records
from puffin_ann.lifecycle.evaluate.records import Evaluation, evaluations, recall_report
from puffin_ann.lifecycle.evaluate.stages import evaluate as measure
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs import evaluate
from puffin_ann.lifecycle.runs.evaluate import plan_evaluation
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.runners import InProcess
from tests.support.lifecycle import builds

DECLARED = builds.declaration(evaluate={"queries": 20})
TABLE = DECLARED.table


def evaluated(run_id: str, **options) -> Evaluation:
    planned = plan_evaluation(DECLARED, run_id=run_id, **options)
    return measure(InProcess(), planned)


@pytest.fixture
def built(words):
    builds.build(DECLARED, "build-1")
    return words


def test_what_is_exact_is_measured_as_exact_and_recorded(built):
    found = evaluated("evaluate-1")
    assert (found.recall, found.coverage, found.queries, found.rows) == (1.0, 1.0, 20, 60)
    assert found.version_run_id == "build-1"
    assert found.snapshot_id == load_table(TABLE).current_snapshot().snapshot_id
    assert evaluations(load_table(TABLE), builds.INDEX) == [found]


def test_rows_that_came_since_are_compared_and_scanned(built):
    built.append(builds.rows(range(100, 140)))
    found = evaluated("evaluate-1")
    assert (found.recall, found.rows) == (1.0, 100)
    assert found.coverage == pytest.approx(0.6)


def test_rows_equal_to_a_query_count_neither_way(built):
    for _ in range(2):  # every row three times; the copies are told apart by their files
        built.append(builds.rows(range(60)))
    assert evaluated("evaluate-1").recall == 1.0


@pytest.mark.parametrize(
    ("changed", "renamed"), [({"metric": "ip"}, False), ({"column": "other"}, False), ({}, True)]
)
def test_what_is_published_is_measured_whatever_was_declared_since(
    catalog, caplog, changed, renamed
):
    rows = builds.rows(range(60))
    rows = rows.append_column("other", builds.rows(range(60), seed=7)["embedding"])
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    builds.build(DECLARED, "build-1")
    if renamed:  # and the declaration has the former name
        with table.refresh().update_schema() as update:
            update.rename_column("embedding", "vector")
    declared = builds.declaration(evaluate={"queries": 20}, **changed)
    found = measure(InProcess(), plan_evaluation(declared, run_id="evaluate-1"))
    assert (found.recall, found.queries) == (1.0, 20)
    assert "measured as it is published, by l2 of column" in caplog.text


def test_an_index_that_misses_rows_is_found_out(built, monkeypatch):
    """The rows of one partition are never looked at, as if the index had lost them."""
    from puffin_ann.search.index import Index

    search = Index.search

    def narrow(self, *args, **options):
        return search(self, *args, **{**options, "probe_partitions": 1})

    monkeypatch.setattr(Index, "search", narrow)
    found = evaluated("evaluate-1")
    assert 0 < found.recall < DECLARED.recall_target
    with pytest.raises(RecallTooLowError, match=r"recall@5 is .*--force"):
        recall_report(evaluate.finish(plan_evaluation(DECLARED, run_id="evaluate-1")))


def test_the_snapshot_is_pinned_when_it_is_planned(built):
    planned = plan_evaluation(DECLARED, run_id="evaluate-1")
    built.append(builds.rows(range(100, 140)))
    found = measure(InProcess(), planned)
    assert (found.rows, found.recall) == (60, 1.0)


def test_a_retry_measures_and_records_nothing_twice(built):
    first = evaluated("evaluate-1")
    assert evaluated("evaluate-1") == first
    assert len(evaluations(load_table(TABLE), builds.INDEX)) == 1


def test_every_run_takes_other_rows(built):
    planned = [plan_evaluation(DECLARED, run_id=f"evaluate-{n}") for n in range(2)]
    seeds = {builds_plan(pointer).declaration.seed for pointer in planned}
    assert len(seeds) == 2


def builds_plan(planned):
    from puffin_ann.lifecycle.runtime.workspace import Workspace

    return Workspace.open(planned).build_plan


def test_judging_clears_what_was_staged_and_can_be_repeated(built, tmp_path):
    planned = plan_evaluation(DECLARED, run_id="evaluate-1")
    measure(InProcess(), planned)
    for _ in range(2):
        assert "recall@5 is 1.0000" in recall_report(evaluate.finish(planned))
    left = [path.name for path in tmp_path.rglob("_ann-staging/**/*") if path.is_file()]
    assert [name for name in left if not name.startswith(("_evaluation-", "_lease-"))] == []


def test_nothing_measured_is_said_so(built):
    planned = plan_evaluation(DECLARED, run_id="evaluate-1")
    with pytest.raises(StagingError, match="measured nothing"):
        evaluate.finish(planned)


def test_what_is_not_built_cannot_be_measured(words):
    with pytest.raises(IndexNotFoundError, match="no readable version"):
        plan_evaluation(DECLARED, run_id="evaluate-1")


def test_only_the_newest_measurements_are_kept(built, monkeypatch):
    monkeypatch.setattr(records, "KEPT", 3)
    found = evaluated("evaluate-0")
    table = load_table(TABLE)
    for number in range(1, 6):
        later = {"run_id": f"evaluate-{number}", "at_ms": found.at_ms + number}
        records.record(table, found.model_copy(update=later))
    runs = [evaluation.run_id for evaluation in evaluations(table, builds.INDEX)]
    assert runs == ["evaluate-3", "evaluate-4", "evaluate-5"]


def test_what_cannot_be_read_hides_nothing_else(built, tmp_path):
    evaluated("evaluate-1")
    (record,) = tmp_path.rglob("_evaluation-*")
    record.with_name("_evaluation-0000000000001-00000000.json").write_text("{half")
    assert [evaluation.run_id for evaluation in evaluations(load_table(TABLE), builds.INDEX)] == [
        "evaluate-1"
    ]


def test_clean_up_keeps_what_belongs_to_an_index_until_it_is_dropped(built, tmp_path):
    evaluated("evaluate-1")
    evaluate.clear_staging(plan_evaluation(DECLARED, run_id="evaluate-1"))
    with leases.writing(TABLE, builds.INDEX, "run-1", "build"):
        pass
    for _ in range(2):
        clean(TABLE, [DECLARED], at_ms=10**15)
    assert len(evaluations(load_table(TABLE), builds.INDEX)) == 1
    assert leases.index_lease(load_table(TABLE), builds.INDEX).look() is not None
    drop(TABLE, builds.INDEX)
    clean(TABLE, [], at_ms=10**15)
    clean(TABLE, [], at_ms=10**15)
    left = [path for path in tmp_path.rglob("_ann-staging/**/*") if path.is_file()]
    assert left == []


def test_the_message_says_what_was_measured_and_what_to_do():
    low = Evaluation.model_construct(
        index="words", k=10, recall=0.5, low=0.4, high=0.6, queries=200, snapshot_id=1,
        search_width=64, probe_partitions=4, coverage=1.0, target=0.95,
    )  # fmt: skip
    with pytest.raises(RecallTooLowError, match=r"0\.5000.*0\.4000 to 0\.6000.*200 queries.*0\.95"):
        recall_report(low)
    none = low.model_copy(update={"queries": 0, "recall": 1.0})
    assert "no recall was measured" in recall_report(none)


def test_where_no_row_can_be_a_query_no_recall_is_told(catalog):
    rows = builds.rows([1] * 120)  # each has more equals than a query may have
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    builds.build(DECLARED, "build-1")
    evaluated("evaluate-1")
    assert {entry.record.recall for entry in history(table.refresh(), builds.INDEX).entries} == {
        None
    }
    (found,) = status(table)
    assert found.recall is None
