"""From a file or a table that nobody declared anything for to an index that is searched."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann.declaration import load_declaration
from puffin_ann.lifecycle.declare.import_parquet import import_parquet
from tests.support.lifecycle import builds

ROWS, DIMENSION = 400, 8


def vectors(rows=ROWS, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)


def write_file(path, rows=ROWS, seed=0):
    matrix = vectors(rows, seed)
    listed = pa.array(list(matrix), pa.list_(pa.float32(), DIMENSION))
    number = pa.array(range(rows), pa.uint32())
    text = pa.array(["the same"] * rows).dictionary_encode()
    pq.write_table(pa.table({"number": number, "text": text, "vector": listed}), path)
    return matrix


@pytest.fixture
def quickstart(tmp_path):
    """Run the command as a newcomer does: PyIceberg's configuration is read once a process."""

    def call(*arguments, code=0):
        variables = {k: v for k, v in os.environ.items() if not k.startswith("PYICEBERG")}
        done = subprocess.run(
            [sys.executable, "-m", "puffin_ann.cli.main", "quickstart", *map(str, arguments)],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return call


def test_a_parquet_file_becomes_an_index_that_the_printed_commands_search(quickstart, tmp_path):
    matrix = write_file(tmp_path / "My Vectors.parquet")
    said = quickstart("My Vectors.parquet").stdout
    folder = tmp_path / "puffin-ann-quickstart"
    declared = load_declaration(folder / "indexes" / "my_vectors.yaml")
    assert (declared.table, declared.column) == ("local.quickstart.my_vectors", "vector")
    assert declared.key == "number"
    commands = re.findall(r"^  (puffin-ann .*?)(?:  #.*)?$", said, re.MULTILINE)
    assert [command.split()[1] for command in commands] == [
        "search",
        "status",
        "refresh",
        "evaluate",
    ]
    lines = "\n".join(
        f"{sys.executable} -m puffin_ann.cli.main {command.removeprefix('puffin-ann')}"
        for command in (f"{commands[0]} --k 3 --json", commands[2])
    )
    done = subprocess.run(
        ["bash", "-ec", f"source puffin-ann-quickstart/env\n{lines}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found, _ = json.JSONDecoder().raw_decode(done.stdout)
    units = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    nearest = np.argsort(1 - units @ units[0])[1:4]
    assert [row["number"] for row in found["answers"]] == nearest.tolist()
    assert "nothing to do" in done.stdout
    again = quickstart("My Vectors.parquet").stdout
    assert "my_vectors.yaml" in again


@pytest.mark.long
def test_another_file_of_the_same_name_is_not_taken_for_the_first(quickstart, tmp_path):
    write_file(tmp_path / "v.parquet", rows=20)
    quickstart("v.parquet", "--to", "there")
    write_file(tmp_path / "v.parquet", rows=21, seed=1)
    assert "choose another folder" in quickstart("v.parquet", "--to", "there", code=2).stderr


@pytest.mark.parametrize(
    ("table", "code", "said"),
    [
        (pa.table({"a": [1]}), 2, "no column of vectors, which are lists of floats; it has: a"),
        (pa.table({"v": pa.array([], pa.list_(pa.float32()))}), 2, "the file has no rows"),
        (None, 3, "there is no file"),
        (b"not Parquet", 7, "is not a readable Parquet file"),
    ],
)
def test_a_file_of_which_no_index_can_be_made_is_told(quickstart, tmp_path, table, code, said):
    path = tmp_path / "file.parquet"
    if isinstance(table, bytes):
        path.write_bytes(table)
    elif table is not None:
        pq.write_table(table, path)
    done = quickstart(path, code=code)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "first",
    [
        None,
        pytest.param([1.0], marks=pytest.mark.long),
        pytest.param([float("nan")] * DIMENSION, marks=pytest.mark.long),
    ],
)
def test_the_example_is_a_row_that_can_be_searched_with(quickstart, tmp_path, first):
    listed = pa.array([first, *vectors(20).tolist()], pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": range(21), "v": listed}), tmp_path / "v.parquet")
    said = quickstart("v.parquet").stdout
    assert "nearest to id=1:" in said
    assert "Go on in a shell of your own" in said


@pytest.mark.parametrize(
    ("rows", "ends"), [(1, None), pytest.param(2, "--k 1", marks=pytest.mark.long)]
)
def test_of_few_rows_no_more_are_asked_for_than_there_are(quickstart, tmp_path, rows, ends):
    write_file(tmp_path / "v.parquet", rows)
    said = quickstart("v.parquet").stdout
    found = re.findall(r"^  puffin-ann search .*$", said, re.MULTILINE)
    assert found == [] if ends is None else found[0].endswith(ends)


@pytest.mark.long
def test_options_that_the_first_call_decided_otherwise_are_refused(quickstart, tmp_path):
    write_file(tmp_path / "v.parquet", 20)
    quickstart("v.parquet", "--metric", "l2")
    quickstart("v.parquet", "--metric", "l2", "--column", "vector")
    for option, value in (("--metric", "cosine"), ("--column", "text"), ("--key", "nope")):
        said = quickstart("v.parquet", option, value, code=2).stderr
        assert f"not {value}: edit it, or choose another folder by --to" in said.replace("\n", " ")


def test_a_table_that_another_process_makes_meanwhile_is_taken(catalog, tmp_path, monkeypatch):
    path = tmp_path / "v.parquet"
    write_file(path, 20)
    begin = catalog.create_table_transaction

    def begin_later(*arguments, **named):
        monkeypatch.setattr(catalog, "create_table_transaction", begin)
        transaction = begin(*arguments, **named)
        import_parquet(catalog, "demo.v", path)
        return transaction

    monkeypatch.setattr(catalog, "create_table_transaction", begin_later)
    assert import_parquet(catalog, "demo.v", path).scan().count() == 20
    assert len(catalog.load_table("demo.v").snapshots()) == 1


@pytest.mark.long
def test_half_precision_is_kept_as_float32(quickstart, tmp_path):
    matrix = vectors().astype(np.float16)
    listed = pa.array(list(matrix), pa.list_(pa.float16(), DIMENSION))
    pq.write_table(pa.table({"id": range(ROWS), "v": listed}), tmp_path / "half.parquet")
    quickstart("half.parquet")
    found = (tmp_path / "puffin-ann-quickstart").rglob("*.parquet")
    stored = pa.concat_tables(pq.read_table(path) for path in found)
    assert stored.schema.field("v").type.value_type == pa.float32()
    assert np.array_equal(np.stack(stored["v"].to_numpy()), matrix.astype(np.float32))


def test_a_declaration_is_written_for_a_table_and_builds(cli, words, folder):
    code, out, _ = cli("init", "test.demo.words", "--to", "-")
    assert code == 0
    assert re.search(r"^column: embedding +# list<float> of \d+ numbers$", out, re.MULTILINE)
    code, out, _ = cli("init", "test.demo.words", "--name", "words_init")
    assert code == 0
    assert load_declaration(folder / "words_init.yaml").table == "test.demo.words"
    code, out, _ = cli("refresh", "words_init")
    assert code == 0, out
    code, out, err = cli("init", "test.demo.words", "--name", "words_init")
    assert code == 2
    assert "is declared already" in err


@pytest.mark.parametrize("is_named", [True, False])
def test_a_declaration_among_those_of_the_checkout_is_told_to_be_there(
    cli, words, folder, monkeypatch, is_named
):
    monkeypatch.setattr("puffin_ann.declaration.folder.are_named", lambda: is_named)
    code, out, _ = cli("init", "test.demo.words", "--name", "words_init")
    assert code == 0
    assert ("the folder is this checkout's: let PUFFIN_ANN_DECL" in out) is not is_named


@pytest.mark.parametrize(
    ("key", "code", "told"),
    [
        ("wrd", 3, "--key: test.demo.words has no top-level column 'wrd' (did you mean 'word'?)"),
        ("", 3, "has no top-level column ''; it has: "),
        ("embedding", 2, "--key: column 'embedding' of test.demo.words is of type list<float>"),
    ],
)
def test_a_key_that_is_no_column_of_single_values_is_refused(cli, words, folder, key, code, told):
    found, _, err = cli("init", "test.demo.words", "--name", "words_init", "--key", key)
    assert (found, told in err) == (code, True), err
    assert not (folder / "words_init.yaml").exists()


def test_a_table_without_vectors_or_rows_is_told(cli, catalog, folder):
    catalog.create_table("demo.empty", schema=builds.rows([]).schema)
    catalog.create_table("demo.plain", schema=pa.schema([("id", pa.int64())]))
    code, _, err = cli("init", "test.demo.empty")
    assert (code, "has no live rows" in err) == (2, True)
    code, _, err = cli("init", "test.demo.plain")
    assert (code, "has no vector column" in err) == (2, True)


def test_tables_are_listed_with_their_indexes(cli, catalog, indexed, declare, folder):
    declare("later")
    catalog.create_table("demo.plain", schema=pa.schema([("id", pa.int64())]))
    code, out, _ = cli("list", "test", "--json")
    found = {table["table"]: table for table in json.loads(out)}
    assert code == 0
    assert found["test.demo.words"] == {
        "table": "test.demo.words",
        "rows": 60,
        "vector_columns": ["embedding"],
        "indexes": [builds.INDEX],
        "unbuilt": ["later"],
        "problem": None,
    }
    assert found["test.demo.plain"]["vector_columns"] == []
    assert "later (not built)" in cli("list", "test.demo")[1]


def test_a_table_that_cannot_be_read_does_not_hide_the_others(cli, catalog, words, folder):
    catalog.create_table("demo.lost", schema=pa.schema([("id", pa.int64())]))
    lost = catalog.load_table("demo.lost").metadata_location.removeprefix("file://")
    os.remove(lost)
    code, out, err = cli("list", "test.demo")
    assert (code, "test.demo.words" in out, "demo.lost" in err) == (6, True, True)


def test_a_key_that_was_mistyped_leaves_nothing_in_the_way_of_the_right_one(tmp_path, quickstart):
    pq.write_table(pa.table({"id": range(ROWS), "v": list(vectors())}), tmp_path / "tiny.parquet")
    assert "did you mean 'id'" in quickstart("tiny.parquet", "--key", "idd", code=3).stderr
    assert "key: id " in quickstart("tiny.parquet", "--key", "id").stdout


def test_a_file_of_pyicebergs_beside_it_that_cannot_be_read_is_nothing_to_quickstart(
    tmp_path, quickstart
):
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: [\n")
    pq.write_table(pa.table({"id": range(ROWS), "v": list(vectors())}), tmp_path / "tiny.parquet")
    assert "nearest to id=0" in quickstart("tiny.parquet").stdout
