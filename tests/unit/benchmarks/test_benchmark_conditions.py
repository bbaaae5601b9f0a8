import numpy as np
import pytest

from benchmarks import conditions
from benchmarks.condition_peers import GRAPH_ROWS, told_of_graphs
from benchmarks.data import DataSet


@pytest.mark.parametrize(("rows", "are_told"), [(GRAPH_ROWS, 0), (GRAPH_ROWS + 1, 1)])
def test_where_peers_have_no_graph_it_is_told(rows, are_told):
    assert len(told_of_graphs("rows", rows)) == are_told


def test_the_first_search_is_told_of_half_of_the_rows_and_of_few(monkeypatch):
    asked = []

    def first_and_again(index, data, where):
        asked.append(where)
        return 0.002, 0.001

    monkeypatch.setattr(conditions, "_first_and_again", first_and_again)
    rows = np.zeros((1000, 2), np.float32)
    data = DataSet("glove-100d", rows, rows[:1], np.zeros((1, 10), np.int64))

    (fact,) = conditions._cold(data, index=None)

    assert set(asked) == {
        *("draw < 500", "unindexed < 500", "part < 4"),
        *("draw < 10", "unindexed < 10"),
    }
    assert "half of the rows allowed, first from included columns 2.0 ms (again 1.00 ms)" in fact
    assert "1 % of them allowed, first from included columns 2.0 ms (again 1.00 ms)" in fact
