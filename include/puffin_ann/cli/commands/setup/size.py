"""`puffin-ann size`: how large an index will be, before it is built."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as Grid

from puffin_ann.cli.output import AsJson, console, print_json, say
from puffin_ann.counts import counted
from puffin_ann.declaration import (
    AUTO,
    MOST_PARTITIONS_PER_SHARD,
    MOST_SHARDS,
    PARAMETERS,
    parse_declaration,
)
from puffin_ann.errors import BadInputError

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from puffin_ann.declaration import IndexDeclaration
    from puffin_ann.engines.links import MeasuredLinks
    from puffin_ann.engines.sizes import Shape, Size

ALGORITHMS = ", ".join(name for name in PARAMETERS if name != AUTO)

DEFAULT_CELLS = 8
DEFAULT_PARTITIONS_PER_SHARD = 32
FRAME, LEAST_WORDS = 10, 10
"""Columns of a terminal for the lines of a table of three columns, and for its words."""
DEGREES = {"vamana": "R", "hnsw": "M"}
"""The parameter that is the degree of a graph."""


def size(
    rows: Annotated[
        float | None, typer.Option(help="Rows to index, such as 1e9.  [default: of --table]")
    ] = None,
    dim: Annotated[
        int | None, typer.Option(help="Dimensions of a vector.  [default: of --table]")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            help="catalog.namespace.table, of which rows are drawn to measure the links of a graph "
            "of vamana. Takes up to a minute or two."
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Vector column of --table.  [default: its only one]")
    ] = None,
    algorithm: Annotated[str, typer.Option(help=ALGORITHMS)] = "vamana",
    vectors: Annotated[
        str, typer.Option(help="How shards store them: float32, float16, int8 or none.")
    ] = "float32",
    metric: Annotated[str, typer.Option(help="l2, cosine or ip.")] = "cosine",
    degree: Annotated[
        int | None,
        typer.Option(help="R of vamana, M of hnsw.  [default: as a build takes]"),
    ] = None,
    pq_m: Annotated[
        int | None, typer.Option(help="Codes of a row.  [default: as a build takes]")
    ] = None,
    centroids: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="centroid: centroids of a data file.  [default: 1]"),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_SHARDS,
            help="As declared; of fewer rows there are as many as rows.  [default: the fewest "
            "whose blobs Java can read, 2 GiB]",
        ),
    ] = None,
    partitions_per_shard: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_PARTITIONS_PER_SHARD,
            help=f"k-means cells of a shard.  [default: {DEFAULT_PARTITIONS_PER_SHARD}]",
        ),
    ] = None,
    files: Annotated[
        int | None,
        typer.Option(min=1, help="Data files of the table.  [default: those of --table, else 1]"),
    ] = None,
    include_bytes: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Bytes of a row's values of the columns under `include`, compressed.  "
            "[default: 0]",
        ),
    ] = None,
    row_groups: Annotated[int, typer.Option(min=1, help="Row groups of a data file.")] = 1,
    cells: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Cells that a query reads where no shard is on local disk; lists, with "
            "--vectors none. A build measures how many it takes; `puffin-ann inspect` tells.  "
            f"[default: {DEFAULT_CELLS}, or all there are]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the bytes of an index, its cache, memory and requests, within a tenth.

    Told are limits that are near, too. How many links a graph of vamana has depends on the data:
    without --table it is counted as of words and sentences, and told between what bounds the file
    is otherwise.

    Example: puffin-ann size --rows 1e9 --dim 768
    """
    from puffin_ann.engines import sizes
    from puffin_ann.search.shards.cold.requests import expected_requests

    rows, dim, there, drawn_from = _known(rows, dim, table, column)
    files = there if files is None else files
    if not 0 <= rows <= sizes.MOST_ROWS:
        raise BadInputError(f"--rows must be a number from 0 to {sizes.MOST_ROWS:.0e}, got {rows}")
    declared = _declared(
        {DEGREES.get(algorithm, "degree"): degree, "pq_m": pq_m, "centroids": centroids},
        dim,
        algorithm=algorithm,
        vectors=vectors,
        metric=metric,
        shards=shards,
        partitions_per_shard=partitions_per_shard,
        include=None if include_bytes is None else ["columns"],
    )
    shape = sizes.Shape(
        rows=round(rows),
        dimension=dim,
        algorithm=algorithm,
        vectors=declared.vectors,
        metric=metric,
        degree=degree,
        codes=pq_m,
        shards=shards,
        partitions_per_shard=declared.partitions_per_shard,
        files=files,
        row_groups=row_groups,
        centroids=centroids or 1,
        included=include_bytes or 0.0,
    )
    if drawn_from is not None and algorithm == "vamana":
        shape = replace(shape, links=_links_of(*drawn_from, shape))
    shape, found = sizes.predict(shape)
    cells = _checked_cells(cells, shape)
    requests, told = expected_requests(shape, found, cells), sizes.warnings(shape, found)
    if as_json:
        told_bytes = {**asdict(found), "requests": requests}
        print_json({"shape": asdict(shape), "bytes": told_bytes, "warnings": told})
        return
    form = f"vectors: {vectors}, {counted(shape.shards, 'shard')}" if shape.shards else ""
    say(
        f"{counted(shape.rows, 'row')} of {counted(dim, 'dimension')}, {algorithm}, {metric}, "
        f"{form or counted(files, 'file')}"
    )
    console.print(_grid(shape, found, requests, cells))
    for warning in told:
        say(warning)


