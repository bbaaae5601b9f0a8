"""Random histories of a table and its index, held to brute force at every retained snapshot.

The index is built, refreshed, merged, remapped, rebuilt in part and dropped among whatever else
befalls the table. After each step every snapshot looked at is answered right, and the newest
version alone answers the current one, whichever the search would have chosen.
"""

import os
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from puffin_ann import open_index
from puffin_ann.declaration import AUTO, CENTROID, FORMS_OF, RefreshOptions
from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.catalog.index_snapshots import tag_of
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.open_index import open_version
from puffin_ann.search.version.snapshot_view import live_state
from puffin_ann.search.version.versions import require_versions
from puffin_ann.settings import settings as library_settings
from tests.support import words
from tests.support.lake import row_changes
from tests.support.lake.equality_scans import read_equality_deletes
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(11).normal(size=(3, builds.DIMENSION)).astype(np.float32)
MAX_SNAPSHOTS = 4
"""Snapshots looked at after each step: the current one and the newest others."""

EXAMPLES = int(os.environ.get("HISTORY_EXAMPLES", "4"))

NEXT = st.sampled_from([None, (0.0, False), (0.3, True), (1.0, False), (1.0, True)])
"""After a change: nothing, or a refresh that merges deltas above a ratio, in a maintenance window
or not. Chance alone would seldom have the index follow a change before the next one."""


PICKS = st.lists(st.integers(0, 10**6), min_size=1, max_size=8)

ONLY = os.environ.get("HISTORY_STORED", "")

STORED = [
    (algorithm, form)
    for algorithm, forms in FORMS_OF.items()
    for form in forms
    if algorithm != AUTO and (not ONLY or f"{algorithm}/{form}" in ONLY.split(","))
]
"""Algorithms, and the forms that they store vectors in; by HISTORY_STORED, some of them."""


DONE: Counter[str] = Counter()
"""How often a refresh did what."""


