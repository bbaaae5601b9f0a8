"""What must hold for any graph."""

import numpy as np


def assert_is_a_graph_all_of_which_can_be_reached(graph):
    rows, most = graph.rows, graph.max_degree
    assert graph.degrees.max(initial=0) <= most
    used = np.arange(most)[None] < graph.degrees[:, None]
    sources = np.repeat(np.arange(rows), graph.degrees)
    targets = graph.neighbours[used].astype(np.int64)
    assert (targets < rows).all()
    assert (sources != targets).all()
    assert len(np.unique(sources * rows + targets)) == len(targets)
    reached = np.zeros(rows, bool)
    front = np.array([graph.entry])
    while len(front):
        reached[front] = True
        following = np.unique(graph.neighbours[front][used[front]].astype(np.int64))
        front = following[~reached[following]]
    assert reached.all()
