"""Packed nodes against references in NumPy: how they are made, and how they are searched."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.graph import space as spaces
from puffin_ann.ann.graph.arguments import Pools
from puffin_ann.ann.graph.primitives import row_of, squared_of
from puffin_ann.ann.signs import kernels_tables as sign_tables
from puffin_ann.ann.simd import fastscan, kernels_byte_rows
from puffin_ann.ann.vamana.packed import (
    kernels_edges,
    kernels_pack,
    kernels_pool,
    kernels_tables,
    kernels_walk,
)
from puffin_ann.ann.vamana.packed import (
    layout as packed_layout,
)
from puffin_ann.ann.vamana.packed.layout import Frame, Layout
from puffin_ann.ann.vamana.search import Linked, Searcher

LEVELS = np.array([-1.5104, -0.4528, 0.4528, 1.5104])
BORDER = 0.9816


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def some_graph(rows, most, seed=0):
    """Return neighbours and degrees of a ring with random chords: every row can be reached."""
    generator = np.random.default_rng(seed)
    neighbours = np.zeros((rows, most), np.uint32)
    degrees = generator.integers(1, most + 1, rows).astype(np.uint16)
    for row in range(rows):
        others = np.setdiff1d(generator.integers(0, rows, most), [row, (row + 1) % rows])
        line = np.concatenate([[(row + 1) % rows], others])[: degrees[row]]
        degrees[row] = len(line)
        neighbours[row, : len(line)] = line
    return neighbours, degrees


def rotated(frame, rows):
    """Rows in the frame, in float64."""
    moved = (rows.astype(np.float64) - frame.origin) * frame.scale
    cells = moved.reshape(len(rows), -1, 16)
    across, within = frame.across.astype(np.float64), frame.within.astype(np.float64)
    return np.einsum("ij,njl,lm->nim", across, cells, within).reshape(len(rows), -1)


def coded_row(row):
    """Codes of a row in steps, the step, and the squared length of what they lack."""
    step = np.abs(row).max() / 127
    codes = np.floor(row / step + 0.5)
    return codes, step, ((row - codes * step) ** 2).sum()


def coded(edges):
    """Codes of 4 bits of edges, and the vectors they stand for: by 1 bit a dimension, or by 2."""
    signs = (edges > 0).astype(np.uint8)
    if edges.shape[1] >= packed_layout.WIDE:
        return sum(signs[:, z::4] << z for z in range(4)), np.where(signs, 1.0, -1.0)
    deviation = np.sqrt((edges**2).mean(axis=1, keepdims=True))
    outer = (np.abs(edges) > BORDER * deviation).astype(np.uint8)
    codes = sum((signs[:, z::2] | outer[:, z::2] << 2) << z for z in range(2))
    return codes, LEVELS[np.where(signs, 2 + outer, 1 - outer)]


def tables_of(query):
    """Return the tables of a query, as `(codes, 16)`, their step, and their base."""
    bits = Layout(len(query), 1).bits
    tables = np.empty((len(query) * bits // 4, 16), np.uint8)
    query = np.ascontiguousarray(query, np.float32)
    step, base = sign_tables.tables_of(query, bits, tables.reshape(-1), np.empty_like(query))
    return tables, step, base


class Reference:
    """What packed nodes should hold."""

    def __init__(self, space, neighbours, degrees):
        self.frame = Frame.of(space)
        self.rows = rotated(self.frame, space)
        self.lists = [line[:degree] for line, degree in zip(neighbours, degrees, strict=True)]

    def measured(self, node, query):
        """Squared distance of a node's own row: by its codes if it is wide."""
        row = self.rows[node]
        if len(row) < packed_layout.WIDE:
            return ((row - query) ** 2).sum()
        codes, step, lacking = coded_row(row)
        return max(((codes * step - query) ** 2).sum() - lacking, 0.0)

    def edges_of(self, node):
        """Return codes, sums and factors of a node's edges."""
        own = self.rows[node]
        edges = self.rows[self.lists[node]] - own
        codes, words = coded(edges)
        squares = (edges**2).sum(axis=1)
        factors = 2 * squares / np.maximum((words * edges).sum(axis=1), 1e-30)
        return codes, squares + factors * (words @ own), -factors

    def estimates(self, node, query, tables, step, base):
        """Squared distances of a node's neighbours, by a query's tables of bytes."""
        codes, sums, factors = self.edges_of(node)
        chosen = tables[np.arange(codes.shape[1]), codes]
        own = self.measured(node, query)
        sums, factors = in_two_bytes(sums), in_two_bytes(factors)
        return own + sums + factors * (step * chosen.sum(axis=1, dtype=np.int64) + base)


