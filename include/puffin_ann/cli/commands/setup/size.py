"""`puffin-ann size`: how large an index will be, before it is built."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as Grid

from puffin_ann.cli.output import AsJson, console, print_json, say
from puffin_ann.declaration import AUTO, PARAMETERS, parse_declaration
from puffin_ann.errors import BadInputError
from puffin_ann.wording import counted

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from puffin_ann.declaration import IndexDeclaration
    from puffin_ann.engines.links import MeasuredLinks
    from puffin_ann.engines.sizes import Shape, Size

ALGORITHMS = ", ".join(name for name in PARAMETERS if name != AUTO)
DEGREES = {"vamana": "R", "hnsw": "M"}
"""The parameter that is the degree of a graph."""
DECLARED = {"algorithm", "parameters", "vectors", "metric", "partitions_per_shard"}
"""What machines are told of the declaration."""


def size(
    rows: Annotated[float | None, typer.Option(help="Rows to index, such as 1e9.")] = None,
    dim: Annotated[int | None, typer.Option(help="Dimensions of a vector.")] = None,
    table: Annotated[
        str | None, typer.Option(help="catalog.namespace.table, of which rows are drawn.")
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Vector column of --table.  [default: its only one]")
    ] = None,
    algorithm: Annotated[str, typer.Option(help=ALGORITHMS)] = "vamana",
    vectors: Annotated[
        str, typer.Option(help="How shards store them: float32, float16, int8 or none.")
    ] = "float32",
    metric: Annotated[str, typer.Option(help="l2, cosine or ip.")] = "cosine",
    degree: Annotated[int | None, typer.Option(help="R of vamana, M of hnsw.")] = None,
    pq_m: Annotated[int | None, typer.Option(help="Codes of a row.")] = None,
    centroids: Annotated[int | None, typer.Option(help="Of a data file, for centroid.")] = None,
    shards: Annotated[
        int | None, typer.Option(help="[default: the fewest whose blobs Java can read, 2 GiB]")
    ] = None,
    partitions_per_shard: Annotated[int, typer.Option(help="k-means cells of a shard.")] = 32,
    files: Annotated[int | None, typer.Option(help="Data files of the table.")] = None,
    include_bytes: Annotated[
        float, typer.Option(help="Of a row's values of the columns under `include`, compressed.")
    ] = 0.0,
    row_groups: Annotated[int, typer.Option(help="Row groups of a data file.")] = 1,
    cells: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Cells that a query reads where no shard is on local disk, as `puffin-ann "
            "inspect` tells; lists, with --vectors none.  [default: 8, or all there are]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the bytes of an index, its cache, memory and requests, within a tenth.

    Rows, dimensions and data files are by default those of --table; all else is as a build takes
    it. Told are limits that are near, too. How many links a graph of vamana has depends on the
    data: by --table they are measured, in a minute or two; without it they are counted as of words
    and sentences, and told is between what bounds the file is otherwise.

    Example: puffin-ann size --rows 1e9 --dim 768
    """
    from puffin_ann.engines import sizes
    from puffin_ann.search.shards.cold.requests import cells_read, expected_requests

    rows, dim, there, drawn_from = _known(rows, dim, table, column)
    if not 0 <= rows <= sizes.MOST_ROWS:
        raise BadInputError(f"--rows must be a number from 0 to {sizes.MOST_ROWS:.0e}, got {rows}")
    parameters = {DEGREES.get(algorithm, "degree"): degree, "pq_m": pq_m, "centroids": centroids}
    index = _declared(
        parameters,
        algorithm=algorithm,
        vectors=vectors,
        metric=metric,
        shards=shards,
        partitions_per_shard=partitions_per_shard,
        include=["columns"] if include_bytes else None,
    )
    files = there if files is None else files
    shape = sizes.Shape(index, round(rows), dim, files, row_groups, include_bytes)
    if drawn_from is not None and algorithm == "vamana":
        shape = replace(shape, links=_links_of(*drawn_from, shape))
    if shards is None:
        shape = sizes.in_fewest_shards(shape)
    found, cells = sizes.predict(shape), cells_read(shape, cells)
    requests, told = expected_requests(shape, found, cells), sizes.warnings(shape, found)
    if as_json:
        declared = index.model_dump(mode="json", include=DECLARED)
        given = {name: value for name, value in asdict(shape).items() if name != "index"}
        told_shape = declared | given | {"shards": shape.shards}
        told_bytes = {**asdict(found), "requests": requests}
        print_json({"shape": told_shape, "bytes": told_bytes, "warnings": told})
        return
    form = f"vectors: {vectors}, {counted(shape.shards, 'shard')}" if shape.shards else ""
    say(
        f"{counted(shape.rows, 'row')} of {counted(dim, 'dimension')}, {algorithm}, {metric}, "
        f"{form or counted(files, 'file')}"
    )
    reads = "data files besides"
    if shape.shards:
        reads = f"{counted(cells, 'list' if vectors == 'none' else 'cell')} read"
    grid = _grid(shape, found)
    grid.add_row(f"S3 requests of a first answer, {reads}", f"{requests:,}")
    console.print(grid)
    for warning in told:
        say(warning)


