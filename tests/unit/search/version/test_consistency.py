"""What the blobs of one index version say of each other, each of them sound by itself."""

import io
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from pyroaring import BitMap

from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards import rows_v1
from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.blobs.version import tombstones
from puffin_ann.blobs.version.coverage import CoveredFile, CoveredFiles
from puffin_ann.blobs.version.partitions import none
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.errors import BlobFormatError
from puffin_ann.search.version import consistency
from puffin_ann.search.version.consistency import CoveredRows, check_rows, check_shards_have_cells
from puffin_ann.search.version.row_locators import Locators
from tests.support.falsified.mutation import assemble, sections_of
from tests.support.indexes import rows_v1_writer, rows_with_identities
from tests.support.indexes.blob_samples import sample_rows

FILES = CoveredFiles.of(
    [
        CoveredFile(2, "a", 1, 1, 10, (4, 6), BitMap([1]), BitMap([9])),
        CoveredFile(3, "b", 1, 1, 0, (), BitMap(), BitMap()),
        CoveredFile(7, "c", 1, 1, 5, (5,), BitMap(), BitMap()),
        CoveredFile(8, "d", 1, 1, 3, (3,), BitMap([0, 1]), BitMap([1])),
    ]
)


def shard(*locators, deleted=()):
    columns = (np.array(column, np.uint32) for column in zip(*locators, strict=True))
    entry = ShardEntry(4, "", len(locators), 0, len(deleted), "graph")
    return entry, CoveredRows.of(FILES), Locators.of(Rows(*columns)), np.array(deleted, np.uint32)


SOUND = [(2, 0, 0), (2, 0, 2), (2, 0, 3), (2, 1, 0), (2, 1, 4), (7, 0, 0), (7, 0, 4), (8, 0, 2)]


@pytest.mark.parametrize("order", ["ascending", "permuted"])
def test_rows_of_covered_files_are_let_through(order):
    step = 1 if order == "ascending" else -1

    check_rows("x", *shard(*SOUND[::step]))


@pytest.mark.parametrize(
    "locator",
    [
        (0, 0, 0),
        (4, 0, 0),
        (9, 0, 0),
        (3, 0, 0),
        (2, 2, 0),
        (2, 0, 4),
        (2, 1, 6),
        (7, 0, 5),
        (7, 2**32 - 1, 0),
        (7, 0, 2**32 - 1),
        (2**32 - 1, 0, 0),
        (2, 0, 1),
        (2, 1, 5),
        (8, 0, 0),
        (8, 0, 1),
    ],
    ids=[
        "a file before all",
        "a file between",
        "a file after all",
        "a file without rows",
        "a row group its file has not",
        "a row its group has not",
        "a row the last group has not",
        "a row of another file",
        "the highest row group",
        "the highest row",
        "nowhere",
        "a row deleted at the base",
        "a row that could not be indexed",
        "another row deleted at the base",
        "a row both deleted and not indexed",
    ],
)
@pytest.mark.parametrize("few", [0, 2, 1000])
def test_a_live_row_where_none_is_indexed_is_refused_and_a_deleted_one_is_not(
    locator, few, monkeypatch
):
    monkeypatch.setattr(consistency, "FEW_ROWS", few)
    rows = [*SOUND, locator]

    with pytest.raises(BlobFormatError, match="x has row 8 in file"):
        check_rows("x", *shard(*rows))
    check_rows("x", *shard(*rows, deleted=[8]))
    with pytest.raises(BlobFormatError, match="x has row 8 in file"):
        check_rows("x", *shard(*rows, (5, 0, 0), deleted=[9]))


@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_row_that_a_shard_has_twice_is_refused_unless_one_is_deleted(place):
    rows = [*SOUND, SOUND[place]]

    with pytest.raises(BlobFormatError, match="x has a row of the table twice"):
        check_rows("x", *shard(*rows))
    check_rows("x", *shard(*rows, deleted=[8]))
    check_rows("x", *shard(*rows, deleted=[place]))


