"""How many candidates codes ask for is seen on the rows, not on how wide the codes are."""

import shutil

import numpy as np
import pytest

from puffin_ann.ann.ivf.candidates import CANDIDATES, LADDER, LEAST, MOST, coarseness_of
from puffin_ann.engines import engine
from puffin_ann.errors import LocalCopyError
from tests.support.indexes.shard_checks import nearest, opened, recall

ROWS, DIMENSION, K = 12_000, 64, 10


def normal(rows, seed=0):
    found = np.random.default_rng(seed).standard_normal((rows, DIMENSION))
    return found.astype(np.float32)


def uneven(rows, seed=0):
    """Numbers of which the first say most, and some are far from the others, in each place."""
    return (normal(rows, seed) ** 3 * (0.7 ** np.arange(DIMENSION) + 0.02)).astype(np.float32)


def noted(folder):
    return int(np.load(folder / "shard" / CANDIDATES)[0])


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_rows_that_codes_hardly_tell_apart_get_more_candidates(metric, tmp_path):
    opened("ivf_pq", normal(ROWS), tmp_path / "even", metric=metric)
    opened("ivf_pq", uneven(ROWS), tmp_path / "uneven", metric=metric)
    assert noted(tmp_path / "even") <= 40
    assert noted(tmp_path / "uneven") > 1.5 * noted(tmp_path / "even")


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_a_search_of_such_rows_finds_what_codes_hide(metric, tmp_path):
    """By as many candidates as for other rows, more lists find little more."""
    rows, queries = uneven(ROWS), uneven(200, 1)
    shard = opened("ivf_pq", rows, tmp_path, metric=metric)
    truth = nearest(rows, queries, K, metric)[1]
    assert recall(shard.search(queries, K, width=64)[1], truth) >= 0.97


def test_rows_that_are_equal_ask_for_no_more(tmp_path):
    rows = np.repeat(normal(ROWS // 400), 400, axis=0)
    opened("ivf_pq", rows, tmp_path)
    assert noted(tmp_path) == LADDER[0]


def test_few_rows_are_all_that_there_is(tmp_path):
    rows = uneven(300)
    shard = opened("ivf_pq", rows, tmp_path)
    assert noted(tmp_path) <= MOST
    assert recall(shard.search(rows, K, width=64)[1], nearest(rows, rows, K, "l2")[1]) >= 0.97


def test_they_grow_from_a_least_number():
    assert coarseness_of(1) == LEAST
    assert coarseness_of(MOST) > coarseness_of(200) > coarseness_of(20)


def test_a_folder_without_the_note_is_searched_and_a_damaged_note_refused(tmp_path):
    rows = uneven(2000)
    opened("ivf_pq", rows, tmp_path)
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "shard", before)
    (before / CANDIDATES).unlink()
    assert len(engine("ivf_pq").open(before).search(rows[:1], K, width=20)[0]) == 1
    np.save(before / CANDIDATES, np.zeros(2))
    with pytest.raises(LocalCopyError, match="not a whole unpacked shard"):
        engine("ivf_pq").open(before)