def in_two_bytes(values):
    """Round to the upper halves of float32."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    upper = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint32)
    return (upper << 16).view(np.float32).astype(np.float64)


def parts_of(made, node, block):
    """Cut a node into its head, and a block's codes, sums, factors, rows."""
    layout, packed = made.layout, made.array[node]
    at = kernels_pack.HEAD_BYTES + layout.row_bytes
    at += block * (layout.code_bytes + kernels_edges.TAIL_BYTES)
    tail = packed[at + layout.code_bytes :]
    sums, factors = (
        (tail[first : first + 64].view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        for first in (0, 64)
    )
    codes = packed[at : at + layout.code_bytes]
    return packed[:12], codes, sums, factors, tail[128:256].view(np.uint32)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("rows", "width", "most"),
    [(40, 16, 5), (90, 112, 64), (50, 240, 33), (40, 256, 64), (50, 400, 33)],
)
def test_records_hold_what_their_twin_does(rows, width, most, threads, monkeypatch):
    monkeypatch.setattr(packed_layout, "MADE_ROWS", 7)
    space = 5 + normal(rows, width)
    neighbours, degrees = some_graph(rows, most)
    made = packed_layout.make(space, space, neighbours, degrees, threads=threads)
    reference = Reference(space, neighbours, degrees)
    assert made.array.shape == (rows, made.layout.stride)
    assert made.layout.bits == (1 if width >= 256 else 2)
    for node in range(rows):
        expected, sums, factors = reference.edges_of(node)
        for block in range(math.ceil(degrees[node] / 32)):
            here = slice(32 * block, min(32 * block + 32, degrees[node]))
            count = here.stop - here.start
            head, codes, got_sums, got_factors, numbers = parts_of(made, node, block)
            assert head[:4].view(np.uint32)[0] == degrees[node]
            if width < packed_layout.WIDE:
                assert head[4:12].view(np.float32).tolist() == [made.frame.scale, 0.0]
            assert numbers[:count].tolist() == reference.lists[node][here].tolist()
            np.testing.assert_allclose(got_sums[:count], sums[here], rtol=4e-3, atol=1e-5)
            np.testing.assert_allclose(got_factors[:count], factors[here], rtol=4e-3, atol=1e-6)
            np.testing.assert_array_equal(codes, fastscan.pack(expected[here]).reshape(-1))


@pytest.mark.parametrize("width", [256, 400])
def test_wide_rows_are_in_their_nodes_by_codes(width):
    space = 5 + normal(50, width)
    neighbours, degrees = some_graph(50, 33)
    made = packed_layout.make(space, space, neighbours, degrees, threads=2)
    rows = rotated(made.frame, space)
    assert made.layout.row_bytes % 64 == 0
    assert made.layout.row_bytes >= width
    for node in range(50):
        _, step, lacking = coded_row(rows[node])
        got_step, got_lacking = made.array[node, 4:12].view(np.float32).astype(np.float64)
        assert got_step == pytest.approx(step, rel=1e-5)
        assert got_lacking == pytest.approx(-lacking, rel=1e-2)
        codes = made.array[node, kernels_pack.HEAD_BYTES :][:width].astype(np.int64)
        assert np.abs((codes - kernels_byte_rows.MIDDLE) * step - rows[node]).max() <= 0.501 * step


