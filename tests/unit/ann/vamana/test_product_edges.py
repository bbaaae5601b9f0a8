"""Edges by inner product: where they lead, and what searches gain by them."""

from collections.abc import Iterator

import numpy as np
import pytest

from puffin_ann.ann.core import lasting_masks
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.graph import space as spaces
from puffin_ann.ann.graph.arguments import Adjacency
from puffin_ann.ann.vamana import product_edges
from puffin_ann.ann.vamana.incremental import incremental_build
from puffin_ann.ann.vamana.search import LinkedInSpace, Searcher

ROWS, DIMENSION, MOST = 2000, 24, 32


def rows_of_many_lengths(n, sigma=0.3, seed=0):
    """Return rows of a few dimensions that matter, scaled by log-normal numbers."""
    generator = np.random.default_rng(seed)
    axes = np.random.default_rng(9).standard_normal((8, DIMENSION))
    rows = generator.standard_normal((n, 8)) @ axes
    rows += 0.3 * generator.standard_normal((n, DIMENSION))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows * np.exp(sigma * generator.standard_normal((n, 1)))).astype(np.float32)


def graph_of(vectors, folder):
    space = spaces.of_rows(vectors, "ip", folder / "space.npy", lasting=False)
    graph = incremental_build.build(space, most=MOST, keep=64, alpha=1.2, seed=[0], threads=1)
    return space, graph


def with_edges(space, graph, *, first=0, deleted=None, threads=2):
    grown = Adjacency(graph.neighbours.copy(), graph.degrees.copy(), graph.entry)
    product_edges.add(
        space,
        grown,
        DIMENSION,
        first=first,
        deleted=deleted,
        threads=threads,
    )
    return grown


def edges_added(before, after) -> Iterator[tuple[int, int]]:
    """Return the edges that one graph has more than another, which keeps its own."""
    for row in range(len(before.degrees)):
        old, new = before.degrees[row], after.degrees[row]
        np.testing.assert_array_equal(after.neighbours[row, :old], before.neighbours[row, :old])
        assert old <= new <= MOST
        line = after.neighbours[row, :new].tolist()
        assert len(set(line)) == len(line)
        assert row not in line
        for other in line[old:]:
            yield row, other


def recall(vectors, space, graph, queries, width):
    truth = brute_force.search(queries, vectors, 10, "ip")[0]
    linked = LinkedInSpace("ip", vectors, space, graph.neighbours, graph.degrees, MOST, graph.entry)
    found = Searcher(linked, beam="full").search(queries, 10, width=width)[0]
    return (found[:, :, None] == truth[:, None, :]).any(axis=1).mean()


def test_narrow_searches_find_more(tmp_path):
    vectors, queries = rows_of_many_lengths(ROWS), rows_of_many_lengths(200, seed=1)
    space, graph = graph_of(vectors, tmp_path)

    grown = with_edges(space, graph)

    before, after = (recall(vectors, space, one, queries, 16) for one in (graph, grown))
    assert after >= before + 0.05


def test_an_edge_leads_to_what_no_neighbour_has_a_larger_product_with(tmp_path):
    vectors = rows_of_many_lengths(ROWS)
    space, graph = graph_of(vectors, tmp_path)
    grown = with_edges(space, graph)
    products = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    shortest = np.sort(np.linalg.norm(vectors, axis=1))[ROWS // 2]

    added = list(edges_added(graph, grown))

    assert len(added) > ROWS // 10
    for row, other in added:
        line = grown.neighbours[row, : grown.degrees[row]].tolist()
        before = line[: line.index(other)]
        assert (products[before, other] <= products[row, other] * (1 + 1e-5)).all()
        assert min(np.linalg.norm(vectors[[row, other]], axis=1)) >= shortest * (1 - 1e-5)


@pytest.mark.parametrize("sigma", [0.0, 0.02, 1.0])
def test_rows_that_are_equally_long_or_most_unlike_keep_their_graph(sigma, tmp_path):
    space, graph = graph_of(rows_of_many_lengths(ROWS, sigma), tmp_path)
    assert list(edges_added(graph, with_edges(space, graph))) == []


def test_the_number_of_threads_does_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(product_edges, "ASKED", 64)
    space, graph = graph_of(rows_of_many_lengths(ROWS), tmp_path)
    one, other = (with_edges(space, graph, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.neighbours, other.neighbours)
    np.testing.assert_array_equal(one.degrees, other.degrees)


def test_deleted_rows_get_none_and_none_leads_to_them(tmp_path):
    vectors = rows_of_many_lengths(ROWS)
    space, graph = graph_of(vectors, tmp_path)
    deleted = (np.arange(ROWS - 100) % 3 == 0).astype(np.uint8)

    added = np.array(list(edges_added(graph, with_edges(space, graph, deleted=deleted))))

    assert len(added)
    assert not deleted[added[added < len(deleted)]].any()


def test_lists_that_lead_past_deleted_rows_have_them(tmp_path, monkeypatch):
    monkeypatch.setattr(lasting_masks, "LEAST_ROWS", 0)
    vectors, queries = rows_of_many_lengths(ROWS), rows_of_many_lengths(200, seed=1)
    space, graph = graph_of(vectors, tmp_path)
    deleted = (np.arange(ROWS) % 4 == 0).astype(np.uint8)
    live = np.flatnonzero(deleted == 0)
    truth = live[brute_force.search(queries, vectors[live], 10, "ip")[0]]

    def found(grown):
        linked = LinkedInSpace(
            "ip", vectors, space, grown.neighbours, grown.degrees, MOST, grown.entry
        )
        searcher = Searcher(linked, beam="full")
        searcher.expect(deleted)
        ids = searcher.search(queries, 10, width=12, deleted=deleted)[0]
        return (ids[:, :, None] == truth[:, None, :]).any(axis=1).mean()

    after = found(with_edges(space, graph))
    monkeypatch.setattr(product_edges, "add", lambda *_, **__: None)

    assert after >= found(graph) + 0.05


def test_none_is_added_where_all_rows_are_deleted(tmp_path):
    space, graph = graph_of(rows_of_many_lengths(300), tmp_path)
    grown = with_edges(space, graph, deleted=np.ones(300, np.uint8))
    assert list(edges_added(graph, grown)) == []


def test_what_is_added_later_has_edges_to_or_from_new_rows_alone(tmp_path):
    space, graph = graph_of(rows_of_many_lengths(ROWS), tmp_path)
    first = ROWS - 300

    added = np.array(list(edges_added(graph, with_edges(space, graph, first=first))))

    is_new = added >= first
    assert is_new.any(axis=1).all()
    assert is_new[:, 0].any()
    assert (~is_new[:, 0]).any()


def test_of_equal_rows_one_gets_edges(tmp_path):
    vectors = rows_of_many_lengths(600)
    longest = int(np.linalg.norm(vectors, axis=1).argmax())
    copies = np.setdiff1d(np.arange(0, 600, 5), [longest])
    vectors[copies] = vectors[longest]
    space, graph = graph_of(vectors, tmp_path)

    added = list(edges_added(graph, with_edges(space, graph)))

    equal = {int(row) for row in copies} | {longest}
    assert added
    assert {row for edge in added for row in edge} & equal <= {min(equal)}
