"""A machine that goes through histories of a table and its indexes, and checks all after each step.

`TableRules` needs PyIceberg alone; in `SparkRules` it is Spark's own procedures that delete rows,
compact, analyse, expire and remove orphans.
"""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from puffin_ann.lifecycle.documents.run import PlanPointer
from puffin_ann.settings import settings as library_settings
from tests.property.data_rules import DataRules
from tests.property.invariants import Invariants
from tests.property.others_rules import OthersRules
from tests.property.run_rules import RunRules
from tests.support.indexes import former_modes
from tests.support.lake.equality_scans import read_equality_deletes
from tests.support.lifecycle import builds

CODES = {"pq_m": 4, "pq_nbits": 4}
GRAPH = {"R": 8, "L": 16, **CODES}
FORMS: list[tuple[str, str, dict[str, int]]] = [
    ("exact", "float32", {}),
    ("exact", "float32", {}),
    ("vamana", "float32", GRAPH),
    ("vamana", "float16", GRAPH),
    ("ivf_pq", "float32", CODES),
    ("ivf_pq", "int8", CODES),
    ("ivf_pq", "none", CODES),
]
"""Algorithm, what is kept of vectors, parameters."""
PROPERTIES = {"write.parquet.row-group-limit": "7", "format-version": "2"}


class TableRules(DataRules, OthersRules, RunRules, Invariants, RuleBasedStateMachine):
    """By PyIceberg alone, or by stand-ins for what it cannot do."""

    @initialize(
        metric=st.sampled_from(["l2", "cosine", "ip"]),
        form=st.sampled_from(FORMS),
        publish=st.sampled_from(
            [
                ("auto", "auto"),
                ("auto", "auto"),
                ("statistics", "auto"),
                ("statistics", "statistics"),
            ]
        ),
        former=st.booleans(),
        include=st.sampled_from([(), ("id",), ("word", "id")]),
        most_files=st.sampled_from([2, 12]),
        most_tags=st.sampled_from([2, 3, 8]),
    )
    def begin(self, metric, form, publish, former, include, most_files, most_tags):
        """Begin with a table that has an index, published as none is any more if `former` says."""
        self.folder = tempfile.TemporaryDirectory(prefix="history-")
        self.patch = pytest.MonkeyPatch()
        read_equality_deletes(self.patch)
        self.patch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", "0")
        self.patch.setattr("puffin_ann.lifecycle.publish.layers.MOST_FILES", most_files)
        self.patch.setattr("puffin_ann.lifecycle.retention.tags.TAGGED_VERSIONS", most_tags)
        library_settings.cache_clear()
        self.patch.setattr("puffin_ann.lake.commit.commit_index_file.WAIT_SECONDS", 0.0)
        self.table = self._table()
        algorithm, vectors, parameters = form
        self.declared = {
            name: builds.declaration(
                name=name,
                table=".".join((self.table.catalog.name, *self.table.name())),
                metric=metric if name == "first" else "l2",
                algorithm=algorithm,
                parameters=parameters,
                vectors=vectors,
                include=include,
                recall_target=0.5,
                publish=mode,
            )
            for name, mode in zip(("first", "second"), publish, strict=True)
        }
        self.called = {role: role for role in self.declared}
        self.next_id, self.runs, self.looks = 0, 0, 0
        self.oracle: dict[int, Any] = {}
        self.words: dict[int, dict[int, str]] = {}
        self.visible: set[str] = set()
        self.anchored = False
        self.crashed: tuple[PlanPointer, str] | None = None
        self.held = None
        self._append(20)
        with pytest.MonkeyPatch.context() as patch:
            if former:
                former_modes.published_on_main(patch)
            self._build("first")

    def _table(self) -> Table:
        where = Path(self.folder.name)
        self.patch.setenv("PUFFIN_ANN_CACHE_DIR", str(where / "cache"))
        library_settings.cache_clear()
        self.patch.setenv("PYICEBERG_CATALOG__TEST__TYPE", "sql")
        self.patch.setenv("PYICEBERG_CATALOG__TEST__URI", f"sqlite:///{where}/catalog.db")
        self.patch.setenv("PYICEBERG_CATALOG__TEST__WAREHOUSE", f"file://{where}/warehouse")
        self.patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        catalog = load_catalog("test")
        catalog.create_namespace("demo")
        return catalog.create_table("demo.words", builds.rows([]).schema, properties=PROPERTIES)

    def teardown(self):
        if hasattr(self, "patch"):
            self.patch.undo()
            library_settings.cache_clear()
            self.folder.cleanup()

    def _changed(self):
        self.table.refresh()
        self.anchored = False

    def _attacked(self):
        """Until the guard runs, or a build, an index need not be found."""
        self.table.refresh()
        self.visible, self.anchored, self.attacked = set(), False, True
