"""To copy rows is dealt out among the queries that copies would have served."""

from types import SimpleNamespace

import pytest

from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.search.conditions.sifted import Sifted
from puffin_ann.search.shards.costs import Costs

ROWS = 1_000_000


@pytest.fixture
def costs():
    routing = SimpleNamespace(
        algorithm="vamana", dimension=128, search_width=16, graph_ids=range(4), shards=range(4)
    )
    return Costs(SimpleNamespace(routing=routing, vectors=ROWS), lambda: Coding.NEVER)


def allowed(share: float, sharing: int) -> SimpleNamespace:
    return SimpleNamespace(
        rows_answered=round(share * ROWS),
        share=share,
        worth_of_mask=1.0,
        gathered=None,
        sharing=sharing,
        sifted=Sifted(),
    )


def test_rows_are_copied_once_enough_queries_asked_that_copies_would_have_served(costs):
    pays = [
        costs.comparing_pays(allowed(0.1, sharing), 8, fits=True, is_told=False)
        for sharing in (8, 10_000)
    ]
    assert pays == [False, True]


def test_who_is_sifted_gains_by_copies_what_these_take_less_than_that(costs):
    few, many = allowed(0.001, 1), allowed(0.1, 1)
    assert costs.gain_of_copies((60.0, 30.0), many, 100) == 0.0
    wide, wider = (costs.gain_of_copies((width, 30.0), few, 100) for width in (60.0, 90.0))
    assert 0.0 < wide < wider < 1.0
    assert costs.gain_of_copies((1e6, 1e6), few, 100) == 1.0