@pytest.mark.parametrize("folder", [True, False])
def test_files_hold_what_memory_does(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_layout, "MADE_ROWS", 7)
    monkeypatch.setattr(packed_layout.LargeWrites, "PIECE", 5000)
    space = normal(100, 304)
    neighbours, degrees = some_graph(100, 40)
    where = tmp_path if folder else None
    made = packed_layout.make(space, space, neighbours, degrees, threads=2, folder=where)
    alone = packed_layout.make(space, space, neighbours, degrees, threads=1)
    np.testing.assert_array_equal(made.array, alone.array)


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_a_head_makes_a_stored_row_one_of_the_space(metric, tmp_path):
    vectors = normal(60, 100) * np.exp(normal(60, 1, 1))
    vectors[7] = 0
    space = spaces.of_rows(vectors, metric, tmp_path / "space.npy")
    neighbours, degrees = some_graph(60, 8)
    made = packed_layout.make(vectors, space, neighbours, degrees, threads=1)
    factors, addends = made.array[:, 4:12].copy().view(np.float32).T.astype(np.float64)
    query = normal(1, 100, 5)[0].astype(np.float64)
    expected = space.astype(np.float64)
    expected[:, :100] -= query
    expected = (expected**2).sum(axis=1) * made.frame.scale**2
    measured = ((vectors * factors[:, None] - query * made.frame.scale) ** 2).sum(axis=1) + addends
    if metric == "cosine":  # which way a row without a direction lies does not matter, if it is far
        assert measured[7] > 16 * made.frame.scale**2
        expected[7] = measured[7]
    np.testing.assert_allclose(measured, expected, rtol=1e-5)


@pytest.mark.parametrize("width", [16, 112, 384])
def test_tables_say_what_a_code_adds(width):
    query = normal(1, width)[0]
    tables, step, base = tables_of(query)
    codes = np.arange(16)[:, None]
    if width >= 256:
        words = np.where(codes >> np.arange(4) & 1, 1.0, -1.0)
    else:
        signs, outer = codes >> np.arange(2) & 1, codes >> np.arange(2, 4) & 1
        words = LEVELS[np.where(signs, 2 + outer, 1 - outer)]
    expected = query.reshape(-1, words.shape[1]) @ words.T
    least = expected.min(axis=1, keepdims=True)
    assert base == pytest.approx(least.sum(), rel=1e-5)
    assert step == pytest.approx((expected - least).max() / 255, rel=1e-5)
    np.testing.assert_allclose(step * tables + least, expected, atol=0.51 * step)


def walked(space, neighbours, degrees, query, keep, wanted):
    """A beam over estimates, every expanded row measured: `walk` in plain Python."""
    reference = Reference(space, neighbours, degrees)
    placed = rotated(reference.frame, query[None])[0]
    tables = tables_of(placed)
    once = Layout(len(query), 1).bits == 2
    pool, seen, done, best = [(0.0, 0)], {0}, set(), []
    while True:
        node = next((row for _, row in pool if row not in done), None)
        if node is None:
            return sorted(best)[:wanted]
        done.add(node)
        best.append((reference.measured(node, placed), node))
        found = reference.estimates(node, placed, *tables)
        for first in range(0, len(found), 32):
            last = pool[-1] if len(pool) == keep else (math.inf, 0)
            fresh = []
            for place in range(first, min(first + 32, len(found))):
                row, value = int(reference.lists[node][place]), max(found[place], 0.0)
                if found[place] < last[0] and row not in (seen if once else done):
                    fresh.append((value, row))
            seen |= {row for _, row in fresh}
            pool = sorted(pool + fresh)[:keep]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("keep", [12, 40])