def test_rows_left_out_take_no_more_memory_than_they_do_in_the_file():
    every = BitMap(range(2**32 - 2))
    large = CoveredFile(1, "a", 1, 1, 2**32 - 1, (2**32 - 1,), every, BitMap())
    locators = Locators.of(Rows(*(np.array([value], np.uint32) for value in (1, 0, 2**32 - 2))))

    tracemalloc.start()
    covered = CoveredRows.of(CoveredFiles.of([large]))
    assert not covered.not_among(locators).any()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_no_row_is_indexed_where_nothing_is_covered():
    entry, _, locators, deleted = shard(*SOUND)

    with pytest.raises(BlobFormatError, match="no row is indexed"):
        check_rows("x", entry, CoveredRows.of(CoveredFiles.of([])), locators, deleted)


@pytest.mark.parametrize("kind", ["graph", "delta"])
@pytest.mark.parametrize("rows", [0, 8])
def test_a_graph_shard_with_rows_has_a_cell(kind, rows):
    cells = replace(none("l2", 2), shards=np.array([1, 3, 1], np.uint32))
    shards = [ShardEntry(number, "", 5, 0, 0, "graph") for number in (3, 1)]
    shards.append(ShardEntry(2, "", rows, 0, 0, kind))

    if kind == "graph" and rows:
        with pytest.raises(BlobFormatError, match=r"x: no partition lies in shard 2.* 8 rows"):
            check_shards_have_cells("x", shards, cells)
    else:
        check_shards_have_cells("x", shards, cells)


def test_more_rows_than_there_must_be_are_refused_before_they_are_decoded():
    blob = io.BytesIO()
    rows_blob.write(sample_rows(1000), blob)
    sections = sections_of(blob.getvalue(), rows_blob.KIND)
    sections["locs"] = b"never looked at"
    corrupted = io.BytesIO(assemble(sections, rows_blob.KIND))

    with pytest.raises(BlobFormatError, match="1000 rows, 7 by the routing blob"):
        rows_blob.read(corrupted, 7)
    with pytest.raises(BlobFormatError, match="locs"):
        rows_blob.read(corrupted, 1000)


def test_identities_that_the_head_denies_are_refused():
    denied(rows_with_identities.write, rows_blob, "identity", 2, "identities")


def test_a_permutation_that_the_head_denies_is_refused():
    """Ordinals in another order than `perm` says would be other rows, and nobody noticed."""
    denied(rows_v1_writer.write, rows_v1, "order", rows_v1.SORTED, "permutation")


def denied(write, module, field, value, said):
    blob = io.BytesIO()
    write(sample_rows(1000, shuffled=True), blob)
    sections = sections_of(blob.getvalue(), rows_blob.KIND)
    head = np.frombuffer(sections["head"], module.HEAD).copy()
    head[field] = value
    sections["head"] = head.tobytes()
    major = 1 if module is rows_v1 else 2

    with pytest.raises(BlobFormatError, match=f"has .*{said}, and says that it has none"):
        rows_blob.read(io.BytesIO(assemble(sections, rows_blob.KIND, major)))


def test_tombstones_of_another_count_than_there_must_be_are_refused():
    data = tombstones.encode(BitMap(range(1_000_000)))

    assert len(tombstones.decode(data, deleted=1_000_000)) == 1_000_000
    with pytest.raises(BlobFormatError, match="1000000 deleted rows, 3 by the routing blob"):
        tombstones.decode(data, deleted=3)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([], None),
        ([0, 2], None),
        ([0, 1], "partition 1"),
        ([2, 3], "partition 3"),
        ([0, 2**32 - 1], "partition 4294967295"),
    ],
)
def test_cells_of_rows_lie_in_their_shard(cells, message):
    owners = np.array([4, 0, 4], np.uint32)
    entry = ShardEntry(4, "", 9, 0, 0, "graph")
    starts = CellStarts(np.array(cells, np.uint32), np.arange(len(cells) + 1, dtype=np.uint32))

    consistency.check_cells("x", owners, entry, None)
    if message is None:
        consistency.check_cells("x", owners, entry, starts)
    else:
        with pytest.raises(BlobFormatError, match=message):
            consistency.check_cells("x", owners, entry, starts)
