"""Rows of a shard as they are searched: kept where searches read them, made where they do not."""

import numpy as np
import pytest

from puffin_ann.ann.vamana.packed.layout import FRAME, PACKED
from puffin_ann.engines.vamana import VamanaEngine
from puffin_ann.engines.vamana_unpacked import SPACE
from puffin_ann.errors import LocalCopyError
from tests.support.indexes.shard_checks import assert_answers_are_sound, opened

ENGINE = VamanaEngine()
ROWS, WIDE = 3000, 384


def rows(n, d, seed=0):
    """Return rows of a few dimensions that matter, and many that hardly do, as real ones are."""
    generator = np.random.default_rng(seed)
    axes = np.random.default_rng(9).standard_normal((24, d))
    found = generator.standard_normal((n, 24)) @ axes + generator.standard_normal((n, d))
    return found.astype(np.float32)


def bytes_of(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_no_second_copy_of_the_vectors_lies_beside_packed_nodes(metric, tmp_path):
    assert opened("vamana", rows(ROWS, WIDE), tmp_path, metric=metric).beam == "edges"
    folder = tmp_path / "shard"
    assert (folder / PACKED).exists()
    assert not (folder / SPACE).exists()
    assert bytes_of(folder) <= 2.6 * 4 * ROWS * WIDE
    assert ENGINE.open(folder).beam == "edges"
    assert not list(folder.glob("*/"))


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_it_is_made_again_for_a_beam_that_reads_it(metric, tmp_path):
    vectors, queries = rows(ROWS, WIDE - 3), rows(20, WIDE - 3, 1)
    vectors[17] = 0
    opened("vamana", vectors, tmp_path, metric=metric)
    folder = tmp_path / "shard"
    expected = ENGINE.open(folder, "edges").search(queries, 10, width=ROWS)
    found = ENGINE.open(folder, "full").search(queries, 10, width=ROWS)
    assert (folder / SPACE).exists()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_a_file_of_it_that_may_be_sealed_is_left_as_it_is(metric, is_there, tmp_path):
    opened("vamana", rows(ROWS, WIDE - 3), tmp_path, metric=metric, searched=False)
    folder = tmp_path / "shard"
    for name in (FRAME, *([] if is_there else [SPACE])):
        (folder / name).unlink()
    assert ENGINE.open(folder).beam == "edges"
    assert (folder / SPACE).exists() == is_there


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_lists_past_deleted_rows_are_made_without_it(metric, tmp_path):
    vectors, queries = rows(ROWS, WIDE), rows(20, WIDE, 1)
    shard = opened("vamana", vectors, tmp_path, metric=metric)
    deleted = np.random.default_rng(2).random(ROWS) < 0.5
    shard.expect(deleted)
    answers = shard.search(queries, 10, width=200, deleted=deleted)
    assert_answers_are_sound(answers, vectors, queries, 10, metric, deleted)
    assert not (tmp_path / "shard" / SPACE).exists()
    assert not list((tmp_path / "shard").glob("*/"))


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_a_folder_without_the_list_of_rows_without_a_direction_is_not_whole(metric, tmp_path):
    opened("vamana", rows(ROWS, WIDE), tmp_path, metric=metric)
    folder = tmp_path / "shard"
    (folder / "zero_rows.npy").unlink(missing_ok=True)
    if metric == "cosine":
        with pytest.raises(LocalCopyError, match="not a whole unpacked shard"):
            ENGINE.open(folder)
    else:
        assert ENGINE.open(folder).beam == "edges"
