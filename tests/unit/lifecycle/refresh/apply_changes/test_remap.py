"""Places of a shard's rows after some were deleted and others came back elsewhere."""

import io

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.shards.rows import Rows
from puffin_ann.lifecycle.refresh.apply_changes.remap import set_aside_clashes

PLACES = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2))


@st.composite
def shards(draw):
    """Rows whose live ones have places of their own, while deleted ones may be anywhere."""
    live = draw(st.lists(PLACES, unique=True, max_size=8))
    dead = draw(st.lists(PLACES, max_size=8))
    order = draw(st.permutations(range(len(live) + len(dead))))
    places = np.array([*live, *dead], dtype=np.uint32).reshape(-1, 3)[order]
    deleted = np.array([number >= len(live) for number in order], dtype=np.bool_)
    return Rows(*places.T), deleted


def _places(rows):
    columns = (rows.file_ids, rows.row_groups, rows.offsets)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(shards())
def test_only_deleted_rows_in_a_place_of_others_leave_it(shard):
    rows, deleted = shard
    before, after = _places(rows), _places(set_aside_clashes(rows, deleted))
    assert len(set(after)) == len(after), "a rows blob has each place once"
    shared = {place for place in before if before.count(place) > 1}
    for was, place, is_deleted in zip(before, after, deleted, strict=True):
        assert (place == was) == (not is_deleted or was not in shared)


@given(shards())
def test_what_was_set_aside_can_be_written(shard):
    rows, deleted = shard
    out = io.BytesIO()
    rows_blob.write(set_aside_clashes(rows, deleted), out)
    assert len(rows_blob.read(io.BytesIO(out.getvalue()))) == len(rows)
