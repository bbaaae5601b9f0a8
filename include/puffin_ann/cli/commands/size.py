"""`puffin-ann size`: how large an index will be, before it is built."""

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as Grid

from puffin_ann.cli.output import AsJson, console, print_json
from puffin_ann.declaration import AUTO, CENTROID, PARAMETERS
from puffin_ann.errors import BadInputError

if TYPE_CHECKING:
    from puffin_ann.blobs.sizing.shape import IndexShape
    from puffin_ann.blobs.sizing.sizes import IndexSize
    from puffin_ann.engines.sizes import Engine

ALGORITHMS = tuple(name for name in PARAMETERS if name != AUTO)

SHARDS = {"hnsw": "layers and vectors", "ivf_pq": "lists and vectors", "exact": "vectors"}
"""What a shard's blob holds, where that is no graph blob."""

MOST_ROWS = 10**15

SMALLER = {
    "shard": "take more --shards",
    "partitions": "take fewer --partitions-per-shard",
    "coverage": "compact the table's files",
}
"""What makes each kind of blob smaller."""

PARTS = {
    "shard": "graph blob of a shard",
    "rows": "rows blob of a shard",
    "tombstones": "tombstones blob of a shard",
    "routing": "routing blob",
    "partitions": "partitions blob",
    "coverage": "coverage blob",
    "file": "Puffin file",
    "unpacked": "cache of a search of all shards",
}


