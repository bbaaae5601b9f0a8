import json

import pytest
from typer.testing import CliRunner

from puffin_ann.ann.ivf.lists import default_lists
from puffin_ann.cli.app import app
from puffin_ann.errors import BadInputError, NotFoundError
from tests.support.paths import GOLDEN

GOLDEN_OF = {
    "hnsw": GOLDEN / "hnsw-1.0.puffin",
    "ivf_pq": GOLDEN / "ivf-1.0.puffin",
}
EVERY_BLOB = GOLDEN / "every-blob-1.0.puffin"


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
    told = size("--rows", "1000", "--like", str(EVERY_BLOB))["shape"]
    given = size("--rows", "1000", "--like", str(EVERY_BLOB), "--metric", "ip", "--dim", "9")[
        "shape"
    ]
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rows", "nan"], "--rows must be a number from 0"),
        (["--rows", "inf"], "--rows must be a number from 0"),
        (["--rows", "1e30"], "--rows must be a number from 0"),
        (["--rows", "-1"], "--rows must be a number from 0"),
        (["--deleted", "nan"], "share of deleted rows must be 0 to 1"),
        (["--deleted", "2"], "share of deleted rows must be 0 to 1"),
        (["--mean-degree", "nan"], "mean degree must be a number"),
        (["--mean-degree", "-1"], "mean degree must be a number"),
        (["--mean-degree", "65"], "at most 64 neighbours"),
        (["--mean-degree", "33", "--algorithm", "hnsw"], "at most 32 neighbours"),
        (["--pq-m", "100"], "codes of a row must be 0 to its 64 dimensions, got 100"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(options, message):
    done = CliRunner().invoke(app, ["size", "--rows", "1000", "--dim", "64", *options])
    assert isinstance(done.exception, BadInputError)
    assert message in str(done.exception)


@pytest.mark.parametrize(
    "option",
    ["links", "lists", "files", "row-groups", "centroids", "partitions-per-shard", "shards"],
)
def test_there_is_at_least_one_of_each(option):
    done = CliRunner().invoke(app, ["size", "--rows", "9", "--dim", "9", f"--{option}", "0"])
    assert done.exit_code == 2
    assert f"--{option}" in done.output


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq", "exact", "centroid"])
@pytest.mark.parametrize("rows", ["0", "1", "1e15"])
def test_no_rows_and_the_most_rows_are_sized(algorithm, rows):
    found = size("--rows", rows, "--dim", "64", "--algorithm", algorithm)
    assert found["shape"]["rows"] == float(rows)
    assert found["bytes"]["file"] > 0


@pytest.mark.parametrize("algorithm", GOLDEN_OF)
def test_an_index_file_says_by_which_algorithm_it_was_built(algorithm):
    told = size("--rows", "1000", "--like", str(GOLDEN_OF[algorithm]))
    assert told["engine"]["algorithm"] == algorithm
    given = ("--algorithm", "exact", "--dim", "9")
    found = size("--rows", "1000", "--like", str(GOLDEN_OF[algorithm]), *given)
    assert (found["engine"]["algorithm"], found["shape"]["dimension"]) == ("exact", 9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rows", "1e9", "--dim", "3072"], "the partitions blob would have more than the 2 GiB"),
        (["--rows", "1e9", "--dim", "768"], ""),
        (["--rows", "1e9", "--dim", "768", "--shards", "9"], "take more --shards"),
        (["--rows", "1e9", "--dim", "768", "--files", "100000000"], "the coverage blob would"),
        (
            ["--rows", "1e9", "--dim", "768", "--files", "1000000", "--algorithm", "centroid"],
            "the centroids blob would",
        ),
    ],
)
def test_blobs_that_would_not_be_written_are_told(options, said):
    printed = CliRunner().invoke(app, ["size", *options]).output
    assert ("would not be written" in printed) == bool(said)
    assert said in printed