@pytest.mark.parametrize("width", [96, 272])
def test_walking_finds_what_its_reference_does(seed, keep, width):
    space, query = normal(300, width, seed), normal(1, width, seed + 100)
    neighbours, degrees = some_graph(300, 40, seed)
    made = packed_layout.make(space, space, neighbours, degrees, threads=1)
    frame, layout = made.frame, made.layout
    placed = rotated(frame, query)[0]
    tables, step, base = tables_of(placed)
    asked = placed.astype(np.float32) if layout.row_bytes else query[0] * np.float32(frame.scale)
    best, flat = np.empty(11, np.uint64), made.array.reshape(-1)
    nodes = kernels_tables.PackedGraph(
        bytes=flat, numbers=flat.view(np.uint32), stride=layout.stride,
        bits=layout.bits, row_bytes=layout.row_bytes, code_bytes=layout.code_bytes,
        most=layout.most, entry=0,
        origin=frame.origin, scale=frame.scale, across=frame.across, within=frame.within,
        length=0.0,
    )  # fmt: skip
    pools = Pools(
        np.empty(keep + kernels_pool.BEYOND, np.uint64),
        keep,
        np.empty(2 + kernels_pool.LANES, np.uint64),
        np.empty(0, np.uint8),
    )
    near = np.zeros(200, np.uint64)
    found, is_full, seen, wanted = kernels_walk.walk(
        nodes,
        space.reshape(-1),
        kernels_tables.PlacedQuery(asked, tables.reshape(-1), step, base),
        pools,
        np.empty(0, np.uint8),
        np.zeros(300, np.uint8),
        np.uint8(2),
        best,
        near,
        np.empty(kernels_pool.fresh_room.py_func(keep), np.uint64),
        np.empty(32, np.float32),
    )
    assert is_full
    assert found <= seen == wanted
    assert set(best[:found].tolist()) <= set(near[:wanted].tolist())
    expected = walked(space, neighbours, degrees, query[0], keep, 10)
    assert [int(row_of.py_func(key)) for key in best[:found]] == [row for _, row in expected]
    distances = [float(squared_of.py_func(key)) for key in best[:found]]
    # A number between two codes may be rounded either way.
    np.testing.assert_allclose(distances, [distance for distance, _ in expected], rtol=5e-4)


def test_estimates_have_no_bias_and_an_error_that_shrinks_with_the_width():
    errors = {}
    for width in (96, 240, 256, 1024):
        space, queries = normal(2000, width), normal(8, width, 1)
        neighbours, degrees = some_graph(2000, 32)
        reference = Reference(space, neighbours, degrees)
        errors_here, distances = [], []
        for query in rotated(reference.frame, queries):
            tables = tables_of(query)
            for node in range(0, 2000, 8):
                true = ((reference.rows[reference.lists[node]] - query) ** 2).sum(axis=1)
                errors_here.append(reference.estimates(node, query, *tables) - true)
                distances.append(true)
        mean = np.concatenate(distances).mean()
        assert abs(np.concatenate(errors_here).mean()) < 0.002 * mean
        errors[width] = np.concatenate(errors_here).std() / mean
    assert errors[96] < 0.1
    assert errors[240] < 0.75 * errors[96]
    assert errors[240] < errors[256] < 0.15
    assert errors[1024] < 0.6 * errors[256]


