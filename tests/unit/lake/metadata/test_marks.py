"""Properties of a table that anybody may set, and its earlier metadata, whatever stands in them."""

import json
from types import SimpleNamespace

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.declaration import RetentionOptions
from puffin_ann.errors import FormatError
from puffin_ann.lake.metadata.dropped import NEVER, PREFIX, find_dropped
from puffin_ann.lake.metadata.forgotten import PROPERTY, forgotten
from puffin_ann.lake.metadata.log import former_entries, manifest_lists_of
from puffin_ann.lifecycle.retention.rules import _recorded

DEEP = "[" * 200_000


def table_with(**properties: str) -> SimpleNamespace:
    return SimpleNamespace(properties=properties)


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        "[1]",
        '{"versions":["a"],"sequence-number":Infinity,"at-ms":1}',
        '{"versions":["a"],"sequence-number":1,"at-ms":1e999}',
        '{"versions":"a","sequence-number":1,"at-ms":1}',
        '{"versions":[{}],"sequence-number":1,"at-ms":1}',
    ],
)
def test_a_mark_of_a_drop_that_cannot_be_read_counts_as_none(text):
    assert find_dropped(table_with(**{f"{PREFIX}words": text})) == {"words": NEVER}


@pytest.mark.parametrize("text", [DEEP, "[" * 8000, "7", "null", '{"a":1}', '[1,"x"'])
def test_a_list_of_forgotten_metadata_that_cannot_be_read_is_none(text):
    assert forgotten(table_with(**{PROPERTY: text})) == frozenset()


@pytest.mark.parametrize("text", [DEEP, "[1]", '{"retention": {"versions": "x"}}'])
def test_a_recorded_declaration_that_cannot_be_read_keeps_as_by_default(text):
    assert _recorded(SimpleNamespace(declaration=text)) == RetentionOptions()


def table_after(folder, document: dict) -> SimpleNamespace:
    path = folder / "v1.metadata.json"
    path.write_text(json.dumps(document))
    log = [SimpleNamespace(metadata_file=f"file://{path}")]
    return SimpleNamespace(io=PyArrowFileIO(), metadata=SimpleNamespace(metadata_log=log))


@pytest.mark.parametrize(
    "broken",
    [
        {"snapshots": [{}]},
        {"snapshots": [1]},
        {"statistics": [{}]},
        {"statistics": [{"snapshot-id": 2, "statistics-path": 1}]},
        {"snapshots": [{"snapshot-id": 1, "sequence-number": "x"}]},
    ],
)
def test_damaged_earlier_metadata_registers_nothing_and_what_it_names_is_not_known(
    tmp_path, broken
):
    table = table_after(tmp_path, broken)
    assert former_entries(table, ["file:///a.puffin"]) == {}
    with pytest.raises(FormatError, match=r"v1\.metadata\.json"):
        manifest_lists_of(table)


def test_a_snapshot_of_the_first_format_has_no_manifest_list(tmp_path):
    snapshots = [{"snapshot-id": 1, "manifests": []}, {"snapshot-id": 2, "manifest-list": "a"}]
    assert manifest_lists_of(table_after(tmp_path, {"snapshots": snapshots})) == {"a"}
