"""What a small refresh asks of the catalog and the disk, whatever the size of the table."""

from collections import Counter

import numpy as np
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_ann.lake.catalog.sqlite import SqliteCatalog
from puffin_ann.lake.metadata.registered import find_registered
from puffin_ann.lake.read.files import manifests
from puffin_ann.lifecycle.ingest import row_groups
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.puffin import footer
from puffin_ann.search.open_index import open_index
from puffin_ann.search.version.versions import find_versions
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds


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
            (SqliteCatalog, "load_table"),
            (SqlCatalog, "load_table"),
            (SqlCatalog, "_init_catalog"),
            (os, "fsync"),
            (pyiceberg.table, "update_table_metadata"),
            (manifests, "_entry"),
        ):
            count(owner, name)
        return counts

    return start


@pytest.fixture
def indexed(words):
    builds.build(builds.declaration(algorithm="exact", parameters={}), "build")
    return words.refresh()


def file_of(table):
    return next(iter(table.scan().plan_files())).file.file_path


def refresh(**changes):
    declared = builds.declaration(algorithm="exact", parameters={}, **changes)
    return refresh_in_process(declared, run_id="refresh", force=True)


def test_a_few_deleted_rows_cost_few_loads_and_waits(indexed, counted):
    delete_positions(indexed, {file_of(indexed): [0, 1]})
    counts = counted()
    assert refresh()["action"] == "refresh"
    # To plan, to publish on, right before the commit, in the catalog's own commit, and after it,
    # to see that the tag was kept.
    assert counts["load_table"] == 5
    assert counts["_init_catalog"] == 1  # one connection asks it all
    assert counts["fsync"] == 0  # but for what the catalog does
    assert counts["update_table_metadata"] == 0  # beyond that of the catalog's own commit


def test_the_version_refreshed_is_opened_once_for_each_thing_that_is_asked_of_it(
    indexed, monkeypatch
):
    opened: Counter[str] = Counter()
    original = footer.read

    def read(source, *args):
        opened[source.name] += 1
        return original(source, *args)

    (before,) = find_registered(indexed)
    delete_positions(indexed, {file_of(indexed): [0, 1]})
    monkeypatch.setattr(footer, "read", read)
    assert refresh()["action"] == "refresh"
    # To know it, and to copy from.
    assert opened.pop(before.path) == 2
    assert not opened  # a few deleted rows are told in the file itself, and nothing is staged


def test_files_found_with_an_index_are_opened_once(indexed, monkeypatch):
    opened: list[str] = []
    original = footer.read
    monkeypatch.setattr(
        footer, "read", lambda source, *args: opened.append(source.name) or original(source, *args)
    )
    assert len(find_versions(indexed, builds.INDEX).versions) == 1
    assert opened == [entry.path for entry in find_registered(indexed)]


def test_manifests_that_did_not_change_are_not_read(indexed, counted):
    indexed.append(builds.rows(range(60, 63)))
    counts = counted()
    assert refresh(refresh={"delta_ratio": 1.0})["action"] == "refresh"
    assert counts["_entry"] == 1  # of the file that was added


def test_of_rows_that_only_moved_no_vector_is_kept(indexed, monkeypatch):
    sizes = []
    original = row_groups.RowGroupRange.read

    def read(self, *args, **kwargs):
        found = original(self, *args, **kwargs)
        sizes.append((len(found.rows.vectors), len(found.filtered_out.locators)))
        return found

    monkeypatch.setattr(row_groups.RowGroupRange, "read", read)
    rows = len(indexed.scan().to_arrow())
    indexed.overwrite(indexed.scan().to_arrow())
    done = refresh()
    assert done["action"] == "refresh"
    assert np.sum(sizes, axis=0).tolist() == [0, rows]
    view = open_index(indexed.refresh(), builds.INDEX).view
    assert (view.rows_masked, view.rows_to_scan) == (0, 0)
