"""A table with two published versions of an index, the newer of which lies; what a search says."""

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann import Index, open_index
from puffin_ann.errors import PuffinAnnError
from puffin_ann.lake.read.conditions.snapshot_entries import ENTRIES
from puffin_ann.lake.read.data.column_chunks import KEPT
from puffin_ann.lifecycle.refresh.apply_changes import added_tombstones
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.conditions.kept import MATCHING
from puffin_ann.search.included.lookups import LOOKUPS
from puffin_ann.search.version.versions import find_versions
from puffin_ann.settings import settings
from tests.support.falsified.falsified_files import LIES, IndexFile
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(3).normal(size=(2, builds.DIMENSION)).astype(np.float32)
LEAN = "lean"
"""Of lists without vectors."""

CASES = (
    ("exact", "l2", False),
    ("exact", "l2", True),
    ("vamana", "ip", True),
    ("hnsw", "cosine", False),
    ("ivf_pq", "l2", True),
    (LEAN, "l2", True),
    ("centroid", "l2", True),
    ("vamana", "l2", True, "id", "word"),
    ("exact", "cosine", False, "word", "id"),
)
"""Algorithm and metric of the indexes that lie, whether they name blobs of earlier files, and the
columns that they include."""

RIGHT, FELL_BACK = "right", "fell back"


@dataclass
class Liar:
    """An index file, and how it was before it lied.

    Attributes:
        table: as it is.
        algorithm: of the index, or `LEAN`.
        path: the file of the newest version.
        truth: its bytes.
        live: ids and vectors of the live rows.
        include: columns that the index includes.
    """

    table: Table
    algorithm: str
    path: Path
    truth: bytes
    live: tuple[np.ndarray, np.ndarray]
    include: tuple[str, ...] = ()

    def lie(self, name: str, seed: int) -> None:
        """Let the file tell a lie, and the table's metadata its length.

        Raises:
            NotApplicable: there is nothing in the file that it could be about.
        """
        self.path.write_bytes(self.truth)
        file = IndexFile.read(self.path)
        LIES[name](file, random.Random(seed))
        file.write(self.path)
        self.register()

    def register(self) -> None:
        """Tell the table's metadata how long the file is."""
        table = self.table.refresh()
        with table.update_statistics() as update:
            for entry in table.metadata.statistics:
                if entry.statistics_path.removeprefix("file://") == str(self.path):
                    size = {"file-size-in-bytes": self.path.stat().st_size}
                    told = {**entry.model_dump(by_alias=True), **size}
                    update.set_statistics(StatisticsFile(**told))

    def outcome(self, *, by_ranges: bool = True) -> str:
        """Search in every way; whatever is answered is held to brute force.

        Args:
            by_ranges: search shards by ranges, too.

        Returns:
            `RIGHT`, `FELL_BACK`, or the name of a typed error.
        """
        shutil.rmtree(settings().cache_dir / "shards", ignore_errors=True)
        try:
            index = open_index(self.table.refresh(), builds.INDEX)
            builds.assert_answers_are(index, self.live, QUERIES, 5)
            builds.assert_within(index, self.live, QUERIES, (0.1, 0.5))
            answers = [index.search(QUERIES, 5), *map(self._by_condition, self._conditions(index))]
            if by_ranges:
                answers.append(self.by_ranges(QUERIES))
        except PuffinAnnError as error:
            return type(error).__name__
        reports = [answer.schema.metadata[b"puffin_ann"] for answer in answers]
        return FELL_BACK if any(json.loads(report)["damaged"] for report in reports) else RIGHT

    def by_ranges(self, queries: np.ndarray) -> pa.Table:
        """Search shards that are not on local disk, however small they are.

        What is answered is held to brute force.
        """
        shutil.rmtree(settings().cache_dir / "shards", ignore_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PUFFIN_ANN_RANGES_MIN_BYTES", "0")
            settings.cache_clear()
            try:
                index = open_index(self.table.refresh(), builds.INDEX, cache="none")
                found = index.search(queries, 5)
                builds.assert_answers_are(index, self.live, queries, 5, ways=(False,))
            finally:
                patch.undo()
                settings.cache_clear()
        return found

    def _conditions(self, index: Index) -> Iterator[tuple[Index, str, set[int]]]:
        """Yield conditions on what the index includes, with the ids of the rows that satisfy them.

        First as an index has it that is searched for the first time, then as one that knows places.
        """
        if self.include:
            KEPT.clear()
            MATCHING.clear()
            ENTRIES.clear()
            LOOKUPS.clear()
            ids = {*self.live[0].tolist()}
            some = {number for number in ids if 10 <= number < 70}
            for _ in range(2):
                yield index, "id >= 10 and id < 70", some
                yield index, "word in ('w3', 'w40', 'w64')", ids & {3, 40, 64}

    def _by_condition(self, asked: tuple[Index, str, set[int]]) -> pa.Table:
        index, where, expected = asked
        found = index.search(QUERIES, 100, columns=["id", "word"], where=where, allow_fewer=True)
        rows = {(row["id"], row["word"]) for row in found.select(["id", "word"]).to_pylist()}
        assert rows == {(number, f"w{number}") for number in expected}
        return found


def liar(table: Table, algorithm: str, metric: str, *include: str, layered: bool = False) -> Liar:
    """Publish a version of some rows, then one with a delta and tombstones; the latter will lie.

    Args:
        table: of 60 rows.
        algorithm: of the index, or `LEAN`.
        metric: likewise.
        include: columns that it includes.
        layered: versions name what earlier files have.
    """
    with pytest.MonkeyPatch.context() as patch:
        if layered:
            patch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", "0")
        return _published(table, algorithm, metric, include)


def _published(table: Table, algorithm: str, metric: str, include: tuple[str, ...]) -> Liar:
    lean = {"algorithm": "ivf_pq", "vectors": "none", "parameters": {"lists": 4}}
    whole = {"algorithm": algorithm, "parameters": builds.PARAMETERS.get(algorithm, {})}
    declared = builds.declaration(
        table=".".join(("test", *table.name())),
        metric=metric,
        include=include,
        recall_target=0.5,
        refresh={"delta_ratio": 0.9, "min_rows": 0},
        **(lean if algorithm == LEAN else whole),
    )
    with pytest.MonkeyPatch.context() as patch:  # else so few rows have no lists
        patch.setattr("puffin_ann.ann.ivf.lists.LEAST_ROWS", 4)
        builds.build(declared, "older")
    paths = sorted(task.file.file_path for task in table.refresh().scan().plan_files())
    delete_positions(table, {paths[0]: [2, 20]})
    with pytest.MonkeyPatch.context() as patch:  # these have tombstones blobs of their own
        patch.setattr(added_tombstones, "BLOB_BYTES", -1000)
        refresh_in_process(declared, run_id="between")
    delete_positions(table.refresh(), {paths[0]: [5, 17]})
    table.refresh().append(builds.rows(range(60, 75)))
    refresh_in_process(declared, run_id="newer")
    versions = find_versions(table.refresh(), builds.INDEX).versions
    assert [version.run_id for version in versions] == ["newer", "between", "older"]
    assert versions[0].added_tombstones or algorithm == "centroid"
    path = Path(versions[0].path.removeprefix("file://"))
    return Liar(table, algorithm, path, path.read_bytes(), builds.live(table), include)
