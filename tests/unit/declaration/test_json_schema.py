"""Editors judge declarations by the schema as the library does."""

import jsonschema
import pytest
import yaml

from puffin_ann.declaration import load_declaration
from puffin_ann.declaration.json_schema import declaration_schema
from tests.support.paths import ROOT

SMALLEST = {"table": "c.n.t", "column": "v"}
VALIDATOR = jsonschema.Draft202012Validator(declaration_schema())


def is_valid(declared) -> bool:
    return VALIDATOR.is_valid(declared)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(declaration_schema())


@pytest.mark.parametrize("path", sorted((ROOT / "include" / "indexes").glob("*.yaml")))
def test_declarations_of_ours_are_valid(path):
    load_declaration(path)
    VALIDATOR.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"algorithm": "vamana", "parameters": {"R": 32}},
        {"parameters": {"R": 32}},
        {"algorithm": "hnsw", "parameters": {"M": 8}},
        {"algorithm": "ivf_pq", "parameters": {"lists": 10}},
        {"schedule": None},
        {"refresh": {"max_lag": "30m"}},
    ],
)
def test_what_is_allowed_is_valid(more):
    assert is_valid(SMALLEST | more)


@pytest.mark.parametrize(
    "more",
    [
        {"metric": "dot"},
        {"algorithm": "lsh"},
        {"algorithm": "hnsw", "parameters": {"R": 32}},
        {"parameters": {"M": 8}},
        {"shards": 0},
        {"recall_target": 2},
        {"refresh": {"max_lag": "soon"}},
        {"tabel": "c.n.t"},
        {"table": "words"},
    ],
)
def test_what_is_refused_is_not_valid(more):
    assert not is_valid(SMALLEST | more)


def test_table_and_column_are_required_the_name_is_not():
    assert not is_valid({"table": "c.n.t"})
    assert not is_valid({"column": "v"})
    assert is_valid(SMALLEST | {"name": "n"})
