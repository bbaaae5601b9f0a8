"""Shards in the local cache: one copy of each, and never another than the one published."""

import os
import shutil
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.ann.vamana import packed_policy
from puffin_ann.ann.vamana.packed import layout, neighbours
from puffin_ann.errors import EnvironmentProblemError, LocalCopyError
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.settings import settings
from tests.support.falsified.damage import forget_cache
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(3).normal(size=(3, builds.DIMENSION)).astype(np.float32)


def folders() -> list:
    return [path.parent for path in (settings().cache_dir / "shards").glob("*/.complete")]


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


def corrupt(path) -> None:
    with path.open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        byte = file.read(1)
        file.seek(-3, os.SEEK_END)
        file.write(bytes([byte[0] ^ 0xFF]))


@pytest.mark.parametrize("how", [corrupt, lambda path: os.truncate(path, 140), os.remove])
def test_any_corrupted_file_of_the_cache_is_unpacked_again(words, how):
    builds.build(builds.declaration(), "run")
    words.refresh()
    snapshot = words.current_snapshot().snapshot_id
    for folder in folders():
        for file in [path for path in folder.iterdir() if path.name != ".complete"]:
            how(file)
            index = open_index(words, builds.INDEX)
            builds.assert_answers(index, words, snapshot, QUERIES, 5)


@pytest.fixture
def wide(catalog):
    """A table of 600 rows whose index is one graph of packed nodes, brought into the cache."""
    vectors = np.random.default_rng(0).standard_normal((600, 96)).astype(np.float32)
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 96)
    rows = pa.table({"id": np.arange(600), "embedding": embedding.cast(pa.list_(pa.float32()))})
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    declared = builds.declaration(
        algorithm="vamana", metric="l2", shards=1, partitions_per_shard=1, gate={}
    )
    builds.build(declared, "run")
    return table.refresh(), vectors


def assert_nearest_is_found(index, vectors, where=None):
    for number in (0, 299, 599):
        found = index.search(vectors[number : number + 1], 1, columns=["id"], where=where)
        assert found["id"].to_pylist() == [number]


def test_links_lie_in_the_cache_once(wide):
    table, vectors = wide
    (folder,) = {path.parent for path in (settings().cache_dir / "shards").glob("*/records-*.npy")}
    assert not {"neighbours.npy", "codes.npy"} & {path.name for path in folder.iterdir()}
    table.delete("id >= 300 and id < 500")
    index = open_index(table.refresh(), builds.INDEX)
    assert_nearest_is_found(index, vectors)
    assert_nearest_is_found(index, vectors, "id < 310 or id = 599")
    assert not index.cache.statistics.filled
    forget_cache()
    index = open_index(table, builds.INDEX)
    assert_nearest_is_found(index, vectors)
    files = [path for path in folder.parent.glob("*/*") if path.name != ".complete"]
    on_disk = sum(path.stat().st_size for path in files if path.parent.name != "names")
    assert index.cache.statistics.filled_bytes == on_disk


def test_a_shard_whose_packed_nodes_have_another_form_is_brought_again(wide, monkeypatch, caplog):
    table, vectors = wide
    form = layout.FORM + 1
    for module in (layout, packed_policy):
        monkeypatch.setattr(module, "PACKED", f"records-{form}-rows.npy")
        monkeypatch.setattr(module, "FRAME", f"frame-{form}-rows.npy")
    monkeypatch.setattr(neighbours, "OF_ANY_ORDER", f"records-{form}-*.npy")
    index = open_index(table, builds.INDEX)
    assert_nearest_is_found(index, vectors)
    assert not index.damage
    assert "neither neighbours nor packed nodes" in caplog.text
    assert index.cache.statistics.filled == 1
    (there,) = (settings().cache_dir / "shards").glob("*/records-*.npy")
    assert there.name == f"records-{form}-rows.npy"