def size(
    rows: Annotated[float, typer.Option(help="Rows to index, such as 1e9.")],
    dim: Annotated[int | None, typer.Option(help="Dimensions of a vector.")] = None,
    algorithm: Annotated[
        str | None, typer.Option(help=f"{', '.join(ALGORITHMS)}.  [default: vamana]")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="l2, cosine or ip.  [default: cosine]")] = None,
    degree: Annotated[
        int | None, typer.Option(min=0, help="vamana: R of the graph.  [default: 64]")
    ] = None,
    links: Annotated[
        int | None, typer.Option(min=2, max=256, help="hnsw: M.  [default: 16]")
    ] = None,
    mean_degree: Annotated[
        float | None,
        typer.Option(help="Mean neighbours of a node, in layer 0 of hnsw.  [default: estimated]"),
    ] = None,
    pq_m: Annotated[
        int | None,
        typer.Option(min=0, help="Codes of a row; 0: none.  [default: as a build takes]"),
    ] = None,
    pq_nbits: Annotated[
        int | None, typer.Option(min=1, max=8, help="vamana: bits of a code.  [default: 8]")
    ] = None,
    lists: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, help="ivf_pq: lists of a shard.  [default: as a build takes]"
        ),
    ] = None,
    centroids: Annotated[
        int, typer.Option(min=1, max=256, help="centroid: centroids of a data file.")
    ] = 1,
    shards: Annotated[
        int | None,
        typer.Option(min=1, help="[default: the fewest whose blobs Java can read, 2 GiB]"),
    ] = None,
    partitions_per_shard: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="k-means cells of a shard.  [default: 32]"),
    ] = None,
    files: Annotated[int, typer.Option(min=1, help="Data files of the table.")] = 1,
    row_groups: Annotated[int, typer.Option(min=1, help="Row groups of a data file.")] = 1,
    deleted: Annotated[
        float, typer.Option(help="Share of rows deleted since the build, 0 to 1.")
    ] = 0.0,
    like: Annotated[
        str | None,
        typer.Option(help="Puffin file whose first shard says what is not given here."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the bytes of an index, by any algorithm.

    How many neighbours a node of a graph has depends on the data: take --like from an index of such
    data, with about as many rows a shard, and the prediction is right within 2 %. Without it, it is
    from some 250 dimensions on.

    Example: puffin-ann size --rows 1e9 --dim 768
    """
    from puffin_ann.blobs.sizing.shape import IndexShape
    from puffin_ann.engines import sizes
    from puffin_ann.engines.sizes import Engine

    whole = _whole(rows)
    of_shape, of_engine = _told_by(like) if like else ({}, {})
    of_shape |= _given(dimension=dim, metric=metric, max_degree=degree, mean_degree=mean_degree)
    of_shape |= _given(pq_subspaces=pq_m, pq_bits=pq_nbits)
    of_shape |= _given(partitions_per_shard=partitions_per_shard)
    of_engine |= _given(algorithm=algorithm, links=links, lists=lists)
    if "dimension" not in of_shape:
        raise BadInputError("say how many dimensions a vector has: --dim, or --like FILE")
    if mean_degree is None and (degree, links) != (None, None):
        of_shape.pop("mean_degree", None)  # that of another maximum says nothing here
    engine = Engine(**of_engine, centroids=centroids)
    if engine.algorithm not in ALGORITHMS:
        raise BadInputError(
            f"algorithm must be one of {', '.join(ALGORITHMS)}, got {engine.algorithm!r}"
        )
    shape = IndexShape(
        rows=whole,
        shards=max(whole >> 20, 1) if shards is None else shards,
        files=files,
        row_groups=row_groups,
        tombstone_ratio=deleted,
        **sizes.fields_of(engine, of_shape),
    )
    _check_degree(mean_degree, shape, engine)
    if shards is None and engine.algorithm != CENTROID:
        shape = replace(shape, shards=sizes.fewest_shards(shape, engine))
    engine = sizes.with_default_lists(shape, engine)
    predicted = sizes.predict(shape, engine)
    if as_json:
        told = {"shape": asdict(shape), "engine": asdict(engine), "bytes": asdict(predicted)}
        print_json(told)
    else:
        _show(shape, engine, predicted)


def _whole(rows: float) -> int:
    """Return a number of rows, which may be written such as 1e9."""
    if not 0 <= rows <= MOST_ROWS:
        raise BadInputError(f"--rows must be a number from 0 to {MOST_ROWS:.0e}, got {rows}")
    return round(rows)


def _check_degree(given: float | None, shape: "IndexShape", engine: "Engine") -> None:
    """Refuse a mean of neighbours above the most there may be, where the graph has any."""
    most = 2 * engine.links if engine.algorithm == "hnsw" else shape.max_degree
    if given is not None and most and given > most:
        raise BadInputError(
            f"--mean-degree is {given}, but a node has at most {most} neighbours: "
            "give fewer, or a larger --degree or --links"
        )


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _told_by(file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the first shard of a Puffin file says of indexes of such data."""
    from puffin_ann.cli.puffin_files import open_puffin
    from puffin_ann.engines import sizes

    with open_puffin(file) as reader:
        told = sizes.read_shape(reader)
    if told is None:
        raise BadInputError(f"{file} has no shard of an index")
    return told


def _show(shape: "IndexShape", engine: "Engine", predicted: "IndexSize") -> None:
    from puffin_ann.puffin.layout import MAX_JAVA_BLOB

    told = [f"{shape.rows:,} rows of {shape.dimension} dimensions", engine.algorithm, shape.metric]
    parts = dict(PARTS)
    if engine.algorithm == CENTROID:
        told.append(f"{shape.files * engine.centroids:,} centroids of {shape.files:,} files")
        parts |= {"shard": "centroids blob", "unpacked": "memory of a search"}
    else:
        told.append(f"{shape.shards:,} shards of {math.ceil(shape.rows / shape.shards):,} rows")
        what = SHARDS.get(engine.algorithm)
        parts["shard"] = f"{what} of a shard" if what else parts["shard"]
    console.print(", ".join(told), highlight=False, soft_wrap=True)
    grid = Grid(show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for name, count in asdict(predicted).items():
        if count:
            grid.add_row(parts[name], f"{count:,} bytes", _rounded(count))
    console.print(grid)
    hints = SMALLER | (
        {"shard": "compact the table's files"} if engine.algorithm == CENTROID else {}
    )
    for name, hint in hints.items():
        if asdict(predicted)[name] > MAX_JAVA_BLOB:
            console.print(
                f"the {parts[name]} would have more than the 2 GiB that Iceberg's Java reader "
                f"takes, and would not be written: {hint}",
                highlight=False,
                soft_wrap=True,
            )


def _rounded(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"
