"""A folder with packed nodes has the links once, in them, and answers as one that has all."""

import io
import os
import shutil

import numpy as np
import pytest

from puffin_ann.ann.vamana import packed_policy, search
from puffin_ann.ann.vamana.packed import layout, neighbours
from puffin_ann.ann.vamana.packed.layout import FRAME, PACKED
from puffin_ann.blobs.encoding import mapped
from puffin_ann.blobs.shards import graph as graph_blob
from puffin_ann.engines import vamana
from puffin_ann.engines.delta import DELTA
from puffin_ann.engines.vamana import VamanaEngine
from puffin_ann.engines.vamana_unpacked import LINKS
from puffin_ann.errors import BlobFormatError, LocalCopyError
from tests.support.indexes.shard_checks import METRIC_NAMES, assert_answers_are_sound, opened

ENGINE = VamanaEngine()
ROWS, WIDE = 2000, 96
FILES = {"neighbours.npy"}


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def names(folder):
    return {path.name for path in folder.iterdir()}


def built(vectors, folder, metric="l2", **parameters):
    return ENGINE.build(
        vectors,
        metric=metric,
        parameters=ENGINE.check(parameters, vectors.shape[1]),
        norm_bound=0.0,
        seed=0,
        threads=2,
        scratch=folder,
    )


def blob_of(vectors, folder, **given):
    out = io.BytesIO()
    ENGINE.encode(built(vectors, folder, **given), out)
    return out.getvalue()


@pytest.fixture(scope="module")
def blob(tmp_path_factory):
    return blob_of(normal(ROWS, WIDE), tmp_path_factory.mktemp("build"))


@pytest.fixture
def lean(blob, tmp_path):
    folder = tmp_path / "lean"
    folder.mkdir()
    ENGINE.unpack(io.BytesIO(blob), folder)
    return folder


def as_before(blob, folder):
    """Unpack a shard as earlier versions did: packed nodes beside all that the blob has."""
    folder.mkdir()
    graph_blob.unpack(io.BytesIO(blob), folder)
    assert ENGINE.open(folder).beam == "edges"
    return folder


def assert_same(one, other):
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize(("dimension", "degree"), [(96, 64), (96, 20), (93, 100), (260, 64)])
def test_it_answers_as_a_folder_that_has_all(metric, dimension, degree, tmp_path):
    vectors, queries = normal(ROWS, dimension), normal(50, dimension, 1)
    blob = blob_of(vectors, tmp_path, metric=metric, R=degree, beam="edges")
    whole, lean = as_before(blob, tmp_path / "whole"), tmp_path / "lean"
    lean.mkdir()
    ENGINE.unpack(io.BytesIO(blob), lean)
    assert names(whole) - names(lean) == FILES
    assert not names(lean) - names(whole)
    near = np.argsort(((vectors - queries[0]) ** 2).sum(axis=1))
    deleted = np.zeros(ROWS, np.bool_)
    deleted[near[:500]] = True
    for beam in ("edges", "full"):
        shards = [ENGINE.open(folder, beam) for folder in (lean, whole)]
        assert shards[0].resident_bytes == shards[1].resident_bytes
        assert_same(*(shard.search(queries, 10, width=60) for shard in shards))
        for _ in range(2):  # through deleted rows, and by lists that lead past them
            assert_same(*(shard.search(queries, 9, width=60, deleted=deleted) for shard in shards))
            for shard in shards:
                shard.expect(deleted)


def test_codes_that_earlier_versions_stored_are_left_out_too(tmp_path, monkeypatch):
    monkeypatch.setattr(vamana, "reads_codes", lambda *_: True)
    blob, lean = blob_of(normal(ROWS, WIDE), tmp_path), tmp_path / "lean"
    whole = as_before(blob, tmp_path / "whole")
    lean.mkdir()
    ENGINE.unpack(io.BytesIO(blob), lean)
    assert names(whole) - names(lean) == {f"{name}.npy" for name in LINKS}
    queries = normal(50, WIDE, 1)
    assert_same(*(ENGINE.open(one).search(queries, 10, width=60) for one in (lean, whole)))


def test_a_row_takes_its_vector_its_packed_node_and_its_degree(lean):
    stride = layout.Layout(WIDE, 1).stride
    total = sum(path.stat().st_size for path in lean.iterdir())
    assert 0 <= total - ROWS * (4 * WIDE + stride + 2) < 8192  # heads, the frame and the manifest


def test_what_rows_are_inserted_into_keeps_all(blob, lean, tmp_path):
    whole, scratch = tmp_path / "whole", tmp_path / "scratch"
    for folder in (whole, scratch):
        folder.mkdir()
    ENGINE.unpack(io.BytesIO(blob), whole, searched=False)
    assert names(whole) >= FILES
    given = {
        "parameters": ENGINE.check({}, WIDE),
        "norm_bound": 0.0,
        "seed": 0,
        "threads": 1,
        "scratch": scratch,
    }
    assert ENGINE.insert(whole, normal(10, WIDE, 1), **given).rows == ROWS + 10
    with pytest.raises(LocalCopyError, match="unpacked for searches"):
        ENGINE.insert(lean, normal(10, WIDE, 1), **given)
    with pytest.raises(BlobFormatError, match="in packed nodes alone"):
        graph_blob.write(graph_blob.open(lean), io.BytesIO())


@pytest.mark.parametrize(
    ("rows", "dimension", "parameters"),
    [
        (600, 24, {}),
        (200, WIDE, {}),
        (0, WIDE, {"beam": "edges"}),
        (600, WIDE, {"beam": "full"}),
        (600, WIDE, {"beam": "pq"}),
    ],
)
def test_shards_without_packed_nodes_keep_all(rows, dimension, parameters, tmp_path):
    shard = opened("vamana", normal(rows, dimension), tmp_path, **parameters)
    assert shard.beam == parameters.get("beam", "full") or not rows
    assert not (tmp_path / "shard" / PACKED).exists()
    there = FILES if rows else {"neighbours.npy"}
    assert names(tmp_path / "shard") >= there


