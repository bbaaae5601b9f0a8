"""Rows along the axes in which they vary most, by which the bulk build finds what is near."""

import numpy as np
import pytest

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.vamana.bulk import bulk_build, leading_axes

DIM = 64
ROWS = leading_axes.ROWS * DIM + 100


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Let rows be wide that a test has time for."""
    monkeypatch.setattr(leading_axes, "WIDE", DIM)


def varying_little(rows=ROWS, axes=20, dim=DIM, seed=1, scale=1.0):
    """Rows about a point that is not the origin, which vary in few directions, and a little in all.

    Those few directions are none of the space's own.
    """
    generator = np.random.default_rng(seed)
    directions = np.linalg.qr(generator.standard_normal((dim, axes)))[0].T
    mixed = 4 * generator.standard_normal((rows, axes)) @ directions
    moved = 3.0 + mixed + 0.9 * generator.standard_normal((rows, dim))
    return (moved * scale).astype(np.float32)


def everyone(space):
    return np.arange(len(space), dtype=np.uint32)


def squared_distances(rows, rest=0.0):
    wide = rows.astype(np.float64)
    return ((wide[:1] - wide[1:]) ** 2).sum(axis=1) + rest


def test_distances_along_few_axes_are_nearly_those_of_the_rows():
    space = varying_little()

    leading = leading_axes.of_rows(space, everyone(space), None, 2)

    assert leading.few == 32  # the least that do, in whole vectors
    assert leading.rows.shape == (ROWS, 48)
    few = leading.rows[:, : leading.few]
    assert (leading.rest >= 0).all()
    exact = squared_distances(space)
    told = squared_distances(few, leading.rest[0] + leading.rest[1:])
    assert np.abs(told / exact - 1).max() < 0.08
    alone = squared_distances(few)
    assert np.abs(told - exact).mean() < np.abs(alone - exact).mean() / 4


def test_rows_that_vary_alike_in_all_directions_stay_as_they_are():
    space = np.random.default_rng(2).standard_normal((ROWS, DIM)).astype(np.float32)
    assert leading_axes.of_rows(space, everyone(space), None, 1).rows.base is space


def test_few_rows_stay_as_they_are():
    space = varying_little(rows=leading_axes.ROWS * DIM - 1)
    assert leading_axes.of_rows(space, everyone(space), None, 1).rows.base is space


def test_narrow_rows_stay_as_they_are():
    space = varying_little(dim=DIM - 16)
    assert leading_axes.of_rows(space, everyone(space), None, 1).rows.base is space


def test_rows_that_take_no_part_do_not_choose_the_axes():
    space = varying_little()
    others = np.random.default_rng(3).standard_normal((ROWS, DIM)).astype(np.float32) * 1e6
    leading = leading_axes.of_rows(np.concatenate([space, others]), everyone(space), None, 1)
    assert leading.rows.shape == (2 * ROWS, 48)


def test_a_file_that_holds_them_has_no_name_and_nothing_depends_on_it_or_on_threads(tmp_path):
    space = varying_little()
    kept = leading_axes.of_rows(space, everyone(space), None, 1)
    mapped = leading_axes.of_rows(space, everyone(space), tmp_path, 3)
    assert list(tmp_path.iterdir()) == []
    assert np.array_equal(kept.rows, mapped.rows)
    assert np.array_equal(kept.rest, mapped.rest)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30, 1e37])
def test_rows_whose_squares_leave_float32_are_borne(scale):
    space = varying_little(scale=scale)
    leading = leading_axes.of_rows(space, everyone(space), None, 2)
    assert len(leading.rows) == len(leading.rest) == ROWS


def lists_of(space, threads, folder):
    return bulk_build.build(
        space,
        everyone(space),
        most=16,
        alpha=1.2,
        plan=bulk_build.Plan(leaf=256, fan=4),
        seed=[5],
        threads=threads,
        folder=folder,
        progress=lambda share: None,
    )


def test_a_build_finds_along_few_axes_what_it_finds_by_whole_rows(tmp_path, monkeypatch):
    space = varying_little()
    found, degrees = lists_of(space, 1, None)
    again, _ = lists_of(space, 3, tmp_path)
    assert np.array_equal(found, again)

    monkeypatch.setattr(leading_axes, "WORTH", 0.0)
    whole, degrees_of_whole = lists_of(space, 1, None)
    assert not np.array_equal(found, whole)
    nearest = brute_force.search(space, space, 2, METRICS["l2"], threads=2)[0][:, 1].tolist()

    def share_of_nearest(lists, counts):
        rows = zip(lists.tolist(), counts.tolist(), nearest, strict=True)
        return np.mean([row in line[:count] for line, count, row in rows])

    assert share_of_nearest(whole, degrees_of_whole) > 0.8
    assert share_of_nearest(found, degrees) > 0.98 * share_of_nearest(whole, degrees_of_whole)
