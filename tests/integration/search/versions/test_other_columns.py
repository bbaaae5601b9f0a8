"""An index answers by the column that was indexed, only where that has the name it was declared by.

Where that name went to another column, or the column is gone, searches are refused until a refresh
builds the index of what is called so; snapshots that had the column are searched as ever.
"""

import random
from contextlib import suppress

import numpy as np
import pytest
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.types import FloatType, ListType, LongType

from puffin_ann import open_index
from puffin_ann.errors import IndexedColumnError, TooFewRowsError
from puffin_ann.lake.catalog.tables import schema_of_snapshot
from puffin_ann.lifecycle.report.overview import overview
from puffin_ann.lifecycle.report.staleness import staleness
from puffin_ann.lifecycle.report.status import as_text, status
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.evaluate import plan_evaluation
from puffin_ann.search.row_by_key import vector_of_row
from puffin_ann.search.version.versions import require_versions
from tests.support.lifecycle import builds, refreshes
from tests.support.params import long_but_first

QUERIES = np.random.default_rng(3).normal(size=(2, builds.DIMENSION)).astype(np.float32)
EXPLAINED = {"explain": True}
VECTORS = ListType(900, FloatType(), element_required=False)


def rows(ids):
    """Rows with another vector beside `embedding`, as `other`."""
    return builds.rows(ids).append_column("other", builds.rows(ids, seed=7)["embedding"])


@pytest.fixture
def two(catalog):
    """A table of two vector columns, with an index of `embedding` and a snapshot tagged `then`."""
    table = catalog.create_table("demo.words", rows([]).schema)
    table.append(rows(range(40)))
    refreshes.refresh(table, refreshes.declared(), "first")
    table.append(rows(range(40, 44)))
    then = table.refresh().current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(snapshot_id=then, tag_name="then").commit()
    table.manage_snapshots().create_branch(snapshot_id=then, branch_name="side").commit()
    return table.refresh()


def rename(table, *pairs):
    for before, after in pairs:
        with table.refresh().update_schema() as update:
            update.rename_column(before, after)
    return table.refresh()


def drop(table, name):
    with table.refresh().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(name)
    return table.refresh()


def add(table, name, kind=VECTORS):
    with table.refresh().update_schema() as update:
        update.add_column(name, kind)
    return table.refresh()


def swap(table):
    return rename(table, ("embedding", "old"), ("other", "embedding"))


def exchange(table):
    return rename(table, ("embedding", "x"), ("other", "embedding"), ("x", "other"))


def dropped(table):
    return drop(table, "embedding")


def dropped_and_added(table):
    return add(drop(table, "embedding"), "embedding")


def dropped_and_added_as_number(table):
    return add(drop(table, "embedding"), "embedding", LongType())


def moved_aside(table):
    return add(rename(table, ("embedding", "vector")), "embedding", LongType())


CHANGES = {
    swap: r"called 'old', and 'embedding' is another column \(field id \d\); 'puffin-ann refresh",
    exchange: r"called 'other', and 'embedding' is another column .*column: other in its decl",
    dropped: r"which is not in the schema; declare another column for it and refresh it, or drop",
    dropped_and_added: r"not in the schema, and 'embedding' is another column .*'puffin-ann refre",
    dropped_and_added_as_number: r"is another column \(field id \d\); declare another column for",
    moved_aside: r"called 'vector', and 'embedding' is another .*; with column: vector in its decl",
}


@pytest.fixture(params=CHANGES, ids=lambda change: change.__name__)
def changed(request, two):
    return request.param(two), CHANGES[request.param]


def read(table, at, schema, columns):
    """Rows of a snapshot by a schema, as PyIceberg reads them: ids, and vectors there are."""
    tasks = table.scan(snapshot_id=at).plan_files()
    wanted = schema.select("id", *columns)
    data = ArrowScan(
        table.metadata, table.io, wanted, table.scan().row_filter, case_sensitive=True
    ).to_table(tasks)
    found = [
        (row["id"], row[columns[0]]) for row in data.to_pylist() if row[columns[0]] is not None
    ]
    ids = np.array([number for number, _ in found], np.int64)
    vectors = np.array([vector for _, vector in found], np.float32)
    return ids, vectors.reshape(-1, builds.DIMENSION)


def test_a_search_of_a_table_whose_name_means_another_column_is_refused(changed):
    table, says = changed
    for named in ({}, {"ref": "side"}, {"stale_policy": "fail"}):
        with pytest.raises(IndexedColumnError, match=says) as refused:
            open_index(table, builds.INDEX, **named)
        assert "built of column 'embedding' (field id 3)" in str(refused.value)
    with pytest.raises(IndexedColumnError, match="embedding"):
        plan_evaluation(refreshes.declared(), run_id="measure")


