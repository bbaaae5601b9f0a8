"""Bad input of a build is named, and changes nothing."""

import pytest

from puffin_ann.errors import (
    ColumnNotFoundError,
    DeclarationError,
    TableNotFoundError,
    TooFewRowsError,
    UnsupportedColumnError,
)
from puffin_ann.lifecycle.runs import build
from tests.support.lifecycle import builds

KEY_OF_LISTS = "key of index 'words_index': column 'embedding' of test.demo.words.*list<float>"


def test_bad_input_is_named_and_changes_nothing(words, catalog):
    before = builds.snapshot_ids(words)
    wrong = [
        (TableNotFoundError, {"table": "test.demo.nothing"}, "nothing"),
        (TableNotFoundError, {"table": "test.nowhere.words"}, "nowhere"),
        (ColumnNotFoundError, {"column": "vector"}, "'vector'.*embedding"),
        (ColumnNotFoundError, {"key": "sku"}, "'sku'.*word"),
        (UnsupportedColumnError, {"key": "embedding"}, KEY_OF_LISTS),
        (DeclarationError, {"algorithm": "vamana", "parameters": {"pq_m": 9}}, "vamana.*'pq_m': 9"),
        (DeclarationError, {"algorithm": "ivf_pq", "parameters": {"pq_m": 9}}, "ivf_pq.*'pq_m': 9"),
        (UnsupportedColumnError, {"column": "word"}, "'word'.*string"),
    ]
    for error, change, message in wrong:
        with pytest.raises(error, match=message):
            build.plan_build(builds.declaration(**change), run_id="run")
    catalog.create_table("demo.empty", schema=words.schema())
    with pytest.raises(TooFewRowsError, match="empty"):
        builds.build(builds.declaration(table="test.demo.empty"), "run")
    assert builds.snapshot_ids(words) == before
