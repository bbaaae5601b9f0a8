"""Every blob gives back what went in, and equal things give equal bytes."""

import dataclasses
import io

import numpy as np
import pytest
import zstandard
from pyroaring import BitMap

from puffin_ann.blobs.shards import graph, identities, rows
from puffin_ann.blobs.version import coverage, routing, tombstones
from puffin_ann.errors import BlobFormatError, LocalCopyError
from tests.support.indexes import rows_v1_writer, rows_with_identities
from tests.support.indexes.blob_samples import (
    same,
    sample_coverage,
    sample_graph,
    sample_routing,
    sample_rows,
    written,
)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("cells", [3, 300])
def test_routing_comes_back(metric, cells):
    value = sample_routing(metric, cells)

    assert same(routing.decode(routing.encode(value)), value)


def test_routing_without_recall_or_properties_comes_back():
    value = dataclasses.replace(sample_routing(), recall=None, properties={})

    assert same(routing.decode(routing.encode(value)), value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimension": 4},
        {"norm_bound": -1.0},
        {"probe_partitions": 7},
        {"shards": (routing.ShardEntry(0, "", 1, 1, 2, "graph"),)},
    ],
)
def test_routing_that_contradicts_itself_is_not_written(wrong):
    with pytest.raises(BlobFormatError):
        routing.encode(dataclasses.replace(sample_routing(), **wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"shards": np.full(6, 5, np.uint32)},
        {"shards": np.full(6, 7, np.uint32)},  # a delta
        {"rows": np.zeros(5, np.uint64)},
        {"radii": np.full(6, -1, np.float32)},
        {"centroids": np.full((6, 5), np.nan, np.float32)},
        {"metric": "cosine"},
    ],
)
def test_cells_that_contradict_the_routing_are_not_written(wrong):
    value = sample_routing()
    cells = dataclasses.replace(value.cells, **wrong)

    with pytest.raises(BlobFormatError):
        routing.encode(dataclasses.replace(value, cells=cells))


def test_coverage_comes_back_in_order_of_file_ids():
    value = sample_coverage()
    backwards = dataclasses.replace(value, files=value.files[::-1])

    assert coverage.decode(coverage.encode(value)) == value
    assert coverage.encode(backwards) == coverage.encode(value)


def test_coverage_of_nothing_comes_back():
    value = coverage.Coverage(1, (), ())

    assert coverage.decode(coverage.encode(value)) == value


@pytest.mark.parametrize(
    "wrong",
    [{"row_groups": (1, 3)}, {"file_id": 0}, {"rows": 2**32 + 1, "row_groups": (2**32 - 1, 2)}],
)
def test_coverage_that_contradicts_itself_is_not_written(wrong):
    value = sample_coverage()
    files = (*value.files[:2], dataclasses.replace(value.files[2], **wrong))

    with pytest.raises(BlobFormatError):
        coverage.encode(dataclasses.replace(value, files=files))


@pytest.mark.parametrize(
    "members",
    [
        [],
        [0],
        range(100_000),
        range(0, 1_000_000, 7),
        [2**32 - 1],
        [*range(5000), 2**31, *range(2**20, 2**20 + 9000, 2)],
    ],
)
def test_tombstones_come_back(members):
    assert tombstones.decode(tombstones.encode(BitMap(members))) == BitMap(members)


def test_equal_tombstones_have_equal_bytes_whatever_made_them():
    grown = BitMap()
    for i in range(20_000):
        grown.add(i)
    for i in range(10_000, 20_000):
        grown.discard(i)
    grown.discard(3)

    made = BitMap([0, 1, 2, *range(4, 10_000)])
    assert tombstones.encode(grown) == tombstones.encode(made)


def test_a_deleted_row_set_aside_leaves_its_place_to_another():
    value = sample_rows(6)
    deleted = np.array([1, 4])
    doubled = dataclasses.replace(
        value,
        **{name: getattr(value, name).copy() for name in ("file_ids", "row_groups", "offsets")},
    )
    for column in (doubled.file_ids, doubled.row_groups, doubled.offsets):
        column[4] = column[2]

    back = rows.read(io.BytesIO(written(rows.write, rows.set_aside(doubled, deleted))))

    live = [0, 2, 3, 5]
    for name in ("file_ids", "row_groups", "offsets"):
        assert getattr(back, name)[live].tolist() == getattr(value, name)[live].tolist()
    assert back.file_ids[deleted].tolist() == [2**32 - 1] * 2


def test_tombstones_beyond_the_rows_are_refused():
    data = tombstones.encode(BitMap([3, 10]))

    assert tombstones.decode(data, rows=11) == BitMap([3, 10])
    with pytest.raises(BlobFormatError, match="10 is not below 10"):
        tombstones.decode(data, rows=10)


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_come_back(count, shuffled):
    value = sample_rows(count, shuffled=shuffled)

    located = dataclasses.replace(value, identities=None)
    assert same(rows.read(io.BytesIO(written(rows.write, value))), located)
    for earlier in (rows_v1_writer, rows_with_identities):
        blob = written(earlier.write, value)
        assert same(rows.read(io.BytesIO(blob)), value)
        assert same(rows.read(io.BytesIO(blob), identities=False), located)


def test_rows_without_identities_and_with_extreme_locators_come_back():
    top = 2**32 - 1
    value = rows.Rows(
        np.array([0, 0, 0, top], np.uint32),
        np.array([0, top, top, top], np.uint32),
        np.array([top, 0, top, top], np.uint32),
    )

    assert same(rows.read(io.BytesIO(written(rows.write, value))), value)


