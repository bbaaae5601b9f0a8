"""Ranges that are asked for as one: those near each other, and more where few are wanted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.lake.store import ranges
from puffin_ann.lake.store.ranges import FEW, NEAR, SPARE, Range, read_ranges

LENGTH = NEAR * 2


def far_apart(count, gap):
    """Ranges with ever more bytes between them, the first of them `gap`."""
    found, at = [], 0
    for number in range(count):
        found.append(Range("s3://bucket/one", at, at + LENGTH))
        at += LENGTH + gap + number
    return found


def test_of_ranges_that_are_too_many_the_nearest_are_asked_for_as_one():
    wanted = far_apart(FEW + 8, NEAR + 1)
    assert len(ranges._joined(wanted, few=False)) == FEW + 8
    joined = ranges._joined(wanted, few=True)
    assert len(joined) == FEW
    assert joined[0] == Range("s3://bucket/one", 0, wanted[8].stop)


def test_ranges_stay_many_where_too_much_lies_between_them():
    joined = ranges._joined(far_apart(FEW + 8, LENGTH * 4), few=True)
    assert FEW < len(joined) < FEW + 8
    farther = far_apart(FEW + 8, LENGTH * FEW)
    assert ranges._joined(farther, few=True) == farther


def test_ranges_of_two_objects_are_never_one():
    wanted = [Range(f"s3://bucket/{number}", 0, 10) for number in range(FEW + 1)]
    assert ranges._joined(wanted, few=True) == sorted(wanted, key=lambda part: part.uri)


PARTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5_000), st.integers(0, 50)), max_size=60
)


@given(PARTS)
def test_whatever_is_read_along_ranges_have_their_bytes_and_no_more_is_spent(parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "NEAR", 3)
        patch.setattr(ranges, "FEW", 5)
        wanted = [Range(uri, start, start + length) for uri, start, length in parts]
        alone, joined = (ranges._joined(wanted, few=few) for few in (False, True))
        for part in wanted:
            assert any(
                whole.uri == part.uri and whole.start <= part.start and part.stop <= whole.stop
                for whole in joined
            )
        spent = [sum(part.stop - part.start for part in found) for found in (alone, joined)]
        assert spent[1] <= (1 + SPARE) * spent[0]
        assert len(joined) <= len(alone)


def test_ranges_have_their_bytes_however_few_are_asked_for(tmp_path, monkeypatch):
    data = bytes(range(256)) * 20
    (tmp_path / "one").write_bytes(data)
    monkeypatch.setattr(ranges, "NEAR", 1)
    monkeypatch.setattr(ranges, "FEW", 2)
    wanted = [Range(str(tmp_path / "one"), at, at + 40) for at in range(0, 5_000, 50)]
    found = read_ranges(PyArrowFileIO(), wanted, few=True)
    assert list(map(bytes, found)) == [data[part.start : part.stop] for part in wanted]