class History(RuleBasedStateMachine):
    """Rows are added, deleted, updated and moved, and indexes built and refreshed, in any order."""

    @initialize(
        metric=st.sampled_from(["l2", "cosine", "ip"]),
        stored=st.sampled_from(STORED),
        key=st.sampled_from([None, "id"]),
        include=st.sampled_from([(), ("word",), ("id", "word")]),
        publish=st.sampled_from(["auto", "tag"]),
        whole_file_bytes=st.sampled_from([0, 0, 1 << 20]),
        most_files=st.sampled_from([2, 12]),
        most_tags=st.sampled_from([2, 8]),
    )
    def start(self, metric, stored, key, include, publish, whole_file_bytes, most_files, most_tags):
        algorithm, vectors = stored
        self.patch = pytest.MonkeyPatch()
        read_equality_deletes(self.patch)
        self.folder = tempfile.TemporaryDirectory(prefix="history-")
        where = Path(self.folder.name)
        self.patch.setenv("PYICEBERG_CATALOG__TEST__TYPE", "sql")
        self.patch.setenv("PYICEBERG_CATALOG__TEST__URI", f"sqlite:///{where}/catalog.db")
        self.patch.setenv("PYICEBERG_CATALOG__TEST__WAREHOUSE", f"file://{where}/warehouse")
        self.patch.setenv("PUFFIN_ANN_CACHE_DIR", str(where / "cache"))
        self.patch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", str(whole_file_bytes))
        self.patch.setattr("puffin_ann.lifecycle.publish.layers.MOST_FILES", most_files)
        if vectors != "float32":  # shards of so few rows get lists, so that they need no vectors
            self.patch.setattr("puffin_ann.ann.ivf.lists.LEAST_ROWS", 4)
        self.patch.setattr("puffin_ann.lifecycle.retention.tags.TAGGED_VERSIONS", most_tags)
        self.patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        library_settings.cache_clear()
        catalog = load_catalog("test")
        catalog.create_namespace("demo")
        self.table = catalog.create_table(
            "demo.words",
            schema=builds.rows([]).schema,
            properties={"write.parquet.row-group-limit": "7"},
        )
        self.declared = builds.declaration(
            metric=metric,
            algorithm=algorithm,
            vectors=vectors,
            parameters=builds.PARAMETERS.get(algorithm, {}),
            recall_target=0.5,
            key=key,
            include=include if algorithm != CENTROID else (),
            publish=publish,
            rebuild={"drift": 1e9, "imbalance": 1e9, "tombstone_ratio": 0.05},
        )
        self.next_id, self.runs, self.looks, self.is_fresh = 0, 0, 0, False
        self.oracle, self.words = {}, {}
        self.append(20)
        self.build()

    @rule(count=st.integers(1, 15), then=NEXT)
    def append(self, count, then=None):
        self.table.append(builds.rows(range(self.next_id, self.next_id + count)))
        self.next_id += count
        self.follow(then)

    @rule(again=st.lists(st.integers(0, 40), min_size=1, max_size=8))
    def append_equals(self, again):
        """Rows with vectors that others have, and one that cannot be indexed."""
        count = len(again) + 1
        data = builds.rows(range(self.next_id, self.next_id + count))
        vectors = [*builds.rows(again).column("embedding").to_pylist(), None]
        equal = pa.array(vectors, data.schema.field("embedding").type)
        self.table.append(data.set_column(2, data.schema.field("embedding"), equal))
        self.next_id += count

    @rule(picks=PICKS, then=NEXT)
    def delete_merge_on_read(self, picks, then):
        files = [task.file for task in self.table.scan().plan_files()]
        deletes: dict[str, list[int]] = {}
        for pick in picks if files else []:
            file = files[pick % len(files)]
            deletes.setdefault(file.file_path, []).append(pick // 7 % file.record_count)
        if deletes:
            delete_positions(self.table, deletes)
            self.table.refresh()
            self.follow(then)

    @rule(
        picks=PICKS,
        seed=st.sampled_from([None, None, 1, 2]),
        how=st.sampled_from(["copy-on-write", "merge-on-read", "equality"]),
        then=NEXT,
    )
    def update(self, picks, seed, how, then):
        """Rows get other words; by a seed other vectors, too."""
        ids = self.some_ids(picks)
        if not ids:
            return
        rows = row_changes.changed(self.table, ids, seed)
        if how == "equality":
            more = builds.rows([self.next_id]).cast(rows.schema)
            self.next_id += 1
            row_changes.upsert(self.table, pa.concat_tables([rows, more]))
        else:
            row_changes.update(self.table, rows, merge_on_read=how == "merge-on-read")
        self.follow(then)

    @rule(picks=PICKS, columns=st.sampled_from(row_changes.KEYS), then=NEXT)
    def delete_by_equality(self, picks, columns, then):
        ids = self.some_ids(picks)
        if ids:
            row_changes.delete_by_equality(self.table, ids, columns)
            self.follow(then)

    @rule(start=st.integers(0, 60), length=st.integers(1, 10), then=NEXT)
    def delete_copy_on_write(self, start, length, then):
        self.table.delete(f"id >= {start} and id < {start + length}")
        self.follow(then)

    @rule(count=st.integers(1, 15))
    def overwrite(self, count):
        self.table.overwrite(builds.rows(range(self.next_id, self.next_id + count)))
        self.next_id += count

    @rule(seed=st.integers(0, 3), then=NEXT)
    def compact(self, seed, then):
        """Every live row into one new file, as rewrite_data_files does, in another order, too."""
        data = self.table.scan().to_arrow()
        if len(data):
            order = np.random.default_rng(seed).permutation(len(data))
            self.table.overwrite(data.take(order) if seed else data)
            self.follow(then)

    @rule(pick=st.integers(0, 10**6), then=NEXT)
    def roll_back(self, pick, then):
        snapshots = [snapshot for snapshot in self.table.snapshots() if tag_of(snapshot) is None]
        chosen = snapshots[pick % len(snapshots)].snapshot_id
        self.table.manage_snapshots().create_branch(
            snapshot_id=chosen, branch_name=f"b{len(self.table.refs())}"
        ).commit()
        self.table.manage_snapshots().set_current_snapshot(snapshot_id=chosen).commit()
        self.follow(then)

    @precondition(lambda self: len(self.table.metadata.statistics) > 1)
    @rule()
    def lose_a_registration(self):
        """Somebody else's statistics throw ours out of a snapshot's slot; another one is left."""
        entry = self.table.metadata.statistics[0]
        with self.table.update_statistics() as update:
            update.remove_statistics(entry.snapshot_id)

    @precondition(lambda self: len(self.live(self.table.current_snapshot().snapshot_id)[0]) >= 8)
    @rule()
    def build(self):
        self.runs += 1
        builds.build(self.declared, f"run-{self.runs}")
        self.table.refresh()

    @rule(delta_ratio=st.sampled_from([0.0, 0.3, 1.0]), maintenance=st.booleans())
    def refresh(self, delta_ratio, maintenance):
        """Bring the index up to date: deltas stay, or are merged above a ratio."""
        self.runs += 1
        options = RefreshOptions(min_rows=0, max_lag="0s", delta_ratio=delta_ratio)
        declared = self.declared.model_copy(update={"refresh": options})
        done = refresh_in_process(declared, run_id=f"run-{self.runs}", maintenance=maintenance)
        DONE[done["action"]] += 1
        self.table.refresh()
        self.is_fresh = True

    def follow(self, then):
        if then is not None:
            self.refresh(*then)

    @precondition(lambda self: len(self.live(self.table.current_snapshot().snapshot_id)[0]) >= 8)
    @rule()
    def drop_and_build(self):
        """Nothing of a dropped index comes back with the next one of its name."""
        drop(self.table, builds.INDEX, [self.declared], force=True)
        self.table.refresh()
        with pytest.raises(IndexNotFoundError):
            open_index(self.table, builds.INDEX)
        self.build()

    @invariant()
    def every_snapshot_is_answered_right(self):
        current = self.table.current_snapshot()
        newest = [snapshot.snapshot_id for snapshot in self.table.snapshots()][-MAX_SNAPSHOTS:]
        for snapshot_id in {current.snapshot_id, *newest}:
            rows = self.live(snapshot_id)
            if not len(rows[0]):
                continue
            index = open_index(self.table, builds.INDEX, snapshot_id)
            for k in (3, len(rows[0]) + 3):
                builds.assert_answers_are(index, rows, QUERIES, k)
            builds.assert_within(index, rows, QUERIES, (0.2,))
            self.assert_words(index, snapshot_id)

    def assert_words(self, index, snapshot_id):
        """Words of answers, and conditions on them, are those of the snapshot."""
        if snapshot_id not in self.words:
            ids = self.live(snapshot_id)[0].tolist()
            self.words[snapshot_id] = words.words_of(self.table, ids, snapshot_id)
        self.looks += 1
        words.assert_words(index, self.words[snapshot_id], Random(self.looks), count=2)

    @invariant()
    def the_newest_version_alone_answers_the_current_snapshot(self):
        current = self.table.current_snapshot().snapshot_id
        rows, is_fresh = self.live(current), self.is_fresh
        self.is_fresh = False
        if not len(rows[0]):
            return
        newest = require_versions(self.table, builds.INDEX)[0]
        index = open_version(self.table, newest, live_state(self.table, current))
        builds.assert_answers_are(index, rows, QUERIES, len(rows[0]) + 3)
        builds.assert_within(index, rows, QUERIES, (0.5,))
        if is_fresh:  # by the newest version, or after a rollback by an older one
            index = open_index(self.table, builds.INDEX)
            assert index.coverage == 1.0
            assert index.version.vectors == len(rows[0])

    def some_ids(self, picks):
        """Ids of some live rows, if there are any."""
        live = self.table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
        return {live[pick % len(live)] for pick in picks if live}

    def live(self, snapshot_id):
        """What the oracle says of a snapshot; snapshots never change."""
        if snapshot_id not in self.oracle:
            self.oracle[snapshot_id] = builds.live(self.table, snapshot_id)
        return self.oracle[snapshot_id]

    def teardown(self):
        self.patch.undo()
        library_settings.cache_clear()
        self.folder.cleanup()


def test_random_histories_keep_every_promise():
    run_state_machine_as_test(
        History,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=8,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert DONE["refresh"] > 0
