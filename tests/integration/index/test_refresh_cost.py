"""What a small refresh asks of the catalog and the disk, whatever the size of the table."""

from collections import Counter

import builds
import numpy as np
import pytest
from lake_tables import delete_positions
from pyiceberg.catalog.sql import SqlCatalog

from puffin_ann.lake import manifest
from puffin_ann.lifecycle import reading
from puffin_ann.lifecycle.refresh import refresh_in_process
from puffin_ann.search.index import open_index


@pytest.fixture(autouse=True)
def refreshed_not_built(monkeypatch):
    monkeypatch.setattr("puffin_ann.lifecycle.decide._why_dearer", lambda *_: "")


@pytest.fixture
def counted(monkeypatch):
    """Count calls of some functions from now on."""
    counts: Counter[str] = Counter()

    def count(owner, name):
        original = getattr(owner, name)

        def call(*args, **kwargs):
            counts[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    def start():
        import os

        import pyiceberg.table

        for owner, name in (
            (SqlCatalog, "load_table"),
            (os, "fsync"),
            (pyiceberg.table, "update_table_metadata"),
            (manifest, "_entry"),
        ):
            count(owner, name)
        return counts

    return start


@pytest.fixture
def indexed(words):
    builds.build(builds.declaration(algorithm="exact", parameters={}), "build")
    return words.refresh()


def refresh(**changes):
    declared = builds.declaration(algorithm="exact", parameters={}, **changes)
    return refresh_in_process(declared, run_id="refresh", force=True)


def test_a_few_deleted_rows_cost_few_loads_and_waits(indexed, counted):
    files = [task.file.file_path for task in indexed.scan().plan_files()]
    delete_positions(indexed, {files[0]: [0, 1]})
    counts = counted()
    assert refresh()["action"] == "refresh"
    # To plan, to publish on, right before the commit, and in the catalog's own commit.
    assert counts["load_table"] == 4
    assert counts["fsync"] == 1  # of the plan
    assert counts["update_table_metadata"] == 0  # beyond that of the catalog's own commit


def test_manifests_that_did_not_change_are_not_read(indexed, counted):
    indexed.append(builds.rows(range(60, 63)))
    counts = counted()
    assert refresh(refresh={"delta_ratio": 1.0})["action"] == "refresh"
    assert counts["_entry"] == 1  # of the file that was added


def test_of_rows_that_only_moved_no_vector_is_kept(indexed, monkeypatch):
    sizes = []
    original = reading.FilePart.read

    def read(self, *args, **kwargs):
        found = original(self, *args, **kwargs)
        sizes.append((len(found.rows.vectors), len(found.sifted.locators)))
        return found

    monkeypatch.setattr(reading.FilePart, "read", read)
    rows = len(indexed.scan().to_arrow())
    indexed.overwrite(indexed.scan().to_arrow())
    done = refresh()
    assert done["action"] == "refresh"
    assert np.sum(sizes, axis=0).tolist() == [0, rows]
    view = open_index(indexed.refresh(), builds.INDEX).view
    assert (view.rows_masked, view.rows_to_scan) == (0, 0)
