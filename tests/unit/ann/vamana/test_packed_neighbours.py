"""The neighbours of a graph, taken out of its packed nodes."""

import numpy as np
import pytest

from puffin_ann.ann.vamana.packed import layout
from puffin_ann.ann.vamana.packed.neighbours import neighbours_in, open_neighbours

ROWS = 700


def a_graph(most, longest):
    """Neighbours, 0 beyond the degree, and degrees up to the longest of them."""
    generator = np.random.default_rng(most)
    degrees = generator.integers(0, longest + 1, ROWS).astype(np.uint16)
    degrees[3] = longest
    neighbours = generator.integers(0, ROWS, (ROWS, most)).astype(np.uint32)
    neighbours[np.arange(most) >= degrees[:, None]] = 0
    return neighbours, degrees


def packed(dim, neighbours, degrees, folder=None):
    space = np.random.default_rng(0).standard_normal((ROWS, dim)).astype(np.float32)
    return layout.make(space, space, neighbours, degrees, threads=1, folder=folder)


@pytest.mark.parametrize("dim", [96, 272])
@pytest.mark.parametrize(
    ("most", "longest"), [(8, 8), (32, 32), (32, 5), (64, 64), (40, 37), (64, 20), (100, 70)]
)
def test_they_are_those_it_was_made_of(dim, most, longest):
    neighbours, degrees = a_graph(most, longest)
    made = packed(dim, neighbours, degrees)
    np.testing.assert_array_equal(neighbours_in(made.array, made.layout, most), neighbours)


@pytest.mark.parametrize("dim", [96, 272])
def test_a_graph_without_links_has_none(dim):
    neighbours, degrees = a_graph(16, 0)
    made = packed(dim, neighbours, degrees)
    assert made.layout.blocks == 0
    np.testing.assert_array_equal(neighbours_in(made.array, made.layout, 16), neighbours)


def test_a_row_that_is_not_there_is_told():
    neighbours, degrees = a_graph(32, 32)
    neighbours[11, 0], degrees[11] = ROWS - 1, 1
    made = packed(96, neighbours, degrees)
    with pytest.raises(ValueError, match="rows that are not there"):
        neighbours_in(made.array[: ROWS - 1], made.layout, 32)


def test_those_of_another_order_of_codes_will_do_and_no_others(tmp_path):
    neighbours, degrees = a_graph(32, 32)
    packed(96, neighbours, degrees, tmp_path)
    others = tmp_path / f"records-{layout.FORM}-otherwise.npy"
    (tmp_path / layout.PACKED).rename(others)
    np.testing.assert_array_equal(open_neighbours(tmp_path, 96, degrees, 32), neighbours)
    with pytest.raises(ValueError, match="has shape"):
        open_neighbours(tmp_path, 112, degrees, 32)
    others.rename(tmp_path / f"records-{layout.FORM + 1}-otherwise.npy")
    with pytest.raises(FileNotFoundError, match="neither neighbours nor packed nodes"):
        open_neighbours(tmp_path, 96, degrees, 32)
