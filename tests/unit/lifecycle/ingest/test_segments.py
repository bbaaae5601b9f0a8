import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.errors import StagingError
from puffin_ann.lifecycle.ingest.segments import (
    VectorRows,
    block_offset,
    concatenate,
    read_block,
    row_bytes,
    write_segment,
)

DIMENSION = 3


def _rows(count: int, seed: int = 0) -> VectorRows:
    generator = np.random.default_rng(seed)
    return VectorRows(
        generator.normal(size=(count, DIMENSION)).astype(np.float32),
        generator.integers(0, 1000, size=(count, 3)).astype(np.uint32),
        generator.integers(0, 2**63, size=(count, 2)).astype(np.uint64),
    )


@given(st.lists(st.integers(0, 4), max_size=60))
def test_each_shards_block_holds_its_rows_in_their_order(shards):
    rows, shard_of_row = _rows(len(shards)), np.array(shards, dtype=np.uint32)
    out = io.BytesIO()
    counts, checksums = write_segment(out, rows, shard_of_row, 5)
    assert len(out.getvalue()) == len(shards) * row_bytes(DIMENSION)
    for shard in range(5):
        wanted = rows.take(np.flatnonzero(shard_of_row == shard))
        block = _rows(int(counts[shard]), seed=1)
        offset = block_offset(counts, shard, DIMENSION)
        read_block(out, offset, block, int(checksums[shard]), name="segment")
        np.testing.assert_array_equal(block.vectors, wanted.vectors)
        np.testing.assert_array_equal(block.locators, wanted.locators)
        np.testing.assert_array_equal(block.identities, wanted.identities)


def test_a_changed_byte_and_a_cut_segment_are_noticed():
    rows = _rows(10)
    out = io.BytesIO()
    counts, checksums = write_segment(out, rows, np.zeros(10, dtype=np.uint32), 1)
    data = bytearray(out.getvalue())
    data[17] ^= 1
    with pytest.raises(StagingError, match="checksum"):
        read_block(io.BytesIO(bytes(data)), 0, _rows(10), int(checksums[0]), name="s")
    with pytest.raises(StagingError, match="ends early"):
        read_block(io.BytesIO(out.getvalue()[:-1]), 0, _rows(10), int(checksums[0]), name="s")
    assert counts.tolist() == [10]


def test_joining_no_rows_gives_empty_arrays_of_the_right_width():
    assert concatenate([], DIMENSION).vectors.shape == (0, DIMENSION)
