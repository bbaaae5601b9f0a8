"""What a routing blob says of a build's gate is read back, and what cannot be is refused."""

import io
from dataclasses import replace

import pytest

from puffin_ann.blobs.describe import describe
from puffin_ann.blobs.version import routing
from puffin_ann.blobs.version.gate import MOST_WIDER, WIDER, Wider
from puffin_ann.errors import BlobFormatError
from tests.support.indexes.blob_samples import sample_routing, sample_wider


def test_searches_for_more_rows_are_read_back_also_where_the_cells_are_apart():
    said = sample_wider()
    assert routing.decode(routing.encode(said)).wider == said.wider
    apart, _ = routing.split(said)
    assert routing.decode(routing.encode(apart)).wider == said.wider


def test_they_are_described():
    told = describe(routing.TYPE, io.BytesIO(routing.encode(sample_wider())))
    assert told["version"] == "1.2"
    assert told["wider"][0] == {"rows": 20, "search_width": 96, "probe_partitions": 3}
    assert describe(routing.TYPE, io.BytesIO(routing.encode(sample_routing())))["wider"] == []


@pytest.mark.parametrize(
    "wider",
    [
        (Wider(10, 96, 4),),
        (Wider(20, 63, 4),),
        (Wider(20, 96, 2),),
        (Wider(20, 96, 4), Wider(20, 96, 4)),
        (Wider(40, 96, 4), Wider(20, 128, 4)),
        (Wider(20, 96, 4), Wider(40, 90, 4)),
        (Wider(20, 96, 7),),
    ],
    ids=["no more rows", "narrower", "fewer cells", "twice", "fewer rows", "falling", "cells"],
)
def test_searches_that_contradict_each_other_are_neither_written_nor_read(wider, monkeypatch):
    said = replace(sample_routing(), wider=wider)
    with pytest.raises(BlobFormatError, match="more rows"):
        routing.encode(said)
    with monkeypatch.context() as patch:
        patch.setattr(routing, "_check", lambda _: None)
        data = routing.encode(said)
    with pytest.raises(BlobFormatError, match="more rows"):
        routing.decode(data)


def test_searches_for_more_rows_than_nothing_are_refused():
    with pytest.raises(BlobFormatError, match="more rows"):
        routing.encode(replace(sample_wider(), recall=None))


@pytest.mark.parametrize("length", [WIDER.itemsize - 1, (MOST_WIDER + 1) * WIDER.itemsize])
def test_a_section_of_no_whole_records_or_too_many_is_refused(length, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(routing, "put_wider", lambda writer, _: writer.put("wide", bytes(length)))
        data = routing.encode(sample_wider())
    with pytest.raises(BlobFormatError, match="section wide"):
        routing.decode(data)
