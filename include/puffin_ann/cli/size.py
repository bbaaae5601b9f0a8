"""`puffin-ann size`: how large an index will be, before it is built."""

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as Grid

from puffin_ann.cli.output import AsJson, console, print_json
from puffin_ann.errors import BadInputError

if TYPE_CHECKING:
    from puffin_ann.blobs.sizes import IndexShape, IndexSize

PARTS = {
    "graph": "graph blob of a shard",
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
    metric: Annotated[str | None, typer.Option(help="l2, cosine or ip.  [default: cosine]")] = None,
    degree: Annotated[
        int | None, typer.Option(help="R of the graph; 0: exact search.  [default: 64]")
    ] = None,
    mean_degree: Annotated[
        float | None, typer.Option(help="Mean neighbours of a node.  [default: estimated]")
    ] = None,
    pq_m: Annotated[
        int | None, typer.Option(help="Bytes of a code; 0: none.  [default: dim / 4]")
    ] = None,
    pq_nbits: Annotated[int | None, typer.Option(help="Bits of a code.  [default: 8]")] = None,
    shards: Annotated[
        int | None, typer.Option(help="[default: the fewest whose blobs Java can read, 2 GiB]")
    ] = None,
    partitions_per_shard: Annotated[int, typer.Option(help="k-means cells of a shard.")] = 32,
    files: Annotated[int, typer.Option(help="Data files of the table.")] = 1,
    row_groups: Annotated[int, typer.Option(help="Row groups of a data file.")] = 1,
    deleted: Annotated[float, typer.Option(help="Share of rows deleted since the build.")] = 0.0,
    like: Annotated[
        str | None,
        typer.Option(help="Puffin file whose first shard says what is not given here."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the bytes of an index.

    How many neighbours a node has depends on the data: take --like from an index of such data, with
    about as many rows a shard, and the prediction is right within 2 %. Without it, it is from some
    250 dimensions on.

    Example: puffin-ann size --rows 1e9 --dim 768
    """
    from puffin_ann.blobs import sizes

    given = {
        "dimension": dim,
        "metric": metric,
        "max_degree": degree,
        "mean_degree": mean_degree,
        "pq_subspaces": pq_m,
        "pq_bits": pq_nbits,
    }
    taken = _shape_of(like) if like else {}
    taken |= {name: value for name, value in given.items() if value is not None}
    if "dimension" not in taken:
        raise BadInputError("say how many dimensions a vector has: --dim, or --like FILE")
    if degree is not None and mean_degree is None:
        taken.pop("mean_degree", None)  # that of another maximum says nothing here
    if not taken.get("max_degree", 64):
        taken.setdefault("pq_subspaces", 0)
    taken = {"metric": "cosine", "pq_subspaces": max(taken["dimension"] // 4, 1), **taken}
    shape = sizes.IndexShape(
        rows=round(rows),
        shards=max(round(rows) >> 20, 1) if shards is None else shards,
        partitions_per_shard=partitions_per_shard,
        files=files,
        row_groups=row_groups,
        tombstone_ratio=deleted,
        **taken,
    )
    if shards is None:
        shape = replace(shape, shards=sizes.fewest_shards(shape))
    predicted = with_records(shape, sizes.predict(shape))
    if as_json:
        print_json({"shape": asdict(shape), "bytes": asdict(predicted)})
    else:
        _show(shape, predicted)


def with_records(shape: "IndexShape", predicted: "IndexSize") -> "IndexSize":
    """Return the sizes with what searches keep in their cache beside the blobs' content."""
    from puffin_ann.ann.vamana.kept import expected_bytes

    per_shard = math.ceil(shape.rows / shape.shards)
    records = expected_bytes(per_shard, shape.metric, shape.dimension, shape.max_degree)
    return replace(predicted, unpacked=predicted.unpacked + shape.shards * records)


def _shape_of(file: str) -> dict[str, Any]:
    """Return what the first shard of a Puffin file says of indexes of such data."""
    from puffin_ann.blobs import graph, rows, sizes
    from puffin_ann.cli.puffin import opened

    with opened(file) as reader:
        graphs, locators = reader.find(graph.TYPE), reader.find(rows.TYPE)
        if not graphs or not locators:
            raise BadInputError(f"{file} has no shard of an index")
        return sizes.shape_of(reader.open(graphs[0]), reader.open(locators[0]))


def _show(shape: "IndexShape", predicted: "IndexSize") -> None:
    per_shard = math.ceil(shape.rows / shape.shards)
    console.print(
        f"{shape.rows:,} rows of {shape.dimension} dimensions, {shape.metric}, "
        f"{shape.shards:,} shards of {per_shard:,} rows",
        highlight=False,
        soft_wrap=True,
    )
    grid = Grid(show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for name, count in asdict(predicted).items():
        grid.add_row(PARTS[name], f"{count:,} bytes", _rounded(count))
    console.print(grid)


def _rounded(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"
