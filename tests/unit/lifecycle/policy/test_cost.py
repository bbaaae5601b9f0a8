"""What work is expected to take: what makes it more, and what it does not depend on."""

from dataclasses import replace

import pytest

from puffin_ann.declaration import CENTROID, EXACT
from puffin_ann.lifecycle.policy import cost
from puffin_ann.lifecycle.policy.decision import Rates
from tests.support.indexes.index_states import delta, graph, state

SLOW = Rates(read=1000.0, insert=10.0, build=100.0, copy_bytes=1e6)


def test_a_shard_that_is_left_alone_writes_nothing():
    shard = replace(graph(rows=1000), tombstone_bytes=500)
    expected = cost.untouched(state(rates=SLOW), shard)
    assert (expected.written, expected.copied) == (0, 1000 * 628 + 500)
    assert expected.seconds == pytest.approx(expected.copied / 1e6)


def test_tombstones_cost_by_deleted_rows_and_copy_the_rest():
    few, many = (cost.masked(state(), graph(), deleted) for deleted in (10, 1010))
    assert many.written - few.written == 1000 * cost.TOMBSTONE_BYTES
    assert few.copied == many.copied == 50_000 * 628


def test_new_locators_are_written_instead_of_copied():
    masked, remapped = cost.masked(state(), graph(), 10), cost.remapped(state(), graph(), 10)
    locators = graph().rows_bytes
    assert remapped.written == masked.written + locators
    assert remapped.copied == masked.copied - locators


def test_a_row_that_is_inserted_costs_a_search_and_one_of_an_exact_index_does_not():
    graphs = state(rates=SLOW)
    flat = state(rates=SLOW, algorithm=EXACT)
    added = [
        cost.merged(given, graph(), 0, 1000).seconds - cost.merged(given, graph(), 0, 0).seconds
        for given in (graphs, flat)
    ]
    assert added == pytest.approx([100.0, 1.0])


def test_a_merge_writes_the_old_rows_the_new_ones_and_tombstones_only_if_any_are_deleted():
    clean = cost.merged(state(), graph(rows=1000), 0, 100)
    assert clean.written == 1100 * 628
    assert cost.merged(state(), graph(rows=1000), 5, 100).written > clean.written
    assert cost.merged(state(), graph(rows=1000, tombstones=5), 0, 100).written > clean.written


def test_a_rebuilt_shard_is_of_its_live_rows_alone():
    assert cost.rebuilt(state(), graph(rows=1000), 400).written == 400 * 628


def test_a_delta_of_few_rows_has_no_graph():
    few, more = (
        cost.new_delta(state(rates=SLOW), rows)
        for rows in (cost.COMPARED_ROWS, cost.COMPARED_ROWS + 1)
    )
    assert few.written == cost.COMPARED_ROWS * (400 + 28 + 4) + 2 * cost.BLOB_OVERHEAD
    assert more.written > cost.COMPARED_ROWS * (600 + 28)
    assert more.seconds - few.seconds > cost.COMPARED_ROWS / SLOW.build


def test_a_delta_of_no_row_is_not_written():
    assert cost.new_delta(state(), 0).written == 0


def test_rows_are_as_wide_as_those_of_the_graphs_or_as_their_vectors():
    assert cost.row_bytes(state(delta(2, 10), graph())) == (600, 28)
    assert cost.row_bytes(state(delta(2, 10))) == (400, 28)
    assert cost.row_bytes(state(delta(2, 10), metric="ip"))[0] > 400  # it is searched with one more


@pytest.mark.parametrize(("algorithm", "builds"), [("vamana", 1), (EXACT, 0), (CENTROID, 0)])
def test_a_first_build_of_what_has_no_graph_builds_none(algorithm, builds):
    rates = Rates()
    more = cost.first_build(algorithm, 20_000).seconds - cost.first_build(algorithm, 0).seconds
    assert more == pytest.approx(20_000 / rates.read + builds * 20_000 / rates.build)


def test_a_whole_build_takes_longer_than_its_rows_take_and_writes_what_is_of_no_shard():
    whole = cost.whole_build(state(rates=SLOW), 1000)
    assert whole.written == 10_000 + 1000 * 628
    assert whole.seconds > cost.BUILD_SECONDS + 1000 / SLOW.read + 1000 / SLOW.build


def test_reading_is_by_rows_and_writes_what_is_of_no_shard():
    expected = cost.reading(state(rates=SLOW), 500)
    assert expected.written == 10_000
    assert expected.seconds == pytest.approx(0.5 + 0.01)


@pytest.mark.parametrize("of", [cost.untouched, lambda *shard: cost.masked(*shard, 5)])
def test_what_is_named_where_it_is_is_not_copied(of):
    copied, named = (of(state(is_named=is_named), graph()) for is_named in (False, True))
    assert copied.copied > named.copied == 0
    assert copied.written == named.written
    assert copied.seconds > named.seconds


def test_new_locators_are_written_wherever_the_rest_is():
    copied, named = (
        cost.remapped(state(is_named=is_named), graph(), 5) for is_named in (False, True)
    )
    assert (named.copied, named.written) == (0, copied.written)
