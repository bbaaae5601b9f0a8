"""Words that an index answers, which it keeps or reads of the table, held to what PyIceberg reads.

And conditions on them, with what these mean told without the library.
"""

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

import numpy as np
from pyiceberg.table import Table

from puffin_ann.search.index import Index
from tests.support.lake.conditions import a_condition
from tests.support.lifecycle import builds

QUERY = np.random.default_rng(11).normal(size=(1, builds.DIMENSION)).astype(np.float32)


def words_of(table: Table, ids: Collection[int], snapshot_id: int | None = None) -> dict[int, str]:
    """The words of the rows of some ids, of which each has one row."""
    scan = table.scan(snapshot_id=snapshot_id, selected_fields=("id", "word"))
    data = scan.to_arrow()
    found = dict(zip(data["id"].to_pylist(), data["word"].to_pylist(), strict=True))
    return {number: found[number] for number in ids}


def a_condition_on(words: Mapping[int, str], random: Random) -> tuple[Any, Callable[[int], bool]]:
    """Draw a condition on ids and words; returns what it says of the row of an id, too."""
    values = {"id": list(words), "word": list(words.values())}
    where, says = a_condition(random, values)
    return where, lambda number: bool(says({"id": number, "word": words[number]}))


def assert_words(index: Index, words: Mapping[int, str], random: Random, count: int = 1) -> None:
    """Every row is answered with its own word, and under drawn conditions each that satisfies it.

    Args:
        index: at some snapshot.
        words: of all its rows with a usable vector, by id; there are some.
        random: draws.
        count: conditions to draw.
    """
    drawn = [a_condition_on(words, random) for _ in range(count)]
    for where, says in [(None, lambda _: True), *drawn]:
        found = index.search(
            QUERY, len(words), columns=["word", "id"], where=where, allow_fewer=True
        )
        pairs = list(zip(found["id"].to_pylist(), found["word"].to_pylist(), strict=True))
        assert sorted(pairs) == sorted((i, word) for i, word in words.items() if says(i)), where
