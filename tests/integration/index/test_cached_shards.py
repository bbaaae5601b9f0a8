"""Shards in the local cache: one copy of each, and never another than the one published."""

import os

import builds
import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.search.cache import LocalCache
from puffin_ann.settings import settings

QUERIES = np.random.default_rng(3).normal(size=(3, builds.DIMENSION)).astype(np.float32)


def folders() -> list:
    return [one.parent for one in (settings().cache_dir / "shards").glob("*/.complete")]


@pytest.mark.parametrize("algorithm", ["exact", "vamana", "ivf_pq"])
def test_what_the_gate_unpacked_serves_searches_of_the_published_index(words, algorithm):
    parameters = builds.PARAMETERS.get(algorithm, {})
    declared = builds.declaration(algorithm=algorithm, parameters=parameters, recall_target=0.5)
    builds.build(declared, "run")
    before = folders()
    assert len(before) == 4  # an engine's and the rows' of each of two shards
    index = open_index(words.refresh(), builds.INDEX)
    index.search(QUERIES, 5, exhaustive=True)
    assert sorted(folders()) == sorted(before)


def test_shards_carried_into_another_file_are_not_unpacked_again(words):
    builds.build(builds.declaration(), "run")
    builds.build(builds.declaration(name="other", metric="ip"), "other")
    before = folders()
    open_index(words.refresh(), builds.INDEX).search(QUERIES, 5, exhaustive=True)
    assert sorted(folders()) == sorted(before)


def spoil(path) -> None:
    with path.open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        byte = file.read(1)
        file.seek(-3, os.SEEK_END)
        file.write(bytes([byte[0] ^ 0xFF]))


@pytest.mark.parametrize("how", [spoil, lambda path: os.truncate(path, 140), os.remove])
def test_any_spoilt_file_of_the_cache_is_unpacked_again(words, how):
    builds.build(builds.declaration(), "run")
    words.refresh()
    snapshot = words.current_snapshot().snapshot_id
    for folder in folders():
        for file in [one for one in folder.iterdir() if one.name != ".complete"]:
            how(file)
            index = open_index(words, builds.INDEX)
            builds.assert_answers(index, words, snapshot, QUERIES, 5)


def test_an_open_index_loads_its_shards_anew_once_they_were_found_spoilt(words, monkeypatch):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    expected = index.search(QUERIES, 5)
    loaded = index._shards
    told = iter([True])
    monkeypatch.setattr(LocalCache, "take_spoilt", lambda cache: next(told, False))
    assert index.search(QUERIES, 5).equals(expected)
    assert index._shards is not loaded