def test_files_written_over_under_an_open_index_are_told_and_unpacked_again(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    expected = index.search(QUERIES, 5)
    for file in (settings().cache_dir / "shards").glob("*/files.npy"):
        written = np.load(file, mmap_mode="r+")
        written[:] = 9
        written.flush()
    with pytest.raises(LocalCopyError, match=r"changed while it was open.*open the index again"):
        index.search(QUERIES, 5)
    assert open_index(words, builds.INDEX).search(QUERIES, 5).equals(expected)


def test_an_open_index_loads_its_shards_anew_once_they_were_found_corrupted(words, monkeypatch):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    expected = index.search(QUERIES, 5)
    few = index.search(QUERIES, 3, where="id < 20")
    loaded, allowed = index._shards, index._allowed("id < 20")
    for shard in loaded._opened.open_all():  # as if made by locators of a file that was corrupted
        shard.allowed(allowed).excluded[:] = True
    told = iter([True])
    monkeypatch.setattr(LocalCache, "take_corrupted", lambda cache: next(told, False))
    assert index.search(QUERIES, 5).equals(expected)
    assert index._shards is not loaded
    assert index.search(QUERIES, 3, where="id < 20").equals(few)
    assert index._allowed("id < 20") is not allowed


def test_shards_of_another_table_are_never_searched_whatever_their_checksums(words, catalog):
    """Two tables of the same rows have shards that no checksum tells apart."""
    copy = catalog.create_table("demo.copy", words.schema(), properties=words.properties)
    copy.append(builds.rows(range(30)))
    copy.append(builds.rows(range(30, 60)))
    builds.build(builds.declaration(), "run")
    before = folders()
    builds.build(builds.declaration(table="test.demo.copy"), "run")
    assert len(folders()) == 2 * len(before)
    assert set(before) < set(folders())


@pytest.mark.parametrize("algorithm", ["exact", "vamana", "hnsw"])
def test_a_cache_smaller_than_one_shard_is_done_without(
    words, monkeypatch, caplog, tmp_path, algorithm
):
    parameters = builds.PARAMETERS.get(algorithm, {})
    builds.build(
        builds.declaration(algorithm=algorithm, parameters=parameters, recall_target=0.5), "run"
    )
    snapshot = words.refresh().current_snapshot().snapshot_id
    root = tmp_path / "small"
    index = open_index(words, builds.INDEX)
    index.cache = LocalCache(root, max_bytes=1)
    builds.assert_answers(index, words, snapshot, QUERIES, 5)
    assert not index.damage
    assert [path.name for path in root.iterdir() if path.name != "names"] == []
    assert "PUFFIN_ANN_CACHE_MAX_BYTES" in caplog.text


def take_away(monkeypatch, times: int) -> None:
    """Remove what the cache hands out, so many times, as a cleaner does."""
    left = iter(range(times))
    hand = LocalCache.held

    @contextmanager
    def handed(*arguments):
        with hand(*arguments) as folder:
            if next(left, None) is not None:
                shutil.rmtree(folder)
            yield folder

    monkeypatch.setattr(LocalCache, "held", handed)


@pytest.mark.parametrize("times", [1, 3, 1000])
def test_what_a_cleaner_takes_away_is_unpacked_again_and_at_last_elsewhere(
    words, monkeypatch, times
):
    builds.build(builds.declaration(), "run")
    snapshot = words.refresh().current_snapshot().snapshot_id
    take_away(monkeypatch, times)
    index = open_index(words, builds.INDEX)
    builds.assert_answers(index, words, snapshot, QUERIES, 5)
    assert not index.damage


def test_a_disk_that_gives_nothing_back_is_named_and_the_index_is_not_called_damaged(
    words, monkeypatch
):
    builds.build(builds.declaration(), "run")
    take_away(monkeypatch, 1000)
    apart = LocalCache.apart

    @contextmanager
    def emptied(*arguments):
        with apart(*arguments) as folder:
            for path in folder.iterdir():
                path.unlink()
            yield folder

    monkeypatch.setattr(LocalCache, "apart", emptied)
    with pytest.raises(EnvironmentProblemError, match=r"cannot be opened.*check the disk"):
        open_index(words.refresh(), builds.INDEX).search(QUERIES, 5)
