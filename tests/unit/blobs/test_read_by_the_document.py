"""Golden files read by nothing but what docs/format.md says: struct, zlib, json and zstd."""

import json
import struct
import zlib
from itertools import accumulate, pairwise

import numpy as np
import pytest
import zstandard

from puffin_ann.blobs.shards import graph, hnsw, ivf, rows, rows_v1
from tests.support.indexes.blob_samples import LONG_ROWS, VALUES
from tests.support.paths import GOLDEN

FILE_OF = {
    graph.TYPE: ("every-blob-1.0.puffin", b"grph"),
    rows_v1.TYPE: ("every-blob-1.0.puffin", b"rows"),
    hnsw.TYPE: ("hnsw-1.0.puffin", b"hnsw"),
    ivf.TYPE: ("ivf-1.0.puffin", b"ivfl"),
}
BY_RANGES = "by-ranges-1.2.puffin"
ROWS = "rows-2.0.puffin"
both_forms = pytest.mark.parametrize("minor", [0, 2])
METRICS = {1: "l2", 2: "cosine", 3: "ip"}


def blob_of(type, minor):
    """Section 1: the blob's bytes, by the footer's tail and its JSON."""
    name = ROWS if type == rows.TYPE else BY_RANGES if minor else FILE_OF[type][0]
    data = (GOLDEN / name).read_bytes()
    payload_size, flags, magic = struct.unpack("<iI4s", data[-12:])
    assert (data[:4], flags, magic) == (b"PFA1", 0, b"PFA1")
    footer = data[-payload_size - 16 :]
    assert footer[:4] == b"PFA1"
    (found,) = [
        load for load in json.loads(footer[4 : 4 + payload_size])["blobs"] if load["type"] == type
    ]
    assert "compression-codec" not in found, "stored without codec"
    assert minor == 0 or found["offset"] % 64 == 0
    return data[found["offset"] : found["offset"] + found["length"]]


