"""To gather rows is dealt out among the queries that would have gained by it."""

import math
from types import SimpleNamespace

import pytest

from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.decisions import Decisions
from puffin_ann.search.conditions.sifted import Sifted
from puffin_ann.search.shards.costs import Costs

ROWS = 1_000_000


@pytest.fixture
def costs():
    routing = SimpleNamespace(
        algorithm="vamana", dimension=128, search_width=16, graph_ids=range(4), shards=range(4)
    )
    return Costs(SimpleNamespace(routing=routing, vectors=ROWS), lambda: Coding.NEVER)


def gathered(*codings: Coding) -> SimpleNamespace:
    return SimpleNamespace(rows=SimpleNamespace(codings=lambda *_: codings))


def allowed(share: float, sharing: int) -> SimpleNamespace:
    return SimpleNamespace(
        rows_answered=round(share * ROWS),
        share=share,
        worth_of_mask=1.0,
        gathered=None,
        sharing=sharing,
        can_be_gathered=lambda dimension: True,
        sifted=Sifted(),
        decisions=Decisions(),
    )


def test_rows_are_copied_once_enough_queries_asked_that_copies_would_have_served(costs):
    pays = [
        costs.comparing_pays(allowed(0.1, sharing), 8, fits=True, is_told=False)
        for sharing in (8, 10_000)
    ]
    assert pays == [False, True]


def test_who_is_sifted_gains_by_copies_what_these_take_less_than_that(costs):
    few, many = allowed(0.001, 1), allowed(0.1, 1)
    assert costs.gain_of_gathering((60.0, 30.0), many, 100) == 0.0
    wide, wider = (costs.gain_of_gathering((width, 30.0), few, 100) for width in (60.0, 90.0))
    assert 0.0 < wide < wider < 1.0
    assert costs.gain_of_gathering((1e6, 1e6), few, 100) == 1.0


def queries_until_compared(costs, effort, share):
    """Return how many queries are sifted, one a call, before rows are gathered."""
    asked = allowed(share, 0)
    settled = 0.0
    for number in range(1, 10_000):
        asked.sharing = 2 * (number - settled)
        if not next(costs.sifting_pays([effort], share, asked, 1)):
            return number - 1
        settled += 1.0 - costs.gain_of_gathering(effort, asked, 1)
    return 10_000


def test_who_is_sifted_is_compared_once_the_queries_together_gained_what_gathering_takes(costs):
    rows = allowed(0.004, 1).rows_answered
    gathered = ways.compared(rows, 128, 1, math.inf, by_signs=False)
    once = ways.compared(rows, 128, 1, 1.0, by_signs=False) - gathered
    found = []
    for width in (50.0, 60.0, 100.0, 400.0):
        effort = width, 10.0
        gain = ways.sifted("vamana", 128, *effort, 1) + ways.CALLED_TO_SIFT - gathered
        found.append(queries_until_compared(costs, effort, 0.004))
        # One of eight is expected to be left short of rows before any was sifted, and gains more.
        assert found[-1] <= math.ceil(once / (2 * gain)) + 1
    assert found == sorted(found, reverse=True)
    assert found[0] > 2


def test_who_would_gain_nothing_by_copies_is_sifted_for_ever(costs):
    asked = allowed(0.5, 10_000)
    assert next(costs.sifting_pays([(4.0, 10.0)], 0.5, asked, 1))
    asked.gathered = gathered(Coding.SIGNS, Coding.SIGNS)
    assert next(costs.sifting_pays([(4.0, 10.0)], 0.5, asked, 1))
    assert not next(costs.sifting_pays([(1e6, 10.0)], 0.5, asked, 1))


def test_rows_that_are_gathered_cost_what_comparing_them_in_their_form_does(costs):
    def told(*codings):
        some = allowed(0.1, 1)
        some.gathered = gathered(*codings)
        return costs.of_comparisons(some, 1)["gathered rows"]

    by_signs, by_codes = told(Coding.SIGNS, Coding.SIGNS), told(Coding.DONE, Coding.DONE)
    assert by_codes > 2 * by_signs  # as it is once these were let go
