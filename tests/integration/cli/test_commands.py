import json
import shutil

import pytest

from puffin_ann.engines import links
from puffin_ann.settings import settings
from tests.support.lifecycle import builds


def test_status_for_people_and_for_machines(cli, keyed):
    code, out, _ = cli("status", "test.demo.words", "--json")
    (found,) = json.loads(out)
    assert code == 0
    assert (found["index"], found["vectors"], found["coverage"]) == (builds.INDEX, 60, 1.0)
    code, out, _ = cli("status", "test.demo.words", builds.INDEX)
    assert code == 0
    for word in ("snapshot", "shards", "vectors", "bytes", "coverage", "recall", "seconds"):
        assert word in out


def test_inspect_shows_any_puffin_file(cli, keyed, tmp_path):
    path = keyed.metadata.statistics[0].statistics_path
    code, out, _ = cli("inspect", path, "--json")
    found = json.loads(out)
    assert code == 0
    blobs = {blob["type"]: blob for blob in found["blobs"]}
    kinds = ("routing-v1", "partitions-v1", "coverage-v1", "graph-v1", "rows-v2", "identities-v1")
    assert set(blobs) == {f"puffin-ann-{kind}" for kind in kinds}
    assert blobs["puffin-ann-routing-v1"]["content"]["head"]["shards"] == 2
    code, out, _ = cli("inspect", path.removeprefix("file://"))
    assert (code, "puffin-ann-graph-v1" in out) == (0, True)
    broken = tmp_path / "broken.puffin"
    broken.write_bytes(b"PFA1 but no footer")
    code, _, err = cli("inspect", str(broken))
    assert (code, "broken.puffin" in err) == (7, True)
    code, _, err = cli("inspect", str(tmp_path / "gone.puffin"))
    assert (code, "gone.puffin" in err) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "example"),
    [
        (["evaluate", "test.demo.words", "words"], "puffin-ann evaluate glove_words"),
        (["plan", "words"], "puffin-ann plan demo.glove.words glove_words"),
        (["inspect"], 'puffin-ann inspect "$(ls -t .local/'),
    ],
)
def test_arguments_too_many_or_too_few_are_answered_by_an_example(cli, arguments, example):
    code, _, err = cli(*arguments)
    assert code == 2
    assert "; for example: " + example in " ".join(err.split())


@pytest.mark.parametrize(
    "command", ["build", "search", "status", "inspect", "plan", "history", "drop"]
)
def test_every_command_has_help_with_an_example(cli, command):
    code, out, _ = cli(command, "--help")
    assert code == 0
    assert f"Example: puffin-ann {command} " in " ".join(out.split())


def test_build_of_an_index_that_is_not_declared_is_refused(cli, catalog):
    code, _, err = cli("build", "nothing")
    assert (code, "'nothing' is declared in" in err, "glove_words" in err) == (2, True, True)
    _, _, err = cli("build", "glove_word")
    assert "(did you mean 'glove_words'?)" in err


def test_a_catalog_that_is_not_configured_or_does_not_answer_is_named(cli, catalog, monkeypatch):
    from pyiceberg.utils.config import Config

    code, _, err = cli("status", "nowhere.demo.words")
    assert (code, "catalog 'nowhere' is not configured" in err) == (6, True)
    assert "; configured are: " in err
    monkeypatch.setenv("PYICEBERG_CATALOG__DEAD__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__DEAD__URI", "http://127.0.0.1:9")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    code, _, err = cli("status", "dead.demo.words")
    assert (code, "catalog 'dead' does not answer" in err) == (6, True)


def test_size_measures_a_graph_over_rows_of_a_table_that_is_named(cli, words, monkeypatch):
    monkeypatch.setattr(links, "FEWEST_ROWS", 40)
    code, out, _ = cli("size", "--table", "test.demo.words", "--metric", "l2", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["shape"]["rows"] == len(builds.live(words)[0])
    assert found["shape"]["dimension"] == builds.DIMENSION
    measured = found["shape"]["links"]
    assert 40 <= measured["rows"] <= found["shape"]["rows"]
    assert 1 <= measured["degree"] < measured["rows"]
    assert found["bytes"]["file_least"] == found["bytes"]["file_most"]
    more = json.loads(cli("size", "--table", "test.demo.words", "--rows", "1e6", "--json")[1])
    assert more["shape"]["rows"] == 10**6


def test_size_of_a_table_with_few_rows_goes_by_rule(cli, words):
    _, out, _ = cli("size", "--table", "test.demo.words", "--column", "embedding", "--json")
    assert json.loads(out)["shape"]["links"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rows", "5"], "give --rows and --dim, or --table"),
        (["--rows", "5", "--dim", "3", "--column", "embedding"], "name that by --table"),
        (["--table", "test.demo.words", "--dim", "3"], "the vectors of test.demo.words have"),
        (["--table", "test.demo.words", "--metric", "dot"], "'dot' is not allowed"),
        (["--table", "test.demo.none"], "has no table"),
    ],
)
def test_size_refuses_what_does_not_fit_a_table(options, said, cli, words):
    code, _, errors = cli("size", *options)
    assert code != 0
    assert said in errors


def test_warm_tells_what_it_brought_and_what_was_there(cli, keyed):
    shutil.rmtree(settings().cache_dir / "shards")  # of the build's gate
    of_index = ("warm", "test.demo.words", builds.INDEX)
    begins = f"index {builds.INDEX} of test.demo.words: "
    code, out, _ = cli(*of_index)
    assert (code, out.startswith(f"{begins}4 blobs brought, ")) == (0, True)
    assert out.endswith(" bytes on disk\n")
    assert cli(*of_index)[:2] == (0, f"{begins}nothing to bring: 4 blobs were there already\n")
