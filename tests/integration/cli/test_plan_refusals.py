"""`puffin-ann plan` refuses what the run would refuse: the same words, the same exit code."""

import sys

import pyarrow as pa
import pytest
import yaml
from pyiceberg.types import DoubleType, FloatType, ListType, NestedField, StringType, StructType

from puffin_ann.cli.main import run
from puffin_ann.settings import settings
from tests.support.lifecycle import builds

TABLE = ("test.demo.words", builds.INDEX)


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process; returns exit code and errors."""

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["puffin-ann", *arguments])
        with pytest.raises(SystemExit) as left:
            run()
        said = capsys.readouterr().err.splitlines()
        return left.value.code or 0, "\n".join(line for line in said if line.startswith("error:"))

    return call


@pytest.fixture
def declare(tmp_path, monkeypatch, catalog):
    folder = tmp_path / "indexes"
    folder.mkdir()
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(folder))
    settings.cache_clear()

    def write(**changes):
        declared = builds.declaration(**changes)
        text = yaml.safe_dump(declared.model_dump(mode="json"))
        (folder / f"{builds.INDEX}.yaml").write_text(text)
        return declared

    return write


def fields(table, **kinds):
    """Drop columns of these names, and add them anew where a type is given."""
    for name, kind in kinds.items():
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column(name)
        if kind is not None:
            with table.update_schema() as update:
                update.add_column(name, kind)


def nothing(table):
    pass


def no_vectors(table):
    data = builds.rows(range(20))
    none = pa.nulls(20, data.schema.field("embedding").type)
    table.overwrite(data.set_column(2, "embedding", none))


def wider(table):
    data = builds.rows(range(40))
    wide = pa.array([[1.0, 2.0]] * 40, pa.list_(pa.float32()))
    table.overwrite(data.set_column(2, "embedding", wide))


STRUCT = StructType(NestedField(101, "part", StringType(), required=False))
TEXTS = ListType(100, StringType(), element_required=False)
DOUBLES = ListType(100, DoubleType(), element_required=False)

EITHER_WAY = {
    "a column of words": (nothing, {"column": "word"}, 2, "is of type string"),
    "a column of numbers": (nothing, {"column": "id"}, 2, "is of type long"),
    "a column that never was": (nothing, {"column": "vector"}, 3, "no top-level column 'vector'"),
    "a column dropped": (lambda t: fields(t, embedding=None), {}, 3, "column 'embedding'"),
    "a column of another type": (lambda t: fields(t, embedding=TEXTS), {}, 2, "list<string>"),
    "a column made anew": (lambda t: fields(t, embedding=DOUBLES), {}, 2, "no vector at all"),
    "a key that never was": (nothing, {"key": "number"}, 3, "no top-level column 'number'"),
    "a key dropped": (lambda t: fields(t, word=None), {"key": "word"}, 3, "column 'word'"),
    "a key that became a struct": (
        lambda t: fields(t, word=STRUCT),
        {"key": "word"},
        2,
        "a key is a single value",
    ),
    "a key of lists": (nothing, {"key": "embedding"}, 2, "a key is a single value"),
    "no vectors": (no_vectors, {"seed": 1}, 2, "no vector at all in 20 rows"),
    "too many sub-spaces": (
        nothing,
        {"algorithm": "vamana", "parameters": {"pq_m": 9}},
        2,
        "'pq_m': 9 is not allowed",
    ),
    "narrower vectors than sub-spaces": (
        wider,
        {"algorithm": "vamana", "parameters": {"pq_m": 8}},
        2,
        "'pq_m': 8 is not allowed",
    ),
}


PUBLISHED = ("a column dropped", "a column of another type", "a key dropped", "no vectors")


@pytest.mark.parametrize(
    ("why", "published"),
    [*((why, False) for why in EITHER_WAY), *((why, True) for why in PUBLISHED)],
)
def test_a_plan_refuses_what_the_refresh_refuses(cli, words, declare, why, published):
    change, declared, code, said = EITHER_WAY[why]
    if published:
        builds.build(declare(), "run")
        words.refresh()
    change(words)
    declare(**declared)
    before = words.refresh().metadata_location
    planned = cli("plan", *TABLE)
    assert planned[0] == code, planned
    assert said in planned[1]
    assert cli("refresh", builds.INDEX) == planned
    assert words.refresh().metadata_location == before


def test_more_partitions_than_a_blob_holds_are_refused_before_anything_is_built(
    cli, words, declare, monkeypatch
):
    monkeypatch.setattr("puffin_ann.lifecycle.ingest.preconditions.MAX_JAVA_BLOB", 300)
    declare()
    planned = cli("plan", *TABLE)
    assert planned[0] == 2
    assert "takes at most 300: declare a partitions_per_shard of at most 1" in planned[1]
    assert cli("refresh", builds.INDEX) == planned


def test_a_plan_of_a_table_without_a_snapshot_is_refused_as_the_run_is(cli, catalog, declare):
    catalog.create_table("demo.words", schema=builds.rows([]).schema)
    declare()
    planned = cli("plan", *TABLE)
    assert planned == (2, "error: table test.demo.words is empty: it has no snapshot yet")
    assert cli("refresh", builds.INDEX) == planned


def test_a_plan_of_a_refresh_is_refused_where_it_could_not_be_published(
    cli, words, declare, monkeypatch
):
    builds.build(declare(), "run")
    words.refresh().append(builds.rows(range(60, 65)))
    declare(refresh={"min_rows": 1})
    # Stands for a table of format version 3, which PyIceberg can neither write nor upgrade to.
    monkeypatch.setattr("puffin_ann.lake.commit.publish_mode.WRITABLE_VERSION", 1)
    code, said = cli("plan", *TABLE)
    assert code == 2
    assert "use a REST catalog" in said
    assert cli("refresh", builds.INDEX) == (code, said)


def test_a_sound_column_of_another_name_is_planned(cli, words, declare):
    with words.update_schema() as update:
        update.add_column("other", ListType(100, FloatType(), element_required=False))
        update.rename_column("embedding", "vector")
    declare(column="vector", key="word")
    assert cli("plan", *TABLE) == (0, "")