def _grid(shape: "Shape", found: "Size", requests: int, cells: int) -> Grid:
    """Return what people are shown; where a terminal is narrow, words are wrapped, or left out."""
    from puffin_ann.engines.sizes import PARTS

    rows: list[tuple[str, ...]] = []
    parts = PARTS if shape.shards else PARTS | {"shard": "centroids blob"}
    for name, what in parts.items():
        count = getattr(found, name)
        if count:
            rows.append((what, f"{count:,} bytes", _rounded(count)))
        if name == "file" and found.file_least < found.file_most:
            bounds = _between(found.file_least, found.file_most)
            rows.append(("  by how rows lie", "(see --table)", bounds))
    reads = f"{counted(cells, 'cell')} read" if shape.shards else "and data files"
    rows.append(("S3 requests, first answer", reads, f"{requests:,}"))
    figures = [max(len(row[at]) for row in rows) for at in (1, 2)]
    if FRAME + LEAST_WORDS + sum(figures) > console.width:
        rows = [row[::2] for row in rows]
    grid = Grid(show_header=False)
    grid.add_column(style="bold", overflow="fold")
    for _ in rows[0][1:]:
        grid.add_column(justify="right", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    return grid


def _declared(
    parameters: Mapping[str, int | None], dimension: int, **fields: Any
) -> "IndexDeclaration":
    """Return an index as it would be declared.

    Args:
        parameters: of the algorithm; None as by default.
        dimension: of the vectors.
        **fields: of the declaration; None as by default.

    Raises:
        DeclarationError: it may not be declared so.
    """
    from puffin_ann.engines.base import check_subspaces

    if fields["algorithm"] == AUTO:
        raise BadInputError(
            f"a build chooses what is fastest for {AUTO!r}; size one of {ALGORITHMS}"
        )
    given = {
        "parameters": {name: value for name, value in parameters.items() if value is not None},
        **{name: value for name, value in fields.items() if value is not None},
    }
    index = {"name": "size", "table": "catalog.namespace.table", "column": "vector"}
    declared = parse_declaration(index | given, source="size")
    check_subspaces(declared.algorithm, declared.parameters, dimension)
    return declared


def _checked_cells(cells: int | None, shape: "Shape") -> int:
    """Return how many cells a query reads: as many as were given, if there are so many."""
    from puffin_ann.search.shards.cold.requests import most_cells

    most = most_cells(shape)
    if cells is None:
        return min(DEFAULT_CELLS, most)
    if not shape.shards:
        raise BadInputError(
            f"--cells is {cells}, of which {shape.algorithm} has none; leave it out"
        )
    if cells > most:
        what = "lists of a shard" if shape.vectors == "none" else "cells with rows"
        raise BadInputError(
            f"--cells is {cells}, but {shape.rows:,} rows have at most {most:,} {what}; take "
            f"at most {most}"
        )
    return cells


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
    return links.measured(vectors, shape.metric, shape.degree, threads=settings().thread_count)


def _between(least: int, most: int) -> str:
    """Return two counts of bytes, with their unit once if it is the same."""
    (one, unit), other = _rounded(least).split(), _rounded(most)
    return f"{one} to {other}" if other.endswith(f" {unit}") else f"{one} {unit} to {other}"


def _rounded(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"