def test_snapshots_that_had_the_column_are_searched_as_ever(changed):
    table, _ = changed
    then = table.refs()["then"].snapshot_id
    table.append(table.scan(limit=1).to_arrow())  # the snapshot is not the current one any more
    for named in ({"ref": "then"}, {"snapshot_id": then}):
        index = open_index(table.refresh(), builds.INDEX, **named)
        known = builds.live(table, then)
        assert len(known[0]) == 44
        builds.assert_answers_are(index, known, QUERIES, 50)
        builds.assert_within(index, known, QUERIES, (0.2,))
        row = vector_of_row(index, "word", "w41")
        np.testing.assert_array_equal(row.vector, builds.rows([41])["embedding"][0].as_py())


def test_what_watches_an_index_says_that_its_column_is_another_one(changed):
    table, _ = changed
    (found,) = status(table, builds.INDEX)
    assert found.coverage < 1.0  # else it says nothing of the column
    assert "built of column 'embedding' (field id 3)" in found.other_column
    assert "does not answer for the table as it is" in as_text([found])
    told = [one for one in doctor(table, [refreshes.declared()]).findings if one.kind == "column"]
    assert [one.indexes for one in told] == [(builds.INDEX,)]
    assert told[0].is_problem
    assert told[0].what.endswith(f": it {found.other_column.partition(f'; {told[0].remedy}')[0]}")
    shown = [(one.kind, one.is_problem) for one in overview(refreshes.declared()).findings]
    assert ("column", True) in shown
    lazy = refreshes.declared(refresh={"min_coverage": 0.1, "max_lag": "7d"})
    stale = staleness(lazy)
    assert stale.is_stale
    assert "built of column 'embedding'" in stale.reason


@pytest.mark.parametrize("change", [swap, exchange])
def test_a_refresh_builds_of_what_has_the_name_and_answers_are_of_that(two, change):
    then = two.refs()["then"].snapshot_id
    before = builds.live(two, then)
    table = change(two)
    done = refreshes.refresh_in_process(refreshes.declared(), run_id="again")
    assert done["action"] == "build"
    assert "is not the one that was indexed" in done["reason"]
    current = table.refresh().schema()
    for named in ({}, {"ref": "side"}):
        index = open_index(table, builds.INDEX, **named)
        builds.assert_answers_are(index, read(table, then, current, ["embedding"]), QUERIES, 50)
    assert status(table, builds.INDEX)[0].other_column is None
    assert not [one for one in doctor(table, [refreshes.declared()]).findings if one.is_problem]
    assert not staleness(refreshes.declared()).is_stale
    # The snapshot before the change has the other column by the name: an older version is of that.
    table.append(table.scan(limit=1).to_arrow())
    index = open_index(table.refresh(), builds.INDEX, ref="then")
    builds.assert_answers_are(index, before, QUERIES, 50)
    assert index.version.run_id == "first"
    told = index.search(QUERIES, 1, columns=["embedding"], **EXPLAINED)
    assert b"newer versions are of a column" in told.schema.metadata[b"puffin_ann"]


def test_names_that_are_changed_back_bring_the_former_version_back(two):
    table = exchange(two)
    refreshes.refresh_in_process(refreshes.declared(), run_id="again")
    table = exchange(table)
    head = table.current_snapshot().snapshot_id
    index = open_index(table, builds.INDEX)
    assert index.version.run_id == "first"
    builds.assert_answers(index, table, head, QUERIES, 50)
    assert status(table, builds.INDEX)[0].other_column is None
    assert "column" not in {one.kind for one in doctor(table, [refreshes.declared()]).findings}
    done = refreshes.refresh_in_process(refreshes.declared(), run_id="third", force=True)
    assert done["action"] == "refresh"
    builds.assert_answers(open_index(table.refresh(), builds.INDEX), table, head, QUERIES, 50)


def test_a_column_that_was_only_renamed_is_searched_under_its_new_name(two):
    then = two.refs()["then"].snapshot_id
    before = builds.live(two, then)
    table = rename(two, ("embedding", "vector"))
    for named in ({}, {"ref": "side"}, {"ref": "then"}):
        index = open_index(table, builds.INDEX, **named)
        builds.assert_answers_are(index, before, QUERIES, 50)
        assert index.column.name == "vector"
    table.append(table.scan(limit=3).to_arrow())
    assert open_index(table.refresh(), builds.INDEX, ref="then").column.name == "embedding"
    assert status(table, builds.INDEX)[0].other_column is None
    assert "column" not in {one.kind for one in doctor(table, [refreshes.declared()]).findings}


def test_an_index_that_was_declared_of_another_column_never_answers_by_its_former_one(two):
    then = two.refs()["then"].snapshot_id
    others = read(two, then, two.schema(), ["other"])
    refreshes.refresh_in_process(refreshes.declared(column="other"), run_id="again")
    first = require_versions(two.refresh(), builds.INDEX)[1]
    old = first.coverage.base_snapshot_id
    two.manage_snapshots().set_current_snapshot(snapshot_id=old).commit()
    for named in ({"ref": "then"}, {}):
        index = open_index(two.refresh(), builds.INDEX, **named)
        some = [number in builds.live(two, index.view.snapshot_id)[0] for number in others[0]]
        builds.assert_answers_are(index, (others[0][some], others[1][some]), QUERIES, 50)
    table = drop(two, "other")
    with pytest.raises(IndexedColumnError, match=r"built of column 'other'.*not in the schema"):
        open_index(table, builds.INDEX)


