import json

import pytest
from typer.testing import CliRunner

from puffin_ann.cli.app import app
from puffin_ann.declaration import AUTO, FORMS_OF
from puffin_ann.errors import BadInputError

EVERY = [
    (algorithm, form)
    for algorithm, forms in FORMS_OF.items()
    for form in forms
    if algorithm != AUTO
]


def size(*arguments: str) -> dict:
    done = CliRunner().invoke(app, ["size", *arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(("algorithm", "form"), EVERY)
@pytest.mark.parametrize("rows", ["0", "1", "1e9", "1e15"])
def test_indexes_of_every_algorithm_and_form_are_sized(algorithm, form, rows):
    given = ("--rows", rows, "--dim", "768", "--algorithm", algorithm, "--vectors", form)
    found = size(*given)
    assert found["shape"]["rows"] == float(rows)
    assert found["bytes"]["file"] > 0
    if algorithm != "centroid":
        assert found["bytes"]["shard"] < 1 << 31
        assert not [
            warning for warning in found["warnings"] if "shard" in warning.split(" has ")[0]
        ]


def test_the_smaller_the_form_the_smaller_the_index():
    common = ("--rows", "1e9", "--dim", "768", "--algorithm", "ivf_pq")
    files = [size(*common, "--vectors", form)["bytes"]["file"] for form in FORMS_OF["ivf_pq"]]
    assert files == sorted(files, reverse=True)
    assert files[0] > 10**9 * 4 * 768
    assert files[-1] < 10**9 * 240


def test_people_are_shown_a_table():
    done = CliRunner().invoke(app, ["size", "--rows", "2000000", "--dim", "100"])
    for said in (
        *("2,000,000 rows of 100 dimensions", "Puffin file", "memory", "cache", "requests"),
        "by how rows lie",
    ):
        assert said in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dim", "0"], "dimension must be 1"),
        (["--metric", "dot"], "metric must be one of"),
        (["--algorithm", "lsh"], "algorithm must be one of"),
        (["--vectors", "none"], "vectors must be one of float32, float16 for 'vamana'"),
        (["--pq-m", "100"], "codes of a row must be 1 to its 64 dimensions, got 100"),
        (["--rows", "nan"], "--rows must be a number from 0"),
        (["--rows", "-1"], "--rows must be a number from 0"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    done = CliRunner().invoke(app, ["size", "--rows", "1000", "--dim", "64", *options])
    assert isinstance(done.exception, BadInputError)
    assert said in str(done.exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dim", "3072"], "the partitions blob has"),
        (["--dim", "768"], ""),
        (["--dim", "768", "--shards", "9"], "take more --shards"),
        (["--dim", "768", "--files", "100000000"], "the coverage blob has"),
        (["--dim", "768", "--files", "1000000", "--algorithm", "centroid"], "the centroids blob"),
        (["--dim", "64", "--shards", "200000"], "the footer has"),
        (["--rows", "1e10", "--dim", "768"], "the file has"),
    ],
)
def test_limits_that_are_near_are_told(options, said):
    printed = CliRunner().invoke(app, ["size", "--rows", "1e9", *options]).output
    assert (" of at most " in printed) == bool(said)
    assert said in printed