def test_identities_that_are_no_hashes_are_left_alone():
    out = io.BytesIO()
    rows_with_identities.write(sample_rows(10), out, identity=1)

    assert rows.read(out).identities is None
    assert rows.read_identities(rows.open_reader(out), 10, np.arange(3)) is None


@pytest.mark.parametrize("count", [0, 1, 1000, 200_000])
def test_identities_come_back(count):
    value = sample_rows(count).identities
    blob = io.BytesIO(written(identities.write, value))

    assert same(identities.read(blob, count), value)
    with pytest.raises(BlobFormatError, match=f"iden blob: {count} rows, {count + 1} by the rout"):
        identities.read(blob, count + 1)


@pytest.mark.parametrize("count", [4095, 4096, 4097, 12_288])
def test_locators_of_some_rows_are_one_range(count):
    value = sample_rows(count, shuffled=True)
    reader = rows.open_reader(io.BytesIO(written(rows.write, value)))
    offsets = reader.array("loct", "<u8", (-(-count // rows.BLOCK_ROWS) + 1,)).tolist()

    last = len(offsets) - 2
    frame = reader.read_range("locs", offsets[last], offsets[last + 1])
    steps = zigzag_of(zstandard.ZstdDecompressor().decompress(frame)).reshape(3, -1)

    start = last * rows.BLOCK_ROWS
    expected = [value.file_ids[start:], value.row_groups[start:], value.offsets[start:]]
    assert np.cumsum(steps, axis=1).tolist() == [column.tolist() for column in expected]


def zigzag_of(data):
    found, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(number >> 1 if number % 2 == 0 else -(number >> 1) - 1)
            number, shift = 0, 0
    return np.array(found)


@pytest.mark.parametrize("shards", [1, 2, 16, 100])
@pytest.mark.parametrize("cells", [1, 30])
def test_locators_take_less_than_three_bytes_a_row(shards, cells):
    """Rows fall into cells at random: the worst case for steps, since nothing is clustered."""
    rng = np.random.default_rng(1)
    here = np.flatnonzero(rng.random(1_000_000) < 1 / shards)
    here = here[np.argsort(rng.integers(0, cells, len(here)), kind="stable")]
    value = rows.Rows(
        (here // 250_000).astype(np.uint32),
        (here % 250_000 // 50_000).astype(np.uint32),
        (here % 50_000).astype(np.uint32),
    )

    assert len(written(rows.write, value)) / len(here) < 3


GRAPHS = {
    "with everything": {},
    "inner product": {"metric": "ip"},
    "no codes": {"m": 0},
    "no vectors": {"vectors": False},
    "4-bit codes, uneven sub-spaces": {"d": 10, "m": 4, "bits": 4},
    "no adjacency": {"r": 0, "m": 0},
    "one row": {"n": 1, "r": 4},
    "no rows": {"n": 0},
    "several blocks": {"n": 9000, "r": 16},
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graph_comes_back_memory_mapped(tmp_path, name):
    value = sample_graph(**GRAPHS[name])

    graph.unpack(io.BytesIO(written(graph.write, value)), tmp_path)
    back = graph.open(tmp_path)

    if name == "no adjacency":
        value = dataclasses.replace(value, degrees=np.zeros(value.rows, np.uint16))
    assert same(back, value)
    assert value.rows == 0 or isinstance(back.degrees, np.memmap)


def test_unpacked_graph_written_again_has_the_same_bytes(tmp_path):
    first = written(graph.write, sample_graph())
    graph.unpack(io.BytesIO(first), tmp_path)

    assert written(graph.write, graph.open(tmp_path)) == first


def test_order_and_padding_of_neighbour_lists_do_not_matter():
    value = sample_graph()
    shuffled = value.neighbours.copy()
    for row, degree in zip(shuffled, value.degrees, strict=True):
        row[:degree] = row[:degree][::-1].copy()
        row[degree:] = 12345

    other = dataclasses.replace(value, neighbours=shuffled)
    assert written(graph.write, other) == written(graph.write, value)


@pytest.mark.parametrize("bad", [500, 2**32 - 1])
def test_graph_with_a_neighbour_that_is_no_row_is_not_written(bad):
    value = sample_graph()
    node = int(np.flatnonzero(value.degrees)[0])
    value.neighbours[node, 0] = bad

    with pytest.raises(BlobFormatError, match="neighbour"):
        graph.write(value, io.BytesIO())


def test_graph_whose_arrays_do_not_fit_is_not_written():
    value = sample_graph()

    for wrong in (
        {"codes": value.codes[1:]},
        {"codes": None},
        {"vectors": value.vectors[:, 1:]},
        {"neighbours": value.neighbours[1:]},
        {"subspace_offsets": np.array([0, 2, 4, 6], np.uint32)},
        {"entry": 500},
        {"metric": "hamming"},
    ):
        with pytest.raises(BlobFormatError):
            graph.write(dataclasses.replace(value, **wrong), io.BytesIO())


def test_half_unpacked_graph_is_not_opened(tmp_path):
    data = written(graph.write, sample_graph())
    graph.unpack(io.BytesIO(data), tmp_path)
    (tmp_path / "vectors.npy").write_bytes((tmp_path / "vectors.npy").read_bytes()[:-4])
    with pytest.raises(LocalCopyError):
        graph.open(tmp_path)

    broken = bytearray(data)
    broken[-2000] ^= 1  # within the vectors, the last section
    with pytest.raises(BlobFormatError.__base__):
        graph.unpack(io.BytesIO(bytes(broken)), tmp_path)
    with pytest.raises(LocalCopyError):
        graph.open(tmp_path)