@given(
    seed=st.integers(0, 2**32 - 1),
    dimension=st.one_of(st.integers(1, 40), st.integers(250, 290)),
    metric=st.sampled_from(sorted(METRICS)),
    k=st.integers(1, 40),
    deleted_share=st.sampled_from([0.0, 0.0, 0.1, 0.6]),
    scale=st.sampled_from([1e-12, 1.0, 1e12]),
    query_scale=st.sampled_from([1e-9, 1.0, 1.0, 1e9]),
    spread=st.sampled_from([2, 100]),
)
@settings(max_examples=120, deadline=None)
def test_a_walk_over_everything_gives_the_answers_of_brute_force(
    tmp_path_factory, seed, dimension, metric, k, deleted_share, scale, query_scale, spread
):
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-spread, spread, (400, dimension)).astype(np.float32)
    vectors *= np.float32(scale)
    queries = (generator.standard_normal((3, dimension)) * scale * query_scale).astype(np.float32)
    queries[0] = vectors[7]
    path = tmp_path_factory.mktemp("space") / "space.npy"
    space = spaces.of_rows(vectors, metric, path)
    neighbours, degrees = some_graph(400, 8, seed)
    linked = Linked(metric, vectors, space, neighbours, degrees, 8, 3)
    made = packed_layout.make(vectors, space, neighbours, degrees, threads=1)
    zero_rows = spaces.zero_rows(path) if metric == "cosine" else None
    searcher = Searcher(linked, packed=made, zero_rows=zero_rows, beam="edges")
    assert searcher.beam == "edges"
    deleted = (generator.random(400) < deleted_share).astype(np.uint8) if deleted_share else None
    ids, distances = searcher.search(queries, k, width=400, deleted=deleted)
    wanted = METRICS[metric].distances(queries, vectors)
    if deleted is not None:
        wanted[:, deleted > 0] = np.inf
    expected = np.sort(wanted, axis=1)[:, :k]
    np.testing.assert_array_equal(distances, expected)
    np.testing.assert_array_equal(distances, np.take_along_axis(wanted, ids, axis=1))
    assert all(len(set(line)) == k for line in ids.tolist())


@pytest.mark.parametrize("width", [96, 272])
def test_records_need_not_be_trusted(width):
    vectors, queries = normal(600, width), normal(40, width, 1)
    neighbours, degrees = some_graph(600, 12)
    made = packed_layout.make(vectors, vectors, neighbours, degrees, threads=1)
    for seed in range(20):
        generator = np.random.default_rng(seed)
        corrupted = made.array.copy()
        where = generator.integers(0, corrupted.size, 10 ** (1 + seed % 5))
        corrupted.reshape(-1)[where] = generator.integers(0, 256, len(where))
        linked = Linked("l2", vectors, vectors, neighbours, degrees, 12, 0)
        searcher = Searcher(
            linked, packed=packed_layout.PackedNodes(made.layout, made.frame, corrupted)
        )
        ids, distances = searcher.search(queries, 10, width=60)
        np.testing.assert_array_equal(
            distances, METRICS["l2"].pair_distances(queries, vectors, ids)
        )
        assert all(len(set(line)) == 10 for line in ids.tolist())


@pytest.mark.parametrize("size", [1e25, 1e-40, 1e-25])
def test_rows_of_extreme_length_have_no_records(size):
    space = (normal(50, 96) * size).astype(np.float32)
    assert packed_layout.make(space, space, *some_graph(50, 4), threads=1) is None


def test_one_row_far_away_does_not_move_the_origin():
    space = normal(2000, 96)
    space[77] *= 1e8
    assert np.abs(Frame.of(space).origin).max() < 1


def test_rows_that_are_all_alike_have_records():
    for space in (np.zeros((300, 96), np.float32), np.ones((300, 96), np.float32)):
        neighbours, degrees = some_graph(300, 8)
        linked = Linked("l2", space, space, neighbours, degrees, 8, 0)
        made = packed_layout.make(space, space, neighbours, degrees, threads=1)
        ids, distances = Searcher(linked, packed=made).search(space[:2], 5, width=20)
        assert (distances == 0).all()
        assert (ids >= 0).all()


def test_a_frame_survives_its_file():
    frame = Frame.of(normal(200, 48) * np.float32(1e-12))
    again = Frame.from_flat(frame.flat(), 48)
    assert again.scale == frame.scale
    for name in ("origin", "across", "within"):
        np.testing.assert_array_equal(getattr(again, name), getattr(frame, name))
    with pytest.raises(ValueError, match="rows of 64"):
        Frame.from_flat(frame.flat(), 64)


def test_a_layout_is_of_whole_cache_lines():
    for width in (16, 80, 112, 384, 1536):
        for degree in (0, 1, 32, 33, 64, 512):
            layout = Layout.of(width, np.array([degree, 0], np.uint16))
            assert layout.blocks == math.ceil(degree / 32)
            assert layout.stride % 64 == layout.code_bytes % 64 == 0
