import json

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from puffin_ann.cli.app import app
from puffin_ann.cli.commands.setup import size as commands_of_size
from puffin_ann.declaration import AUTO, FORMS_OF, PARAMETERS, IndexDeclaration
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


LISTS = ("--algorithm", "ivf_pq", "--vectors", "none")
CENTROIDS = ("--algorithm", "centroid")


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


def test_machines_are_told_of_what_index_the_bytes_are():
    given = ("--rows", "2e6", "--dim", "100", "--degree", "32", "--shards", "3", "--files", "9")
    shape = size(*given, "--metric", "l2")["shape"]
    assert shape["parameters"]["R"] == 32
    assert (shape["algorithm"], shape["metric"], shape["vectors"]) == ("vamana", "l2", "float32")
    assert (shape["rows"], shape["shards"], shape["files"]) == (2_000_000, 3, 9)


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
        (["--metric", "dot"], "field 'metric': 'dot' is not allowed: it should be 'l2', 'cos"),
        (["--algorithm", "lsh"], "--algorithm is 'lsh'; size one of vamana, hnsw, ivf_pq, cent"),
        (["--algorithm", "auto"], "a build chooses what is fastest for 'auto'; size one of vam"),
        (["--degree", "3"], "'parameters.R': 3 is not allowed: it should be greater than or eq"),
        (["--degree", "513"], "'parameters.R': 513 is not allowed: it should be less than or"),
        (["--degree", "0"], "'parameters.R': 0 is not allowed"),
        (["--degree", "1", "--algorithm", "hnsw"], "'parameters.M': 1 is not allowed"),
        (["--degree", "400", "--algorithm", "hnsw"], "'parameters.M': 400 is not allowed"),
        (["--pq-m", "0"], "'parameters.pq_m': 0 is not allowed"),
        (["--dim", "9000", "--pq-m", "4097"], "'parameters.pq_m': 4097 is not allowed: it sh"),
        (["--include-bytes", "1e300"], "bytes of a row must be 0 to 4,194,304, got 1e+300"),
        (["--include-bytes", "4194305"], "must be 0 to 4,194,304"),
        (["--files", "9" * 20], "data files must be 1 to 4,294,967,296, got 99,999,999,999,999"),
        (["--row-groups", "9" * 20], "row groups, of one row each at least, must be 1 to 1,000,"),
        (["--files", "4000000000", "--row-groups", "4000000000"], "row groups, of one row each"),
        (["--vectors", "none"], "'none' is not for algorithm 'vamana', which takes 'float32' or"),
        (["--pq-m", "100"], "vectors of 64 dimensions have at most 64 sub-spaces"),
        (["--rows", "nan"], "--rows must be a number from 0"),
        (["--rows", "-1"], "--rows must be a number from 0"),
        (["--cells", "33"], "--cells is 33, but 1,000 rows have at most 32 cells"),
        (["--rows", "9", "--cells", "10"], "take at most 9"),
        (["--cells", "40", *LISTS], "at most 31 lists of a shard; take at most 31"),
        (["--degree", "8", *LISTS], "'parameters.degree' is unknown; known parameters of 'ivf_pq"),
        (["--pq-m", "8", "--algorithm", "hnsw"], "'parameters.pq_m' is unknown; known paramete"),
        (["--centroids", "1"], "'parameters.centroids' is unknown; known parameters of 'vamana'"),
        (["--shards", "2", *CENTROIDS], "'centroid' has no shards; leave 'shards' out"),
        (["--partitions-per-shard", "9", *CENTROIDS], "leave 'partitions_per_shard' out"),
        (["--include-bytes", "9", *CENTROIDS], "'centroid' keeps nothing of rows; leave 'include"),
        (["--cells", "8", *CENTROIDS], "--cells is 8, of which centroid has none"),
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
        (["--rows", "1e11", "--dim", "768"], "shards, more than the 10,000 that may be declared:"),
        (["--dim", "9", "--shards", "10000"], "10,000 shards, of at most 10,000 that may be de"),
        (["--dim", "9", "--shards", "10000"], "declared; before it has more, index in parts"),
        (["--rows", "10", "--dim", "9", "--shards", "10000"], ""),
        (["--rows", "1e10", "--dim", "768"], "the file has"),
    ],
)
def test_limits_that_are_near_are_told(options, said):
    printed = CliRunner().invoke(app, ["size", "--rows", "1e9", *options]).output
    assert (" of at most " in printed or " more than the " in printed) == bool(said)
    assert said in printed