def test_of_a_snapshot_without_rows_nothing_is_answered_whatever_its_columns_are(two):
    two.delete("id >= 0")
    table = swap(two)
    index = open_index(table, builds.INDEX)
    assert len(index.search(QUERIES, 3, allow_fewer=True)) == len(index.within(QUERIES, 1e9)) == 0
    assert status(table, builds.INDEX)[0].other_column is None


def test_an_index_of_which_no_declaration_is_recorded_is_known_by_its_field_id_alone(
    two, monkeypatch
):
    monkeypatch.setattr("puffin_ann.blobs.version.routing.DECLARATION", "none")
    table = swap(two)
    then = table.refs()["then"].snapshot_id
    builds.assert_answers_are(
        open_index(table, builds.INDEX), read(table, then, table.schema(), ["old"]), QUERIES, 50
    )
    with pytest.raises(IndexedColumnError, match=r"built of a column \(field id 3\), which is not"):
        open_index(drop(table, "old"), builds.INDEX)


class History:
    """Random changes of names and rows; every snapshot, tag and branch is held to the oracle."""

    def __init__(self, table, seed):
        self.table, self.random = table, random.Random(seed)
        self.next_id, self.runs, self.answered, self.refused = 44, 0, 0, 0

    def step(self):
        steps = (self.append, self.append, self.rename, self.replace, self.refresh, self.name)
        self.random.choice((*steps, self.roll_back))()
        self.table.refresh()

    def vectors(self):
        fields = self.table.schema().fields
        return [field.name for field in fields if isinstance(field.field_type, ListType)]

    def append(self):
        ids = range(self.next_id, self.next_id + 5)
        self.next_id += 5
        new = builds.rows(ids).select(["id", "word"])
        for name in self.vectors():
            new = new.append_column(name, builds.rows(ids, self.random.randrange(99))["embedding"])
        self.table.append(new.cast(self.table.schema().as_arrow()))

    def rename(self):
        """The name goes to the other column, or to none, or comes back."""
        names = self.vectors()
        self.random.shuffle(names)
        if len(names) == 2 and self.random.random() < 0.7:
            rename(self.table, (names[0], "x"), (names[1], names[0]), ("x", names[1]))
        elif "embedding" not in names:
            rename(self.table, (names[0], "embedding"))
        else:
            rename(self.table, ("embedding", f"e{self.random.randrange(10**6)}"))

    def replace(self):
        """A vector column is dropped, and one added under its name that holds nothing yet."""
        name = self.random.choice(self.vectors())
        add(drop(self.table, name), name)

    def refresh(self):
        if "embedding" in self.vectors():
            self.runs += 1
            with suppress(TooFewRowsError):  # a column may hold nothing yet
                refreshes.refresh_in_process(
                    refreshes.declared(),
                    run_id=f"run-{self.runs}",
                    force=self.random.random() < 0.5,
                )

    def name(self):
        chosen = self.random.choice(self.table.snapshots()).snapshot_id
        manage = self.table.manage_snapshots()
        make = self.random.choice([manage.create_tag, manage.create_branch])
        make(chosen, f"ref{self.random.randrange(10**9)}").commit()

    def roll_back(self):
        chosen = self.random.choice(self.table.snapshots()).snapshot_id
        self.table.manage_snapshots().set_current_snapshot(snapshot_id=chosen).commit()

    def check(self):
        for snapshot in self.table.snapshots():
            self._check(snapshot.snapshot_id, by_branch=False, snapshot_id=snapshot.snapshot_id)
        for name, ref in self.table.refs().items():
            self._check(
                ref.snapshot_id, by_branch=ref.snapshot_ref_type.value == "branch", ref=name
            )

    def _check(self, at, *, by_branch, **named):
        schema = schema_of_snapshot(self.table, at, by_branch=by_branch)
        versions = require_versions(self.table, builds.INDEX)
        meant = next((f.field_id for f in schema.fields if f.name == "embedding"), None)
        try:
            index = open_index(self.table, builds.INDEX, **named)
        except IndexedColumnError:
            self.refused += 1
            possible = {version.field_id for version in versions}
            assert meant not in possible, "it could have been answered"
            if meant is None:
                assert not any(map(schema.find_column_name, possible))
            return
        if not index.view.live_rows:
            return
        self.answered += 1
        assert meant in (None, index.version.field_id)
        called = schema.find_column_name(index.version.field_id)
        builds.assert_answers_are(index, read(self.table, at, schema, [called]), QUERIES, 4)


@pytest.mark.parametrize("seed", long_but_first([1, 2, 3]))
def test_random_histories_of_names_never_answer_by_another_column(two, seed):
    history = History(two, seed)
    for _ in range(14):
        history.step()
        history.check()
    assert history.answered > 20
    assert history.refused > 0
