"""Versions that name blobs of earlier files: what they cost, what they need, what becomes of it."""

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.store.objects import object_exists
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.doctor import doctor
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.publish import layers
from puffin_ann.settings import settings
from tests.support import builds, refreshes
from tests.support.tagged_versions import later, published, tagged_files

DECLARED = refreshes.declared(publish="tag", refresh={"delta_ratio": 0.5})


@pytest.fixture(autouse=True)
def layered(monkeypatch):
    """However small, an index is published in layers."""
    monkeypatch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", "0")
    settings.cache_clear()
    monkeypatch.setattr(layers, "LEAST_NEEDED", 0.0)
    yield
    monkeypatch.undo()
    settings.cache_clear()


def appended(table, number, rows=5):
    start = 1000 + 100 * number
    table.append(builds.rows(range(start, start + rows)))
    return refreshes.refresh(table, DECLARED, f"refresh-{number}")


def needs(table) -> frozenset[str]:
    return refreshes.newest(table).needs


def test_a_refresh_writes_what_changed_and_names_the_rest(words):
    first = published(words, algorithm="exact", recall_target=0.5)
    done = appended(words, 0)
    print(done)
    assert needs(words) == {first}
    assert doctor(words, [DECLARED]).findings == ()
    assert guard(words).actions == ()
    for number in range(1, 8):
        done = appended(words, number)
        print(number, done["bytes_written"], done.get("bytes_copied"), len(needs(words)))
