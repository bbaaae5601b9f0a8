"""A refresh that is killed at any moment harms nobody, and its retry ends published once."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from puffin_ann.blobs.changes import column_changes
from puffin_ann.blobs.shards import columns
from puffin_ann.lifecycle.report.history import history
from puffin_ann.settings import settings
from tests.support.lake.equality_scans import read_equality_deletes
from tests.support.lifecycle import crashing_runs
from tests.support.lifecycle.crashed_table import INDEX, TABLE, CrashedTable

WHOLE = pytest.param(1 << 20, id="whole", marks=pytest.mark.long)


@pytest.fixture(params=[pytest.param(0, id="layered"), WHOLE])
def life(request, words, tmp_path, monkeypatch) -> Iterator[CrashedTable]:
    """Its versions name blobs of earlier files, or are one file each."""
    monkeypatch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", str(request.param))
    settings.cache_clear()
    read_equality_deletes(monkeypatch)
    life = CrashedTable(words, tmp_path)
    yield life
    assert bool(life.most_needed) == (request.param == 0)
    assert {columns.TYPE, column_changes.TYPE} <= life.types
    life.close()
    settings.cache_clear()


def test_killed_before_events_all_over_a_refresh_it_ends_published_once(life):
    life.change()
    whole = life.runs.run(INDEX, "run-0")
    assert whole.code == 0
    assert whole.events > 10
    # The last ones are the commit and what follows it: there a retry must not publish again.
    last = range(whole.events - 3, whole.events + 1, 2)
    spread = np.linspace(2, whole.events - 6, 2).astype(int).tolist()
    killed = [life.survive_refresh(event=event) for event in [*spread, *last]]
    # Changes of columns are written where deltas are not merged, which the moments decide.
    more = iter(range(3, whole.events - 6, 2))
    while column_changes.TYPE not in life.types:
        killed.append(life.survive_refresh(event=next(more)))
    assert sum(killed) >= len(killed) - 2
    life.assert_clean_leaves_nothing()


@pytest.mark.long
def test_killed_before_any_event_it_ends_published_once(life):
    life.change()
    events = life.runs.run(INDEX, "run-0").events
    for event in range(1, events + 1):
        life.survive_refresh(event=event)
    life.assert_clean_leaves_nothing()


@pytest.mark.long
def test_killed_before_events_all_over_a_rebuild_it_ends_published_once(life):
    life.follow()
    events = life.runs.run(INDEX, "run-0", maintenance=True).events
    moments = range(1, events + 1, 3)
    killed = [life.survive_refresh(maintenance=True, event=event) for event in moments]
    assert sum(killed) >= len(killed) - 2
    actions = [entry.record.action for entry in history(TABLE, INDEX).entries]
    assert actions.count("rebuild") >= len(killed)
    life.assert_clean_leaves_nothing()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments_it_ends_published_once(life, seed):
    life.change()
    began = time.monotonic()
    life.runs.run(INDEX, "run-0")
    whole = time.monotonic() - began
    killed = [
        life.survive_refresh(seconds=moment) for moment in crashing_runs.moments(seed, 12, whole)
    ]
    assert any(killed)
    life.assert_clean_leaves_nothing()
