import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from puffin_ann.ann.ivf.lists import default_lists
from puffin_ann.cli.main import app
from puffin_ann.errors import BadInputError, NotFoundError

GOLDEN_OF = {
    "hnsw": Path(__file__).parents[2] / "golden" / "hnsw-1.0.puffin",
    "ivf_pq": Path(__file__).parents[2] / "golden" / "ivf-1.0.puffin",
}
GOLDEN = Path(__file__).parents[2] / "golden" / "every-blob-1.0.puffin"


def size(*arguments: str) -> dict:
    done = CliRunner().invoke(app, ["size", *arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_billion_rows_are_spread_over_shards_that_java_can_read():
    found = size("--rows", "1e9", "--dim", "768")
    assert found["shape"]["rows"] == 10**9
    assert found["bytes"]["shard"] < 1 << 31
    assert found["bytes"]["file"] > 10**9 * 4 * 768


def test_what_an_index_file_says_is_taken_unless_it_is_given():
    told = size("--rows", "1000", "--like", str(GOLDEN))["shape"]
    given = size("--rows", "1000", "--like", str(GOLDEN), "--metric", "ip", "--dim", "9")["shape"]
    assert given == told | {"metric": "ip", "dimension": 9}


def test_exact_search_needs_neither_graph_nor_codes():
    found = size("--rows", "1000", "--dim", "10", "--degree", "0")
    assert found["shape"]["pq_subspaces"] == 0
    assert found["bytes"]["unpacked"] == 1000 * (4 * 10 + 2)
    named = size("--rows", "1000", "--dim", "10", "--algorithm", "exact")
    assert named["bytes"] == found["bytes"]


@pytest.mark.parametrize("algorithm", ["hnsw", "ivf_pq", "exact"])
def test_shards_of_every_algorithm_are_ones_that_java_can_read(algorithm):
    found = size("--rows", "1e9", "--dim", "768", "--algorithm", algorithm)
    assert found["engine"]["algorithm"] == algorithm
    assert 1.8e9 < found["bytes"]["shard"] < 1 << 31
    assert found["bytes"]["unpacked"] > found["bytes"]["shard"] * found["shape"]["shards"] * 0.9


def test_an_index_of_centroids_is_small_whatever_the_rows_are():
    few = size("--rows", "1e6", "--dim", "768", "--algorithm", "centroid", "--files", "10000")
    many = size("--rows", "1e9", "--dim", "768", "--algorithm", "centroid", "--files", "10000")
    assert few["bytes"] == many["bytes"]
    assert 10_000 * 768 * 4 < few["bytes"]["file"] < 10_000 * (768 * 4 + 300)


def test_lists_are_those_that_a_build_makes_unless_they_are_given():
    common = ("--rows", "1e6", "--dim", "100", "--shards", "4", "--algorithm", "ivf_pq")
    assert size(*common)["engine"]["lists"] == default_lists(250_000)
    assert size(*common)["shape"]["pq_subspaces"] == 100
    assert size(*common, "--lists", "64")["engine"]["lists"] == 64


def test_people_are_shown_a_table():
    done = CliRunner().invoke(app, ["size", "--rows", "2000000", "--dim", "100"])
    assert "2,000,000 rows of 100 dimensions" in done.stdout
    assert "Puffin file" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--rows", "10"], BadInputError),
        (["--rows", "10", "--dim", "0"], BadInputError),
        (["--rows", "10", "--dim", "3", "--metric", "dot"], BadInputError),
        (["--rows", "10", "--dim", "3", "--algorithm", "lsh"], BadInputError),
        (["--rows", "10", "--like", "/nowhere.puffin"], NotFoundError),
    ],
)
def test_what_cannot_be_is_refused(arguments, error):
    done = CliRunner().invoke(app, ["size", *arguments])
    assert isinstance(done.exception, error)


@pytest.mark.parametrize("algorithm", GOLDEN_OF)
def test_an_index_file_says_by_which_algorithm_it_was_built(algorithm):
    told = size("--rows", "1000", "--like", str(GOLDEN_OF[algorithm]))
    assert told["engine"]["algorithm"] == algorithm
    given = ("--algorithm", "exact", "--dim", "9")
    found = size("--rows", "1000", "--like", str(GOLDEN_OF[algorithm]), *given)
    assert (found["engine"]["algorithm"], found["shape"]["dimension"]) == ("exact", 9)
