"""A refresh that is killed at any moment harms nobody, and its retry ends published once."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
import yaml

from puffin_ann import open_index
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runtime import leases
from tests.support import builds, crashing_refreshes
from tests.support.crashing_refreshes import KILLED, Refreshes
from tests.support.other_catalogs import advised
from tests.support.publications import runs_published

DECLARED = builds.declaration(
    algorithm="vamana",
    parameters=builds.PARAMETERS["vamana"],
    refresh={"min_rows": 0},
    rebuild={"tombstone_ratio": 0.001},
)
TABLE, INDEX = DECLARED.table, DECLARED.name
QUERIES = builds.rows([3, 14, 1000], seed=5).column("embedding")
LATER_MS = 10**15


class Life:
    """A table that changes, with an index that is refreshed by processes that are killed."""

    def __init__(self, table, refreshes: Refreshes) -> None:
        self.table = table
        self.refreshes = refreshes
        self.rounds = 0

    def change(self) -> None:
        """Add rows and delete some, now and then by rewriting all files."""
        first = 1000 + 10 * self.rounds
        self.table.refresh().append(builds.rows(range(first, first + 8)))
        if self.rounds % 2:
            self.table.refresh().delete(f"id in ({self.rounds}, {first + 1})")
        self.rounds += 1

    def published(self) -> list[str]:
        """Return the runs that published, in order."""
        return runs_published(load_table(TABLE), INDEX)

    def search(self) -> None:
        """Hold a search of one snapshot to brute force on that snapshot."""
        table = load_table(TABLE)
        snapshot = table.current_snapshot().snapshot_id
        index = open_index(table, INDEX, snapshot)
        queries = np.array(QUERIES.to_pylist(), dtype=np.float32)
        builds.assert_answers(index, table, snapshot, queries, 5)

    def follow(self) -> None:
        """Let the index follow a change by which rows of its shards became tombstones."""
        self.change()
        self.change()
        assert self.refreshes.run(INDEX, f"follow-{self.rounds}").code == 0

    def survive(self, *, maintenance: bool = False, **moment) -> bool:
        """Kill a refresh, look on, retry it; tells whether it was killed before its end."""
        if maintenance:
            self.follow()
        else:
            self.change()
        before, run_id = len(self.published()), f"run-{self.rounds}"
        with crashing_refreshes.searching(self.search):
            killed = self.refreshes.run(INDEX, run_id, maintenance=maintenance, **moment)
            assert killed.code in (0, KILLED)
            assert self.published()[before:] in ([], [run_id])
            retried = self.refreshes.run(INDEX, run_id, maintenance=maintenance)
        assert retried.code == 0
        first, *later = self.published()[before:]
        assert first == run_id
        if later:
            # It was all done before. What was read told that a merge is due, of a row more than
            # was expected: the next maintenance does that, whatever its id.
            assert maintenance
            assert later == [f"{run_id}-2"]
            merge = history(TABLE, INDEX).entries[0].record
            assert (merge.action, merge.rows_added, merge.rows_gone) == ("merge", 0, 0)
        (now,) = status(load_table(TABLE), INDEX)
        assert (now.rows_to_scan, now.rows_masked, now.coverage) == (0, 0, 1.0)
        self.search()
        return killed.code == KILLED


@pytest.fixture
def life(words, tmp_path) -> Iterator[Life]:
    builds.build(DECLARED, "build-1")
    declared = DECLARED.model_dump(mode="json", exclude_none=True)
    (tmp_path / f"{INDEX}.yaml").write_text(yaml.safe_dump(declared))
    refreshes = Refreshes(tmp_path)
    yield Life(words, refreshes)
    refreshes.close()


def assert_clean_leaves_nothing(tmp_path) -> None:
    """Nothing of a killed run is left, once the metadata file of a killed commit is forgotten.

    A catalog over SQL writes that file before its database points to it, and never removes it: it
    is kept, with what it names, as one that another catalog may point to.
    """
    report = clean(TABLE, [DECLARED], grace="0s", at_ms=LATER_MS)
    if report.notes:
        clean(TABLE, [DECLARED], grace="0s", at_ms=LATER_MS, forget=advised(report))
    metadata = tmp_path / "warehouse" / "demo" / "words" / "metadata"
    staged = [path.name for path in metadata.glob("_ann-staging/**/*") if path.is_file()]
    assert staged == [] or all(name.startswith("_lease-") for name in staged)
    held = leases.index_lease(load_table(TABLE), INDEX).look()
    assert held is None or held.released
    registered = {entry.statistics_path for entry in load_table(TABLE).metadata.statistics}
    files = {f"file://{path}" for path in metadata.glob("ann-*.puffin")}
    assert files <= registered


def test_killed_before_events_all_over_a_refresh_it_ends_published_once(life, tmp_path):
    life.change()
    whole = life.refreshes.run(INDEX, "run-0")
    assert whole.code == 0
    assert whole.events > 10
    # The last ones are the commit and what follows it: there a retry must not publish again.
    last = range(whole.events - 3, whole.events + 1)
    spread = np.linspace(2, whole.events - 4, 3).astype(int).tolist()
    killed = [life.survive(event=event) for event in [*spread, *last]]
    assert sum(killed) >= len(killed) - 2
    assert_clean_leaves_nothing(tmp_path)


@pytest.mark.long
def test_killed_before_any_event_it_ends_published_once(life, tmp_path):
    life.change()
    events = life.refreshes.run(INDEX, "run-0").events
    for event in range(1, events + 1):
        life.survive(event=event)
    assert_clean_leaves_nothing(tmp_path)


@pytest.mark.long
def test_killed_before_events_all_over_a_rebuild_it_ends_published_once(life, tmp_path):
    life.follow()
    events = life.refreshes.run(INDEX, "run-0", maintenance=True).events
    moments = range(1, events + 1, 3)
    killed = [life.survive(maintenance=True, event=event) for event in moments]
    assert sum(killed) >= len(killed) - 2
    actions = [entry.record.action for entry in history(TABLE, INDEX).entries]
    assert actions.count("rebuild") >= len(killed)
    assert_clean_leaves_nothing(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments_it_ends_published_once(life, tmp_path, seed):
    life.change()
    began = time.monotonic()
    life.refreshes.run(INDEX, "run-0")
    whole = time.monotonic() - began
    killed = [
        life.survive(seconds=moment) for moment in crashing_refreshes.moments(seed, 12, whole)
    ]
    assert any(killed)
    assert_clean_leaves_nothing(tmp_path)
