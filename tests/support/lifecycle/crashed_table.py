"""A table whose index is worked on by processes that are killed, and what must hold after it."""

from collections.abc import Collection
from pathlib import Path
from random import Random

import numpy as np
import yaml
from pyiceberg.table import Table

from puffin_ann import open_index
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runtime import leases
from tests.support import words
from tests.support.lake import row_changes
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, crashing_runs, refreshes
from tests.support.lifecycle.crashing_runs import KILLED, Runs
from tests.support.lifecycle.publications import runs_published
from tests.support.servers.other_catalogs import advised

DECLARED = builds.declaration(
    algorithm="vamana",
    parameters=builds.PARAMETERS["vamana"],
    refresh={"min_rows": 0},
    rebuild={"tombstone_ratio": 0.001},
    include=["id", "word"],
)
TABLE, INDEX = DECLARED.table, DECLARED.name
QUERIES = np.array(
    builds.rows([3, 14, 1000], seed=5).column("embedding").to_pylist(), dtype=np.float32
)
LATER_MS = 10**15

Read = tuple[tuple[np.ndarray, np.ndarray], dict[int, str]]
"""Ids and vectors of the rows of a snapshot, and their words by id."""


class CrashedTable:
    """A table that changes, with an index of whose runs many are killed.

    Args:
        table: as it was loaded.
        folder: for declarations; the catalog's warehouse is there, too.
        declared: the index, of which a build is published.

    Attributes:
        rounds: how often it changed.
        most_needed: files that a version named besides its own, at most.
        types: of the blobs that versions had.
    """

    def __init__(self, table: Table, folder: Path, declared: IndexDeclaration = DECLARED) -> None:
        self.table = table
        self.folder = folder
        self.rounds = 0
        self.most_needed = 0
        self.types: set[str] = set()
        self._known: dict[int, Read] = {}
        self.declare(declared)
        builds.build(declared, "build-1")
        self.runs = Runs(folder)

    def declare(self, declared: IndexDeclaration) -> None:
        """Have runs find a declaration by the name of its index."""
        said = declared.model_dump(mode="json", exclude_none=True)
        (self.folder / f"{declared.name}.yaml").write_text(yaml.safe_dump(said))

    def close(self) -> None:
        """End the program that starts runs."""
        self.runs.close()

    def change(self) -> None:
        """Add rows and give an old one another word; in turns delete some, or update a vector."""
        first = 1000 + 10 * self.rounds
        table = self.table.refresh()
        table.append(builds.rows(range(first, first + 8)))
        renamed = row_changes.changed(table, [40 + self.rounds % 8, 59])
        row_changes.update(table, renamed, merge_on_read=True)
        if self.rounds % 2:
            table.delete(f"id in ({self.rounds}, {first + 1})")
        elif self.rounds % 6 == 2:
            largest = max(
                (task.file for task in table.scan().plan_files()),
                key=lambda file: file.record_count,
            )
            delete_positions(table, {largest.file_path: [self.rounds // 6]})
        elif self.rounds % 6 == 4:
            row_changes.delete_by_equality(table, [first + 3, 39 - self.rounds], ("id",))
        elif self.rounds:
            row = builds.rows([first + 2], seed=1)
            table.overwrite(row, overwrite_filter=f"id = {first + 2}")
        self.rounds += 1

    def published(self, since: Collection[str] = ()) -> list[str]:
        """Return the runs whose versions have tags, in order, but for those that had before."""
        return [run for run in runs_published(load_table(TABLE), INDEX) if run not in since]

    def search(self, index: str = INDEX) -> None:
        """Hold a search of one snapshot to brute force on that snapshot, and words to its words."""
        table = load_table(TABLE)
        snapshot = table.current_snapshot().snapshot_id
        opened = open_index(table, index, snapshot)
        rows, known = self._read(table, snapshot)
        builds.assert_answers_are(opened, rows, QUERIES, 5)
        words.assert_words(opened, known, Random(self.rounds))

    def _read(self, table: Table, snapshot: int) -> Read:
        """Read a snapshot once, which never changes: it is searched over and over."""
        if snapshot not in self._known:
            rows = builds.live(table, snapshot)
            self._known[snapshot] = rows, words.words_of(table, rows[0].tolist(), snapshot)
        return self._known[snapshot]

    def follow(self, index: str = INDEX) -> None:
        """Let the index follow a change by which rows of its shards became tombstones."""
        self.change()
        self.change()
        assert self.runs.run(index, f"follow-{self.rounds}").code == 0

    def follow_in_layers(self, index: str = INDEX) -> None:
        """Let it do so until its newest version names other files: a merge writes all again."""
        self.follow(index)
        if not open_index(TABLE, index).version.needs:
            self.follow(index)
        assert open_index(TABLE, index).version.needs

    def survive_refresh(self, *, maintenance: bool = False, **moment) -> bool:
        """Kill a refresh, look on, retry it; tells whether it was killed before its end."""
        if maintenance:
            self.follow()
        else:
            self.change()
        before, run_id = self.published(), f"run-{self.rounds}"
        with crashing_runs.searching(self.search):
            killed = self.runs.run(INDEX, run_id, maintenance=maintenance, **moment)
            assert killed.code in (0, KILLED)
            assert self.published(before) in ([], [run_id])
            retried = self.runs.run(INDEX, run_id, maintenance=maintenance)
        assert retried.code == 0
        first, *later = self.published(before)
        assert first == run_id
        if later:
            # It was all done before. What was read told that a merge is due, of a row more than
            # was expected: the next maintenance does that, whatever its id.
            assert maintenance
            assert later == [f"{run_id}-2"]
            merge = history(TABLE, INDEX).entries[0].record
            assert (merge.action, merge.rows_added, merge.rows_gone) == ("merge", 0, 0)
        refreshes.assert_right(load_table(TABLE), DECLARED)
        (now,) = status(load_table(TABLE), INDEX)
        assert (now.rows_to_scan, now.rows_masked, now.coverage) == (0, 0, 1.0)
        self.search()
        needed = len(open_index(TABLE, INDEX).version.needs)
        self.most_needed = max(self.most_needed, needed)
        self.types |= refreshes.blob_digests(load_table(TABLE)).keys()
        return killed.code == KILLED

    def break_leases(self) -> None:
        """Take the leases of a process that was killed away, as people do who cannot wait."""
        for _, lease in leases.leases_of(load_table(TABLE)):
            lease.break_lease()

    def assert_clean_leaves_nothing(self) -> None:
        """Nothing of a killed run is left, once the metadata file of a killed commit is forgotten.

        A catalog over SQL writes that file before its database points to it, and never removes it:
        it is kept, with what it names, as one that another catalog may point to.
        """
        report = clean(TABLE, [DECLARED], grace="0s", at_ms=LATER_MS)
        if report.notes:
            clean(TABLE, [DECLARED], grace="0s", at_ms=LATER_MS, forget=advised(report))
        metadata = self.folder / "warehouse" / "demo" / "words" / "metadata"
        staged = [path.name for path in metadata.glob("_ann-staging/**/*") if path.is_file()]
        assert staged == [] or all(name.startswith("_lease-") for name in staged)
        held = leases.index_lease(load_table(TABLE), INDEX).look()
        assert held is None or held.released
        registered = {entry.statistics_path for entry in load_table(TABLE).metadata.statistics}
        files = {f"file://{path}" for path in metadata.glob("ann-*.puffin")}
        assert files <= registered
