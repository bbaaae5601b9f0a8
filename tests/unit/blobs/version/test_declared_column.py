"""The name that a column was declared by, as free text records it."""

import pytest

from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Routing
from puffin_ann.lifecycle.documents.index_properties import IndexProperties


def routing(properties):
    cells = Partitions.__new__(Partitions)
    return Routing("l2", "exact", 3, cells, 0.0, (), 1, 1, properties=properties)


def test_it_is_read_of_the_declaration_that_runs_note():
    noted = IndexProperties().noting(declaration='{"name": "words", "column": "embedding"}')
    assert routing(noted.texts).declared_column == "embedding"


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[]", "{}", '{"column": 3}', '{"column": "a", "column": "b"}', "[" * 9999],
)
def test_what_cannot_be_read_tells_no_name(text):
    assert routing({"declaration": text}).declared_column is None


def test_without_a_declaration_there_is_no_name():
    assert routing({}).declared_column is None
