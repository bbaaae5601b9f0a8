"""One table in two catalogs that know nothing of each other, at times restored from a backup."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from puffin_ann import open_index
from puffin_ann.declaration import RefreshOptions
from puffin_ann.lake.metadata.foreign import find_metadata_in_reach
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.settings import settings as library_settings
from tests.property.data_rules import picks
from tests.property.table_rules import PROPERTIES
from tests.support.lake.equality_scans import read_equality_deletes
from tests.support.lake.tables import delete_equal
from tests.support.lifecycle import builds
from tests.support.servers.other_catalogs import NAME, commit, later, publish

CATALOGS = ("one", "other")
QUERIES = np.random.default_rng(11).normal(size=(2, builds.DIMENSION)).astype(np.float32)
either = st.sampled_from(CATALOGS)


class TwoCatalogsRules(RuleBasedStateMachine):
    """Whatever either does, and cleans up: neither loses what it needs.

    Attributes:
        tables: the table by catalog.
        futures: what a catalog had, by its last metadata file, before it was restored.
    """

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory(prefix="catalogs-")
        self.patch = pytest.MonkeyPatch()
        read_equality_deletes(self.patch)
        where = Path(self.folder.name)
        self.patch.setenv("PUFFIN_ANN_CACHE_DIR", str(where / "cache"))
        self.patch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", "0")
        library_settings.cache_clear()
        for name in CATALOGS:
            prefix = f"PYICEBERG_CATALOG__{name.upper()}__"
            self.patch.setenv(f"{prefix}TYPE", "sql")
            self.patch.setenv(f"{prefix}URI", f"sqlite:///{where}/{name}.db")
            self.patch.setenv(f"{prefix}WAREHOUSE", f"file://{where}/warehouse")
        self.patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        self.tables: dict[str, Table] = {}
        self.futures: dict[str, set[str]] = {}
        self.next_id, self.runs = 0, 0
        for name in CATALOGS:
            load_catalog(name).create_namespace("demo")
        catalog = load_catalog("one")
        self.tables["one"] = catalog.create_table(
            NAME, builds.rows([]).schema, properties=PROPERTIES
        )
        self.append("one", 20)
        self.build("one")
        self._register("other", self.tables["one"].metadata_location)

    @rule(name=either, count=st.integers(1, 10))
    def append(self, name, count):
        self._table(name).append(builds.rows(range(self.next_id, self.next_id + count)))
        self.next_id += count

    @rule(name=either, start=st.integers(0, 60), length=st.integers(1, 5))
    def delete(self, name, start, length):
        self._table(name).delete(f"id >= {start} and id < {start + length}")

    @rule(name=either, start=st.integers(0, 60), length=st.integers(1, 5))
    def delete_by_equality(self, name, start, length):
        delete_equal(self._table(name), builds.rows(range(start, start + length)).select(["id"]))

    @rule(name=either)
    def commit_nothing(self, name):
        commit(self._table(name), os.urandom(4).hex())

    @rule(name=either)
    def build(self, name):
        if len(builds.live(self._table(name))[0]) >= 8:
            publish(self._table(name), self._run(name))

    @rule(name=either)
    def refresh(self, name):
        if len(builds.live(self._table(name))[0]) >= 8:
            options = RefreshOptions(min_rows=0, max_lag="0s")
            declared = builds.declaration(table=f"{name}.{NAME}")
            declared = declared.model_copy(update={"refresh": options})
            refresh_in_process(declared, run_id=self._run(name))

    @rule(name=either, hours=st.sampled_from([0, 25, 25, 1000]))
    def clean(self, name, hours):
        clean(self._table(name), at_ms=later(hours))
        for each in CATALOGS:
            self._assert_whole(each)
        for future, needed in self.futures.items():
            assert needed == _there(needed), f"what came before a restore is gone: {future}"

    @rule(name=either, pick=picks)
    def restore_from_backup(self, name, pick):
        table = self._table(name)
        log = [entry.metadata_file for entry in table.metadata.metadata_log[-5:]]
        then = log[pick % len(log)]
        names = _named(then)
        if _there(names) == names and _publishes(names):
            self.futures[table.metadata_location] = _there(_named(table.metadata_location))
            self._register(name, then)

    @rule()
    def one_catalog_is_given_up(self):
        """What the other knew, and what came before a restore, is of no account any more."""
        table = self._table("one")
        reach = find_metadata_in_reach(table, since_ms=0)
        report = clean(
            table, at_ms=later(1000), forget=[file.location for file in reach.foreign], grace="1h"
        )
        assert report.notes == ()
        self.futures.clear()
        self._register("other", self._table("one").metadata_location)
        needed = _named(self._table("one").metadata_location)
        folder = Path(table.location().removeprefix("file://")) / "metadata"
        left = {f"file://{path}" for path in folder.glob("ann-*.puffin")}
        assert left <= needed, "files of a registration that was given up are left"
        self._assert_whole("one")

    def teardown(self):
        if hasattr(self, "patch"):
            self.patch.undo()
            library_settings.cache_clear()
            self.folder.cleanup()

    def _register(self, name, metadata_location):
        catalog = load_catalog(name)
        if name in self.tables:
            catalog.drop_table(NAME)
        self.tables[name] = catalog.register_table(NAME, metadata_location)
        commit(self.tables[name], f"registered by {name}")  # unwritten, nothing would tell of it

    def _table(self, name) -> Table:
        return self.tables[name].refresh()

    def _run(self, name) -> str:
        self.runs += 1
        return f"{name}-{self.runs}"

    def _assert_whole(self, name):
        """The current snapshot is read, every registered file is there, and answers are exact."""
        table = self._table(name)
        head = table.current_snapshot().snapshot_id
        rows = builds.live(table, head)
        needed = _named(table.metadata_location)
        assert needed == _there(needed), f"catalog {name!r} lost what it needs"
        if len(rows[0]):
            builds.assert_answers_are(open_index(table, builds.INDEX), rows, QUERIES, 3)


def _named(metadata_location: str) -> set[str]:
    """Statistics and manifest lists that a metadata file names."""
    document = json.loads(Path(metadata_location.removeprefix("file://")).read_text())
    statistics = {entry["statistics-path"] for entry in document["statistics"]}
    return statistics | {snapshot["manifest-list"] for snapshot in document["snapshots"]}


def _there(names: set[str]) -> set[str]:
    return {name for name in names if Path(name.removeprefix("file://")).exists()}


def _publishes(names: set[str]) -> bool:
    return any(name.endswith(".puffin") for name in names)