def _declared(parameters: Mapping[str, int | None], **given: Any) -> "IndexDeclaration":
    """Return an index as it would be declared; None is as by default."""
    if given["algorithm"] == AUTO:
        raise BadInputError(
            f"a build chooses what is fastest for {AUTO!r}; size one of {ALGORITHMS}"
        )
    if given["algorithm"] not in PARAMETERS:
        raise BadInputError(f"--algorithm is {given['algorithm']!r}; size one of {ALGORITHMS}")
    named = {name: value for name, value in parameters.items() if value is not None}
    index = {"name": "size", "table": "catalog.namespace.table", "column": "vector"}
    index |= {name: value for name, value in given.items() if value is not None}
    return parse_declaration({**index, "parameters": named}, source="size")


def _known(
    rows: float | None, dim: int | None, table: str | None, column: str | None
) -> "tuple[float, int, int, tuple[Table, str] | None]":
    """Return rows, dimension and data files, and table and column to draw rows from, if given."""
    if table is None:
        if column is not None:
            raise BadInputError("--column is of a table: name that by --table")
        if rows is None or dim is None:
            raise BadInputError("give --rows and --dim, or --table")
        return rows, dim, 1, None
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.declare.look import look_at

    loaded = load_table(table)
    seen = look_at(loaded, column)
    if dim not in (None, seen.dimension):
        raise BadInputError(f"--dim is {dim}; the vectors of {table} have {seen.dimension}")
    rows = seen.rows if rows is None else rows
    return rows, seen.dimension, max(1, seen.files), (loaded, seen.column)


def _links_of(table: "Table", column: str, shape: "Shape") -> "MeasuredLinks | None":
    """Return the links of a graph over some rows of a table; None where those are too few."""
    from puffin_ann.engines import links
    from puffin_ann.lifecycle.declare.look import sample_vectors
    from puffin_ann.settings import settings

    vectors = sample_vectors(table, column, links.rows_to_measure(shape.dimension))
    if len(vectors) < links.FEWEST_ROWS:
        return None
    metric, degree = shape.index.metric, shape.parameters.R
    return links.measured(vectors, metric, degree, threads=settings().thread_count)


def _grid(shape: "Shape", found: "Size") -> Grid:
    """Return what people are shown of an index's bytes."""
    words = {part.name: part.metadata["what"] for part in fields(found)}
    if not shape.shards:
        words["shard"] = "centroids blob"
    if found.file_least == found.file_most:
        del words["file_least"], words["file_most"]
    grid = Grid(show_header=False)
    grid.add_column(style="bold", overflow="fold")
    grid.add_column(justify="right", no_wrap=True)
    for name, what in words.items():
        if count := getattr(found, name):
            grid.add_row(what, _rounded(count))
    return grid


def _rounded(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"
