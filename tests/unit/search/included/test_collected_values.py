"""Values that are collected for a lookup are all there, in no more memory than they may take."""

from random import Random

import pyarrow as pa
import pytest

from puffin_ann.search.included import collected_values
from puffin_ann.search.included.collected_values import CollectedValues
from puffin_ann.search.included.column_lookup import column_lookup

KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


def blocks_of(kind, seed, different=40, count=60):
    """Blocks of long values, of which some are null."""
    random = Random(seed)
    words = [f"{number} {'long' * 50}".encode() for number in range(different)]
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return [
        pa.array(
            [
                None if random.random() < 0.1 else word.decode() if text else word
                for word in random.choices(words, k=random.randrange(50))
            ],
            kind,
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_once", [0, 5_000, 100_000, 10**9])
def test_the_lookup_is_that_of_all_values_as_they_came(monkeypatch, kind, at_once):
    monkeypatch.setattr(collected_values, "DECODED_BYTES", at_once)
    blocks = blocks_of(kind, at_once)
    collected = CollectedValues(kind, 10**6, is_wide=True)
    assert all(collected.add(block) for block in blocks)
    found, expected = (
        column_lookup(column) for column in (collected.column(), pa.chunked_array(blocks, kind))
    )
    assert found.values.to_pylist() == expected.values.to_pylist()
    assert found.codes.tolist() == expected.codes.tolist()
    assert found.starts.tolist() == expected.starts.tolist()


def test_repeated_values_take_no_more_than_those_that_differ(monkeypatch):
    monkeypatch.setattr(collected_values, "DECODED_BYTES", 20_000)
    blocks = blocks_of(pa.string(), 1)
    decoded = sum(block.nbytes for block in blocks)
    collected = CollectedValues(pa.string(), 20_000, is_wide=True)
    assert decoded > 10 * 20_000
    assert all(collected.add(block) for block in blocks)


def test_values_that_differ_are_given_up_once_they_take_too_much():
    collected = CollectedValues(pa.string(), 20_000, is_wide=True)
    blocks = blocks_of(pa.string(), 2, different=10_000)
    told = [collected.add(block) for block in blocks]
    first = told.index(False)
    assert 20_000 / 2 < sum(block.nbytes for block in blocks[: first + 1]) < 40_000


def test_no_values_and_numbers_are_a_column_of_their_type():
    assert CollectedValues(pa.string(), 0, is_wide=True).column().type == pa.string()
    collected = CollectedValues(pa.int64(), 8, is_wide=False)
    assert collected.add(pa.array([1, 2, 3]))
    assert collected.column().to_pylist() == [1, 2, 3]
