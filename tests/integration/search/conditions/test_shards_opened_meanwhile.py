"""Threads that ask an index first, all at once, open shards while others use those there are."""

from types import SimpleNamespace

import pytest

from puffin_ann import open_index
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.search.shards.opening import opened as opening
from tests.support.lifecycle import builds


@pytest.fixture
def opened(words):
    """Shards of an index, none of which is open."""
    builds.build(builds.declaration(algorithm="vamana", shards=4), "run")
    return open_index(words.refresh(), builds.INDEX)._shards._opened


def test_how_rows_are_coded_is_told_of_the_shards_that_were_there(opened):
    first, second, third, *_ = opened._version.routing.shards
    opened.open(second)

    def coding_after(queries):
        opened.open(third)
        return Coding.LATER

    engine = SimpleNamespace(coding_after=coding_after)
    opened.kept = {first.shard_id: SimpleNamespace(loaded=SimpleNamespace(engine=engine))}
    opened.open(second)
    assert opened.coding is Coding.LATER
    assert set(opened.kept) == {first.shard_id, second.shard_id, third.shard_id}


def test_a_shard_that_another_thread_opened_meanwhile_is_the_one_that_is_kept(opened, monkeypatch):
    entry, load_shard, others = opened._version.routing.shards[0], opening.load_shard, []

    def load(*args):
        if not others:
            others.append(None)
            others[0] = opened.open(entry)
        return load_shard(*args)

    monkeypatch.setattr(opening, "load_shard", load)
    assert opened.open(entry) is others[0] is opened.kept[entry.shard_id]
