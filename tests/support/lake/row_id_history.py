"""Random histories of tables with row ids, of writers that break their rules, and of imports."""

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from puffin_ann.declaration import RefreshOptions
from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.files.live_files import live_files
from puffin_ann.lake.read.identity.row_lineage import row_lineage
from puffin_ann.lifecycle.refresh.read_changes import known_rows, rewritten_files
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.open_index import open_version
from puffin_ann.search.version.snapshot_view import live_state
from puffin_ann.search.version.versions import require_versions
from puffin_ann.settings import settings as library_settings
from tests.support import words
from tests.support.lake.lineage import LineageTable
from tests.support.lake.row_changes import with_column
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(11).normal(size=(2, builds.DIMENSION)).astype(np.float32)

PICKS = st.lists(st.integers(0, 10**6), min_size=1, max_size=8)
PICK = st.integers(0, 10**6)


def change(name, *arguments):
    return st.tuples(st.just(name), st.tuples(*arguments))


UPDATE = change("update", PICKS, PICKS, st.booleans(), st.integers(0, 2))
COMPACTION = change("compact", PICKS, st.integers(0, 3))
CHANGES = st.one_of(
    UPDATE,
    COMPACTION,
    change("append", st.integers(1, 12)),
    change("append_equals", st.lists(st.integers(0, 40), min_size=1, max_size=8)),
    UPDATE,
    COMPACTION,
    change("delete_copy_on_write", PICKS, PICKS),
    change("delete_merge_on_read", PICKS),
    change("compact_without_row_ids", PICKS),
    change("compact_with_an_id_twice", PICKS, PICK, PICK),
    change("roll_back", PICK),
    change("lose_a_removed_file", PICK),
    change("import_files", PICKS, st.booleans()),
    change("import_files", PICKS, st.booleans()),
    change("overwrite_by_foreign_files", PICKS, st.booleans()),
    change("update_merge_on_read", PICKS, st.integers(0, 2)),
    change("update_words_merge_on_read", PICKS),
    change("update_words_merge_on_read", PICKS),
)
"""What befalls a table; what matters most is there more than once."""

DONE: Counter[str] = Counter()
"""How many rows were known by their row ids, and how many refreshes there were."""


