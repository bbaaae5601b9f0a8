"""What the documents say of declarations and settings is what the code does."""

import re
from itertools import chain

import pytest
import yaml

from puffin_ann.declaration import (
    AirflowOptions,
    ApprovalBounds,
    BuildOptions,
    CentroidParameters,
    EvaluateOptions,
    GateOptions,
    HnswParameters,
    IndexDeclaration,
    IvfPqParameters,
    MaintainOptions,
    RebuildOptions,
    RefreshOptions,
    RetentionOptions,
    SparkOptions,
    VamanaParameters,
    parse_declaration,
)
from puffin_ann.settings import Settings
from tests.support.paths import ROOT

SMALLEST = {"name": "n", "table": "c.n.t", "column": "v"}


def tables(text: str) -> dict[str, list[dict[str, str]]]:
    """Return the Markdown tables of a document by the heading they stand under."""
    found: dict[str, list[dict[str, str]]] = {}
    heading, header = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            heading, header = line.lstrip("# "), []
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not header:
                header = cells
            elif not set(line) <= set("|-"):
                found.setdefault(heading, []).append(dict(zip(header, cells, strict=True)))
    return found


def code_spans(text: str) -> list[str]:
    """Return what stands in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))
SOURCE = "\n".join(file.read_text() for file in (ROOT / "include" / "puffin_ann").rglob("*.py"))
GLOSSARY = tables((ROOT / "docs" / "glossary.md").read_text())
DECLARATIONS = tables((ROOT / "docs" / "declarations.md").read_text())


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("Fields", IndexDeclaration),
        ("`parameters` of `vamana`", VamanaParameters),
        ("`parameters` of `hnsw`", HnswParameters),
        ("`parameters` of `ivf_pq`", IvfPqParameters),
        ("`parameters` of `centroid`", CentroidParameters),
        ("`gate`", GateOptions),
        ("`retention`", RetentionOptions),
        ("`refresh`", RefreshOptions),
        ("`rebuild`", RebuildOptions),
        ("`maintain`", MaintainOptions),
        ("`evaluate`", EvaluateOptions),
        ("`spark`", SparkOptions),
        ("`airflow`", AirflowOptions),
        ("`build`", BuildOptions),
        ("`build.approve_above`", ApprovalBounds),
    ],
)
def test_every_field_is_documented_with_its_default(heading, model):
    rows = {row["field"].strip("`"): row for row in DECLARATIONS[heading]}
    assert set(rows) == set(model.model_fields)
    for name, field in model.model_fields.items():
        said = rows[name]["default"]
        if said.startswith("`"):
            assert said.strip("`") == str(field.default), name
        elif said == "none":
            assert not field.get_default(call_default_factory=True), name


def test_the_fields_said_to_shape_the_index_change_the_fingerprint():
    one = parse_declaration(SMALLEST, source="f").fingerprint()
    other = {
        "name": "m", "table": "c.n.u", "column": "w", "key": "k", "metric": "ip",
        "algorithm": "exact", "parameters": {"R": 32}, "shards": 2, "partitions_per_shard": 2,
        "bad_vectors": "refuse", "vectors": "float16", "include": ["a"], "seed": 1,
        "recall_target": 0.9, "gate": {"k": 5},
        "schedule": "@daily", "spark": {"conn_id": "x"}, "build": {"max_submits": 2},
        "airflow": {"pool": "x"},
        "retention": {"versions": 3},
        "publish": "statistics", "refresh": {"min_rows": 5}, "rebuild": {"drift": 2},
        "maintain": {"schedule": None}, "evaluate": {"queries": 50},
    }  # fmt: skip
    for row in DECLARATIONS["Fields"]:
        name = row["field"].strip("`")
        changed = parse_declaration({**SMALLEST, name: other[name]}, source="f").fingerprint()
        assert (changed != one) == (row["shape"] == "yes"), name


def test_every_setting_is_documented():
    rows = DECLARATIONS["Settings of a process"]
    said = {row["variable"].strip("`") for row in rows}
    assert said == {f"PUFFIN_ANN_{name.upper()}" for name in Settings.model_fields}


def test_the_declaration_that_is_shown_is_the_one_we_ship():
    page = (ROOT / "docs" / "into-airflow.md").read_text()
    shown = re.search(r"<!-- as shipped: .*? -->\n```yaml\n(.*?)```", page, re.S)[1]
    shipped = (ROOT / "include" / "indexes" / "glove_words.yaml").read_text()
    assert yaml.safe_load(shown) == yaml.safe_load(shipped)


def test_links_between_documents_lead_somewhere():
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_file_that_a_document_names_exists(document):
    named = [
        span
        for span in code_spans(document.read_text())
        if re.fullmatch(r"[\w./-]+(\.py|/)", span) and not span.startswith("/")
    ]
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    missing = [
        name
        for name in named
        if name not in tests
        and not any((folder / name).exists() for folder in (ROOT, ROOT / "include/puffin_ann"))
    ]
    assert missing == []


@pytest.mark.parametrize("row", [*chain(*GLOSSARY.values())], ids=lambda row: row["term"])
def test_what_the_glossary_calls_a_name_in_the_code_is_one(row):
    for name in code_spans(row["in the code"]):
        if "/" in name:
            assert (ROOT / "include/puffin_ann" / name).exists(), name
        else:
            assert re.search(rf"\b{re.escape(name)}\b", SOURCE), name


def test_the_status_says_on_how_many_data_sets_conditions_were_measured():
    published = list((ROOT / "benchmarks" / "measured").glob("conditions*.json"))
    sets = ("no", "one", "two", "three")[len(published)]
    assert f"are measured on {sets} data sets" in (ROOT / "docs" / "status.md").read_text()


def test_the_page_on_the_architecture_is_read_in_ten_minutes():
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    assert len(lines) <= 200
