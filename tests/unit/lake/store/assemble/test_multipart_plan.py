"""Cutting object plans into parts: every byte in its place, S3's rules kept, little uploaded."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.errors import BadInputError
from puffin_ann.lake.store.assemble.multipart_plan import MIB, Limits, plan
from puffin_ann.lake.store.assemble.object_plan import CopiedRange, InlineBytes, ObjectPlan

SOURCES = {name: bytes((7 * i + ord(name)) % 251 for i in range(400)) for name in "abc"}


def content(piece):
    if isinstance(piece, InlineBytes):
        return piece.data
    assert piece.offset >= 0
    data = SOURCES[piece.source][piece.offset : piece.offset + piece.length]
    assert len(data) == piece.length
    return data


@st.composite
def pieces(draw):
    if draw(st.booleans()):
        return InlineBytes(draw(st.binary(max_size=40)))
    start = draw(st.integers(0, 399))
    return CopiedRange(draw(st.sampled_from("abc")), start, draw(st.integers(0, 400 - start)))


@given(st.lists(pieces(), max_size=30), st.integers(20, 60))
def test_parts_hold_every_byte_in_order_and_keep_the_rules(wanted, most):
    limits = Limits(smallest=5, largest=400, parts=most, upload=8, copy=30)
    expected = b"".join(map(content, wanted))
    try:
        parts = plan(wanted, limits)
    except BadInputError:
        assert len(expected) > most * 50
        return
    assert b"".join(content(piece) for part in parts for piece in part.pieces) == expected
    assert [part.number for part in parts] == list(range(1, len(parts) + 1))
    assert len(parts) <= most
    for part in parts:
        assert 0 < part.length <= limits.largest
        assert part.length >= limits.smallest or part.number == len(parts)
        assert not part.copied or (
            len(part.pieces) == 1 and isinstance(part.pieces[0], CopiedRange)
        )


@given(st.lists(pieces(), max_size=30))
def test_no_more_is_uploaded_than_lies_between_long_ranges(wanted):
    parts = plan(wanted, Limits(smallest=5, largest=400, parts=10_000, upload=8, copy=30))
    uploaded = sum(part.length for part in parts if not part.copied)
    long = [piece for piece in wanted if isinstance(piece, CopiedRange) and piece.length >= 10]
    short = sum(piece.length for piece in wanted) - sum(piece.length for piece in long)
    assert uploaded <= short + 5 * len(long)


@given(st.lists(pieces(), max_size=20))
def test_a_recipe_is_what_was_written_into_it(wanted):
    object_plan = ObjectPlan(lambda source: f"version of {source}")
    for piece in wanted:
        if isinstance(piece, InlineBytes):
            object_plan.write(piece.data)
        else:
            object_plan.write_range(piece.source, piece.offset, piece.length)
    assert b"".join(map(content, object_plan.pieces)) == b"".join(map(content, wanted))
    assert object_plan.length == sum(piece.length for piece in wanted)
    kinds = [type(piece) for piece in object_plan.pieces]
    assert not any(a == b == InlineBytes for a, b in itertools.pairwise(kinds))


def recipe_of(version, offset):
    object_plan = ObjectPlan(lambda source: version)
    object_plan.write(b"PFA1")
    object_plan.write_range("a", offset, 10)
    return object_plan


def test_recipes_are_known_by_their_bytes():
    assert recipe_of("1", 4).digest() == recipe_of("1", 4).digest()
    others = {recipe_of(*kind).digest() for kind in (("1", 4), ("2", 4), ("1", 5))}
    assert len(others) == 3


def test_a_source_is_held_to_its_first_state():
    states = iter("123")
    object_plan = ObjectPlan(lambda source: next(states))
    object_plan.pin("a")
    object_plan.write_range("a", 0, 3)
    object_plan.write_range("a", 3, 3)
    assert object_plan.pieces == (CopiedRange("a", 0, 6),)
    assert object_plan.versions == {"a": "1"}


def test_shards_are_copied_and_what_follows_them_is_one_part():
    shards = [CopiedRange(f"s3://b/{i}", 4, 50 * MIB) for i in range(4)]
    parts = plan([*shards, InlineBytes(b"routing, coverage and footer")])
    assert [(part.copied, part.length) for part in parts] == [(True, 50 * MIB)] * 4 + [(False, 28)]


def test_a_short_beginning_borrows_from_the_range_after_it():
    parts = plan([InlineBytes(b"PFA1"), CopiedRange("a", 4, 100 * MIB), InlineBytes(b"footer")])
    assert [(part.copied, part.length) for part in parts] == [
        (False, 5 * MIB),
        (True, 95 * MIB + 4),
        (False, 6),
    ]
    assert parts[1].pieces == (CopiedRange("a", 5 * MIB, 95 * MIB + 4),)


def test_tiny_shards_share_parts():
    parts = plan([CopiedRange(f"s3://b/{i}", 4, MIB) for i in range(64)])
    assert [(part.copied, part.length) for part in parts] == [(False, 8 * MIB)] * 8


@pytest.mark.parametrize(
    ("shards", "size"),
    [
        (1, 5 << 40),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in ((20_000, 64 * MIB), (40_000, 6 * MIB))
        ),
    ],
)
def test_as_many_parts_as_the_store_allows_are_enough(shards, size):
    parts = plan([CopiedRange(f"s3://b/{i}", 4, size) for i in range(shards)])
    assert len(parts) <= 10_000
    assert all(5 * MIB <= part.length <= 5 << 30 for part in parts[:-1])
    assert sum(part.length for part in parts) == shards * size


@pytest.mark.long
def test_an_object_beyond_any_upload_is_refused():
    with pytest.raises(BadInputError, match="parts"):
        plan([CopiedRange("a", 0, 10_001 * (5 << 30))])