@pytest.mark.parametrize("option", ["--shards", "--partitions-per-shard"])
def test_more_than_can_be_declared_is_refused(option):
    name = option.removeprefix("--").replace("-", "_")
    field = IndexDeclaration.model_fields[name]
    (most,) = (limit.le for limit in field.metadata if hasattr(limit, "le"))
    given = ["size", "--rows", "1e6", "--dim", "64", option]
    assert CliRunner().invoke(app, [*given, str(most)]).exit_code == 0
    done = CliRunner().invoke(app, [*given, str(most + 1)])
    assert isinstance(done.exception, BadInputError)
    assert f"field {name!r}: {most + 1} is not allowed: it should be less than" in str(
        done.exception
    )


@pytest.mark.parametrize(("algorithm", "name"), [("vamana", "R"), ("hnsw", "M")])
def test_a_degree_is_sized_exactly_if_it_may_be_declared(algorithm, name):
    for degree in (1, 2, 3, 4, 256, 257, 512, 513):
        given = ("--rows", "1e6", "--dim", "64", "--algorithm", algorithm, "--degree", str(degree))
        done = CliRunner().invoke(app, ["size", *given])
        try:
            PARAMETERS[algorithm](**{name: degree})
        except ValidationError:
            assert isinstance(done.exception, BadInputError)
        else:
            assert done.exit_code == 0


def test_fewer_rows_have_as_many_shards_as_a_build_makes():
    few, more = (
        size("--rows", rows, "--dim", "10", "--shards", "10000") for rows in ("10", "20000")
    )
    assert (few["shape"]["shards"], more["shape"]["shards"]) == (10, 10_000)
    exactly = size("--rows", "10", "--dim", "10", "--shards", "10")
    assert few == exactly
    none = size("--rows", "0", "--dim", "10", "--shards", "5")
    assert (none["shape"]["shards"], none["bytes"]["row"]) == (1, 0)


@pytest.mark.parametrize(
    "options",
    [
        ["--rows", "1e9", "--dim", "768"],
        ["--rows", "1e9", "--dim", "100", "--include-bytes", "1000"],
        ["--rows", "1e9", "--dim", "768", "--algorithm", "ivf_pq", "--vectors", "none"],
        ["--rows", "1e15", "--dim", "65536", "--include-bytes", "4194304", "--files", "1e9"],
    ],
)
def test_no_figure_is_cut_at_80_columns(monkeypatch, options):
    options = [option.replace("1e9", "1000000000") for option in options]
    shown = {}
    for width in (80, 300):
        monkeypatch.setattr(commands_of_size.console, "width", width)
        printed = CliRunner().invoke(app, ["size", *options]).stdout
        assert "\N{HORIZONTAL ELLIPSIS}" not in printed
        grid = [
            line
            for line in printed.splitlines()
            if line.startswith("\N{BOX DRAWINGS LIGHT VERTICAL}")
        ]
        assert all(len(line) <= width for line in grid)
        shown[width] = [[cell.strip() for cell in line.split(line[0])[2:4]] for line in grid]
    assert [cells for cells in shown[80] if any(cells)] == shown[300]


@pytest.mark.parametrize("options", [["--dim", "768"], ["--dim", "768", *CENTROIDS]])
@pytest.mark.parametrize("width", [32, 40, 60])
def test_where_a_terminal_is_narrow_rounded_figures_are_whole(monkeypatch, width, options):
    options = ["size", "--rows", "1000000000", *options]
    figures = {}
    for columns in (width, 300):
        monkeypatch.setattr(commands_of_size.console, "width", columns)
        printed = CliRunner().invoke(app, options).stdout
        assert "\N{HORIZONTAL ELLIPSIS}" not in printed
        grid = [line for line in printed.splitlines() if line.startswith("│")]
        assert all(len(line) <= columns for line in grid)
        assert all(line.split("│")[1].strip() for line in grid), "words are there, too"
        figures[columns] = [line.split("│")[-2].strip() for line in grid]
    assert [figure for figure in figures[width] if figure] == figures[300]