class RowIdHistory(RuleBasedStateMachine):
    """Rows are added, moved with their row ids and without, changed, deleted and brought back.

    After each refresh every row is answered with its own vector and its own values.
    """

    @initialize(
        algorithm=st.sampled_from(["exact", "vamana"]),
        key=st.sampled_from([None, "id"]),
        include=st.sampled_from([(), ("word",), ("id", "word")]),
        files_a_bucket=st.sampled_from([15, 4_000_000]),
        row_group_rows=st.sampled_from([3, 7, 100]),
    )
    def start(self, algorithm, key, include, files_a_bucket, row_group_rows):
        self.patch = pytest.MonkeyPatch()
        self.folder = tempfile.TemporaryDirectory(prefix="row-ids-")
        where = Path(self.folder.name)
        self.patch.setenv("PYICEBERG_CATALOG__TEST__TYPE", "sql")
        self.patch.setenv("PYICEBERG_CATALOG__TEST__URI", f"sqlite:///{where}/catalog.db")
        self.patch.setenv("PYICEBERG_CATALOG__TEST__WAREHOUSE", f"file://{where}/warehouse")
        self.patch.setenv("PUFFIN_ANN_CACHE_DIR", str(where / "cache"))
        self.patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        self.patch.setattr(rewritten_files, "has_row_ids", lambda _: True)
        self.patch.setattr(rewritten_files, "FILE_BYTES", 0)
        self.patch.setattr(rewritten_files, "ROWS_PER_BUCKET", files_a_bucket)
        count_known(self.patch)
        library_settings.cache_clear()
        catalog = load_catalog("test")
        catalog.create_namespace("demo")
        table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
        self.rows = LineageTable(table, row_group_rows)
        self.declared = builds.declaration(
            algorithm=algorithm,
            parameters=builds.PARAMETERS.get(algorithm, {}),
            recall_target=0.5,
            key=key,
            include=include,
            bad_vectors="skip",
            rebuild={"drift": 1e9, "imbalance": 1e9, "tombstone_ratio": 0.5},
            refresh=RefreshOptions(min_rows=0, max_lag="0s", delta_ratio=0.5).model_dump(),
        )
        self.next_id, self.runs = 0, 0
        self.append(20)
        self.append(10)
        builds.build(self.declared, "build")
        table.refresh()

    @property
    def table(self):
        return self.rows.table

    def append(self, count):
        self.rows.append(builds.rows(range(self.next_id, self.next_id + count)))
        self.next_id += count

    def append_equals(self, again):
        """Rows with vectors that others have, and one that cannot be indexed."""
        vectors = [*builds.rows(again).column("embedding").to_pylist(), None]
        data = builds.rows(range(self.next_id, self.next_id + len(vectors)))
        self.rows.append(with_column(data, "embedding", vectors))
        self.next_id += len(data)

    def compact(self, picks, seed):
        files = self.some(picks)
        if files:
            self.rows.compact(files, shuffled(self.rows.rows_of(files), seed))

    def compact_with_an_id_twice(self, picks, pick, other):
        """As no engine should: two rows say that they are the same one."""
        files = self.some(picks)
        data = self.rows.rows_of(files) if files else builds.rows([])
        if len(data):
            ids = data.column("id").to_pylist()
            self.rows.lineage[ids[other % len(ids)]] = self.rows.lineage[ids[pick % len(ids)]]
            self.rows.compact(files, data)
            # Were one of the two deleted before that is seen, the other would pass for it.
            self.refresh()

    def compact_without_row_ids(self, picks):
        files = self.some(picks)
        if files:
            self.rows.compact_without_lineage(files, self.rows.rows_of(files))

    def update(self, picks, changes, vectors, seed):
        """Copy-on-write: some rows of files get another word, or another vector, too."""
        files = self.some(picks)
        data = self.rows.rows_of(files) if files else builds.rows([])
        if not len(data):
            return
        ids = data.column("id").to_pylist()
        changed = {ids[pick % len(ids)] for pick in changes}
        words = [
            f"{word}+" if i in changed else word
            for i, word in zip(ids, data.column("word").to_pylist(), strict=True)
        ]
        data = with_column(data, "word", words)
        if vectors:
            others = builds.rows(ids, seed=1 + seed).column("embedding").to_pylist()
            mine = data.column("embedding").to_pylist()
            new = [
                other if i in changed else own
                for i, own, other in zip(ids, mine, others, strict=True)
            ]
            data = with_column(data, "embedding", new)
        self.rows.update(files, data, sorted(changed))

    def delete_copy_on_write(self, picks, gone):
        files = self.some(picks)
        data = self.rows.rows_of(files) if files else builds.rows([])
        if not len(data):
            return
        ids = data.column("id").to_pylist()
        without = {ids[pick % len(ids)] for pick in gone}
        self.rows.update(files, data.filter(pa.array([i not in without for i in ids])))

    def delete_merge_on_read(self, picks):
        """Rows are deleted by position; return those."""
        files = self.rows.files()
        deletes: dict[str, set[int]] = {}
        for pick in picks if files else []:
            file = files[pick % len(files)]
            deletes.setdefault(file.file_path, set()).add(pick // 7 % file.record_count)
        before = self.table.scan().to_arrow()
        if not deletes:
            return before.slice(0, 0)
        delete_positions(self.table, {path: sorted(at) for path, at in deletes.items()})
        left = set(self.table.scan().to_arrow().column("id").to_pylist())
        self.rows.commit_deletes([i for i in self.rows.lineage if i not in left])
        return before.filter(pa.array([i not in left for i in before.column("id").to_pylist()]))

    def update_merge_on_read(self, picks, seed):
        """Rows are deleted by position, and written again with other vectors and their row ids."""
        was = dict(self.rows.lineage)
        data = self.delete_merge_on_read(picks)
        if len(data):
            ids = data.column("id").to_pylist()
            vectors = builds.rows(ids, seed=1 + seed).column("embedding").to_pylist()
            self.rows.add_changed(with_column(data, "embedding", vectors), was)

    def update_words_merge_on_read(self, picks):
        """The same, with the vectors that they had, and other words."""
        was = dict(self.rows.lineage)
        data = self.delete_merge_on_read(picks)
        if len(data):
            words = [f"{word}+" for word in data.column("word").to_pylist()]
            self.rows.add_changed(with_column(data, "word", words), was)

    def roll_back(self, pick):
        readable = sorted(self.rows.before)
        self.rows.roll_back(readable[pick % len(readable)])

    def import_files(self, picks, unusable):
        """As Spark's add_files does of a table of version 3: the rows have ids of rows of ours."""
        mine = sorted(self.rows.lineage.values())
        theirs = sorted({mine[pick % len(mine)] for pick in picks if mine})
        data = self.foreign_rows(len(picks), unusable)
        ids = data.column("id").to_pylist()
        self.rows.append(data, dict(zip(ids, theirs, strict=False)))

    def overwrite_by_foreign_files(self, picks, unusable):
        """Rows of another table take the place of ours, and have just their row ids and numbers."""
        files = self.some(picks)
        gone = self.rows.rows_of(files).column("id").to_pylist() if files else []
        if gone:
            data = self.foreign_rows(len(gone), unusable)
            theirs = [self.rows.lineage[i] for i in gone]
            ids = data.column("id").to_pylist()
            self.rows.overwrite(files, data, dict(zip(ids, theirs, strict=True)))

    def foreign_rows(self, count, unusable):
        """Rows with vectors that no other has, but for one that has none, if that is wanted."""
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        data = builds.rows(ids, seed=9)
        vectors = data.column("embedding").to_pylist()
        if unusable:
            vectors[0] = None
        return with_column(data, "embedding", vectors)

    def lose_a_removed_file(self, pick):
        """Its row ids cannot be read any more, and nobody goes back to snapshots that have it."""
        live = {file.file_path for file in self.rows.files()}
        folder = Path(self.table.location().removeprefix("file://")) / "data"
        gone = sorted(path for path in folder.glob("rows-*") if f"file://{path}" not in live)
        if gone:
            path = gone[pick % len(gone)]
            path.unlink()
            self.rows.before = {
                snapshot_id: lineage
                for snapshot_id, lineage in self.rows.before.items()
                if f"file://{path}" not in files_at(self.table, snapshot_id)
            }

    @rule(changes=st.lists(CHANGES, min_size=1, max_size=4))
    def change_and_refresh(self, changes):
        for name, arguments in changes:
            getattr(self, name)(*arguments)
        self.refresh()

    def refresh(self):
        self.runs += 1
        done = refresh_in_process(self.declared, run_id=f"run-{self.runs}", force=True)
        DONE["refreshes"] += 1
        self.table.refresh()
        assert lineage_of(self.table) == self.rows.lineage
        rows = builds.live(self.table)
        if len(rows[0]):
            newest = require_versions(self.table, builds.INDEX)[0]
            head = live_state(self.table, self.table.current_snapshot().snapshot_id)
            index = open_version(self.table, newest, head)
            builds.assert_answers_are(index, rows, QUERIES, len(rows[0]) + 3)
            known = words.words_of(self.table, rows[0].tolist())
            words.assert_words(index, known, Random(self.runs))
        return done

    def some(self, picks):
        files = self.rows.files()
        chosen = {pick % len(files) for pick in picks} if files else ()
        return [files[place] for place in sorted(chosen)]

    def teardown(self):
        self.patch.undo()
        library_settings.cache_clear()
        self.folder.cleanup()


def shuffled(data, seed):
    order = np.random.default_rng(seed).permutation(len(data))
    return data.take(order) if seed else data


def files_at(table, snapshot_id):
    return {file.path for file in live_files(table, snapshot_id)}


def lineage_of(table):
    """Row ids and numbers of the live rows, by id, as the library reads them."""
    found = {}
    files = live_files(table)
    deleted = deleted_positions(table, files)
    for file in files:
        with table.io.new_input(file.path).open() as stream:
            parquet = pq.ParquetFile(stream)
            groups = range(parquet.num_row_groups)
            ids = parquet.read(columns=["id"]).column("id").to_pylist()
            lineage = np.concatenate([row_lineage(parquet, file, group) for group in groups])
            for place, (key, pair) in enumerate(zip(ids, lineage.tolist(), strict=True)):
                if place not in deleted.get(file.path, ()):
                    found[key] = tuple(pair)
    return found


def count_known(patch):
    """Count the rows that were found by their row ids."""
    look = known_rows.RowIds.__call__

    def looked(self, lineage):
        known = look(self, lineage)
        DONE["indexed"] += int(known.indexed.sum())
        return known

    patch.setattr(known_rows.RowIds, "__call__", looked)