def sections_of(type, minor):
    """Section 2: the sections by kind, with every checksum looked at."""
    expected = (FILE_OF[type][1], [1, minor]) if type in FILE_OF else (b"rows", [2, 0])
    blob = blob_of(type, minor)
    magic, kind, *version, _ = struct.unpack("<4s4sHHI", blob[:16])
    assert (magic, (kind, version)) == (b"PANN", expected)
    at, length, count, checksum, _, end = struct.unpack("<QQIII4s", blob[-32:])
    assert (length, end) == (len(blob), b"PANN")
    table = blob[at:-32]
    assert (at % 8, len(table)) == (0, 32 * count)
    assert checksum == zlib.crc32(blob[:16] + table + blob[-32:-12])
    found, free = {}, 16
    for kind, _, offset, length, checksum, _ in struct.iter_unpack("<4sIQQII", table):
        alignment = 64 if minor else 8
        assert offset == -(-free // alignment) * alignment
        assert not any(blob[free:offset])
        free = offset + length
        found[kind.decode()] = blob[offset:free]
        assert zlib.crc32(blob[offset:free]) == checksum
    check_blocks(found)
    return found


def check_blocks(found):
    """Section 2: the blocks of every section longer than one, by `bcrc`."""
    data = found.pop("bcrc", None)
    if data is None:
        assert all(len(section) <= 16_384 for section in found.values())
        return
    size, count = struct.unpack_from("<II", data)
    records = list(struct.iter_unpack("<4sI", data[8 : 8 + 8 * count]))
    assert [kind.decode() for kind, _ in records] == [
        kind for kind, section in found.items() if len(section) > size
    ]
    checksums = iter(struct.unpack(f"<{sum(n for _, n in records)}I", data[8 + 8 * count :]))
    for kind, blocks in records:
        section = found[kind.decode()]
        starts = range(0, len(section), size)
        assert len(starts) == blocks
        for start in starts:
            assert zlib.crc32(section[start : start + size]) == next(checksums)


def varints(data):
    """Section 3: seven bits a byte, lowest first."""
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value, shift = 0, 0
    assert shift == 0
    return found


def blocks(frames, offsets):
    """Section 3: the contents of frames that lie end to end."""
    cuts = np.frombuffer(offsets, "<u8").tolist()
    assert (cuts[0], cuts[-1]) == (0, len(frames))
    return [zstandard.decompress(frames[first:last]) for first, last in pairwise(cuts)]


def adjacency(frames, offsets, lists, in_block):
    """Section 6: degrees of a block's nodes, then each one's neighbours by their gaps."""
    found = []
    for block in blocks(frames, offsets):
        size = min(in_block, lists - len(found))
        numbers = iter(varints(block))
        degrees = [next(numbers) for _ in range(size)]
        for degree in degrees:
            line = []
            for _ in range(degree):
                line.append(next(numbers) + (line[-1] + 1 if line else 0))
            found.append(line)
        assert next(numbers, None) is None
    assert len(found) == lists
    return found


def lists_of(neighbours, degrees):
    return [line[:degree].tolist() for line, degree in zip(neighbours, degrees, strict=True)]


def floats(data, *shape):
    return np.frombuffer(data, "<f4").reshape(shape)


@both_forms
def test_a_graph(minor):
    value, found = VALUES[graph.TYPE], sections_of(graph.TYPE, minor)
    assert list(found) == ["head", "prop", "pqof", "pqcb", "pqco", "adja", "adjt", "vecs"]
    head = struct.unpack("<QIIIIdIIIIII", found["head"])
    n, d, metric, most, width, alpha, entry, in_block, m, bits, w, flags = head
    assert (n, d, METRICS[metric]) == (*value.vectors.shape, value.metric)
    assert (most, width, alpha) == (value.max_degree, value.build_width, value.alpha)
    assert (entry, m, bits, flags) == (value.entry, 4, 4, 1)
    lines = adjacency(found["adja"], found["adjt"], n, in_block)
    assert lines == lists_of(value.neighbours, value.degrees)
    offsets = np.frombuffer(found["pqof"], "<u4")
    assert w == np.diff(offsets).max()
    np.testing.assert_array_equal(offsets, value.subspace_offsets)
    np.testing.assert_array_equal(floats(found["pqcb"], m, 2**bits, w), value.codebook)
    np.testing.assert_array_equal(np.frombuffer(found["pqco"], "u1").reshape(n, m), value.codes)
    np.testing.assert_array_equal(floats(found["vecs"], n, d), value.vectors)


@both_forms
def test_layers(minor):
    value, found = VALUES[hnsw.TYPE], sections_of(hnsw.TYPE, minor)
    assert list(found) == ["head", "prop", "levl", "adja", "adjt", "uppa", "uppt", "vecs"]
    head = struct.unpack("<QIIIIIIQII", found["head"])
    n, d, metric, links, ef, entry, top, upper, in_block, _ = head
    assert (n, d, METRICS[metric]) == (*value.vectors.shape, value.metric)
    assert (links, ef, entry) == (value.links, value.ef_construction, value.entry)
    levels = list(found["levl"])
    assert (levels, top, upper) == (value.levels.tolist(), max(levels), sum(levels))
    assert levels[entry] == top
    lines = adjacency(found["adja"], found["adjt"], n, in_block)
    assert lines == lists_of(value.neighbours, value.degrees)
    lines = adjacency(found["uppa"], found["uppt"], upper, in_block)
    assert lines == lists_of(value.upper_neighbours, value.upper_degrees)
    np.testing.assert_array_equal(floats(found["vecs"], n, d), value.vectors)


@both_forms
def test_lists(minor):
    value, found = VALUES[ivf.TYPE], sections_of(ivf.TYPE, minor)
    head = struct.unpack("<QIIIIIIdII", found["head"])
    n, d, metric, lists, m, bits, w, scale, flags, _ = head
    assert (n, d, METRICS[metric]) == (*value.vectors.shape, value.metric)
    assert (lists, m, bits, scale) == (len(value.centroids), len(value.codebook), 4, value.scale)
    assert flags == value.relative
    arrays = {
        "orig": floats(found["orig"], d) - value.origin,
        "cent": floats(found["cent"], lists, d + (METRICS[metric] == "ip")) - value.centroids,
        "pqcb": floats(found["pqcb"], m, 16, w) - value.codebook,
        "lsta": np.frombuffer(found["lsta"], "<u8") - value.starts.astype(np.uint64),
        "ordi": np.frombuffer(found["ordi"], "<u4") - value.ordinals,
        "bias": floats(found["bias"], n) - value.biases,
        "vecs": floats(found["vecs"], n, d) - value.vectors,
    }
    assert {kind: int(np.count_nonzero(one)) for kind, one in arrays.items()} == dict.fromkeys(
        arrays, 0
    )
    assert found["code"] == value.codes.tobytes()
    assert len(found["code"]) == n * -(-m // 2)


def column(numbers, changed, *, least):
    """Section 16: differences while nothing to the left has changed, else the values."""
    found = []
    for number, anew in zip(numbers, changed, strict=True):
        found.append(number if anew else found[-1] + number + least)
    return found


def test_rows():
    found = sections_of(rows.TYPE, 2)
    n, in_block, identity = struct.unpack("<QII", found["head"])
    assert (n, identity) == (len(LONG_ROWS.file_ids), 0)
    locators = []
    for block in blocks(found["locs"], found["loct"]):
        size = min(in_block, n - len(locators))
        steps = [number >> 1 ^ -(number & 1) for number in varints(block)]
        assert len(steps) == 3 * size
        columns = [accumulate(steps[start : start + size]) for start in (0, size, 2 * size)]
        locators += zip(*columns, strict=True)
    own = zip(LONG_ROWS.file_ids, LONG_ROWS.row_groups, LONG_ROWS.offsets, strict=True)
    assert locators == list(own)
    check_identities_and_cells(found, LONG_ROWS)


def check_identities_and_cells(found, value):
    identities = np.frombuffer(found["iden"], "<u8").reshape(-1, 2)
    np.testing.assert_array_equal(identities, value.identities)
    if value.cells is not None:
        count = len(found["cell"]) // 8
        numbers = struct.unpack(f"<{2 * count + 1}I", found["cell"])
        assert numbers[:count] == tuple(value.cells.cells)
        assert numbers[count:] == tuple(value.cells.starts)


@both_forms
def test_rows_of_version_1(minor):
    value = LONG_ROWS if minor else VALUES[rows_v1.TYPE]
    found = sections_of(rows_v1.TYPE, minor)
    n, in_block, order, identity, _ = struct.unpack("<QIIII", found["head"])
    assert (n, order, identity) == (len(value.file_ids), 1, 0)
    locators = []
    for block in blocks(found["locs"], found["loct"]):
        size = min(in_block, n - len(locators))
        numbers = varints(block)
        assert len(numbers) == 3 * size
        first = [True] + [False] * (size - 1)
        files = column(numbers[:size], first, least=0)
        changed = [anew or files[i] != files[i - 1] for i, anew in enumerate(first)]
        groups = column(numbers[size : 2 * size], changed, least=0)
        changed = [anew or groups[i] != groups[i - 1] for i, anew in enumerate(changed)]
        offsets = column(numbers[2 * size :], changed, least=1)
        locators += zip(files, groups, offsets, strict=True)
    ordinals = []
    for block in blocks(found["perm"], found["pert"]):
        ordinals += accumulate(number >> 1 ^ -(number & 1) for number in varints(block))
    assert locators == sorted(set(locators))
    assert sorted(ordinals) == list(range(n))
    own = zip(value.file_ids, value.row_groups, value.offsets, strict=True)
    assert dict(zip(ordinals, locators, strict=True)) == dict(enumerate(own))
    check_identities_and_cells(found, value)


@both_forms
@pytest.mark.parametrize("type", FILE_OF)
def test_texts_of_properties(type, minor):
    data = sections_of(type, minor).get("prop")
    if data is None:
        assert type == rows_v1.TYPE, "which has none"
        return
    (count,) = struct.unpack_from("<I", data)
    lengths = struct.unpack_from(f"<{count}I", data, 4)
    ends = list(accumulate(lengths, initial=4 + 4 * count))
    texts = [data[a:b].decode() for a, b in pairwise(ends)]
    assert ends[-1] == len(data)
    assert dict(zip(texts[::2], texts[1::2], strict=True)) == VALUES[type].properties