def test_rows_of_extreme_length_keep_all(tmp_path):
    opened("vamana", normal(600, WIDE) * np.float32(5e17), tmp_path, beam="edges")
    assert names(tmp_path / "shard") >= FILES


def test_codes_are_asked_for_in_vain(lean):
    with pytest.raises(LocalCopyError, match="no codes to search by"):
        ENGINE.open(lean, "pq")


def test_a_folder_of_an_earlier_version_is_left_as_it_is(blob, tmp_path):
    whole = as_before(blob, tmp_path / "whole")
    before = {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}
    for beam in (None, "full", "pq"):
        ENGINE.open(whole, beam).search(normal(3, WIDE, 1), 5, width=20)
    assert {path.name: path.stat().st_mtime_ns for path in whole.iterdir()} == before


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_machine_of_another_order_takes_the_links_of_what_is_there(
    is_writable, lean, tmp_path, monkeypatch
):
    queries = normal(20, WIDE, 1)
    expected = ENGINE.open(lean).search(queries, 10, width=60)
    packed, of_others = (lean / PACKED).read_bytes(), lean / f"records-{layout.FORM}-otherwise.npy"
    (lean / PACKED).rename(of_others)
    (lean / FRAME).unlink()
    if not is_writable:

        def refuse(**_):
            raise PermissionError("read-only")

        monkeypatch.setattr(packed_policy.tempfile, "TemporaryDirectory", refuse)
        shard = ENGINE.open(lean)
        assert shard.beam == "full"
        assert_answers_are_sound(
            shard.search(queries, 10, width=60), normal(ROWS, WIDE), queries, 10, "l2"
        )
        assert_same(ENGINE.open(lean, "edges").search(queries, 10, width=60), expected)
        return
    assert_same(ENGINE.open(lean).search(queries, 10, width=60), expected)
    assert (lean / PACKED).read_bytes() == packed == of_others.read_bytes()


def test_packed_nodes_of_another_form_are_not_enough(lean, monkeypatch):
    form = layout.FORM + 1
    monkeypatch.setattr(layout, "PACKED", f"records-{form}-rows.npy")
    monkeypatch.setattr(layout, "FRAME", f"frame-{form}-rows.npy")
    monkeypatch.setattr(neighbours, "OF_ANY_ORDER", f"records-{form}-*.npy")
    for beam in (None, "full", "edges"):
        with pytest.raises(LocalCopyError, match="neither neighbours nor packed nodes"):
            ENGINE.open(lean, beam)


def test_packed_nodes_cut_short_are_not_enough_either(lean):
    os.truncate(lean / PACKED, 5000)
    with pytest.raises(LocalCopyError, match="not a whole unpacked shard"):
        ENGINE.open(lean)


def test_a_frame_that_is_gone_is_made_again(lean):
    before = (lean / FRAME).read_bytes()
    (lean / FRAME).unlink()
    assert ENGINE.open(lean).beam == "edges"
    assert (lean / FRAME).read_bytes() == before


@pytest.mark.parametrize("step", ["write_text", "replace", "unlink"])
def test_wherever_it_is_stopped_the_folder_is_whole(step, blob, lean, tmp_path, monkeypatch):
    folder, queries = tmp_path / "stopped", normal(20, WIDE, 1)
    folder.mkdir()
    graph_blob.unpack(io.BytesIO(blob), folder)

    class Stopped(BaseException):
        pass

    def stop(*_, **__):
        raise Stopped

    def leave_out(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(mapped.os if step == "replace" else mapped.Path, step, stop)
            real(*arguments)

    real = mapped.leave_out
    monkeypatch.setattr(mapped, "leave_out", leave_out)
    with pytest.raises(Stopped):
        ENGINE.prepare(folder)
    monkeypatch.undo()
    expected = ENGINE.open(lean).search(queries, 10, width=60)
    assert_same(ENGINE.open(folder).search(queries, 10, width=60), expected)
    has_all = graph_blob.open(folder).neighbours is not None
    assert has_all == (step != "unlink")


def test_lists_past_deleted_rows_are_not_made_of_links_that_cannot_be(lean, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(lean, copy)
    shard = ENGINE.open(copy)
    written = np.load(copy / PACKED, mmap_mode="r+")
    written[:, -4 * 32 :] = 255
    written.flush()
    with pytest.raises(ValueError, match="rows that are not there"):
        search.Searcher._past(shard._searcher, np.zeros(ROWS, np.uint8))


def test_a_delta_with_packed_nodes_is_as_lean(tmp_path):
    vectors, folder = normal(5000, WIDE), tmp_path / "shard"
    for made in (folder, tmp_path / "scratch"):
        made.mkdir()
    delta = DELTA.build(
        vectors,
        np.zeros(5000, np.uint32),
        metric="l2",
        norm_bound=0.0,
        seed=0,
        threads=2,
        scratch=tmp_path / "scratch",
    )
    blob = io.BytesIO()
    DELTA.encode(delta, blob)
    blob.seek(0)
    DELTA.unpack(blob, folder)
    assert PACKED in names(folder)
    assert not names(folder) & FILES
    shard, queries = DELTA.open(folder), normal(20, WIDE, 1)
    assert_answers_are_sound(shard.search(queries, 10, width=60), vectors, queries, 10, "l2")
    np.testing.assert_array_equal(shard.cells, np.zeros(5000))
