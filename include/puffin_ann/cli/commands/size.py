"""`puffin-ann size`: how large an index will be, before it is built."""

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from puffin_ann.cli.output import AsJson, console, print_json
from puffin_ann.declaration import AUTO, PARAMETERS
from puffin_ann.errors import BadInputError

ALGORITHMS = ", ".join(name for name in PARAMETERS if name != AUTO)

MOST_ROWS = 10**15

PARTS = {
    "row": "a row in its shard",
    "shard": "engine's blob of a shard",
    "rows": "rows blob of a shard",
    "columns": "columns blob of a shard",
    "routing": "routing blob",
    "partitions": "partitions blob",
    "coverage": "coverage blob",
    "footer": "footer",
    "file": "Puffin file",
    "cache": "local cache of all shards",
    "memory": "memory that searches touch",
}


def size(
    rows: Annotated[float, typer.Option(help="Rows to index, such as 1e9.")],
    dim: Annotated[int, typer.Option(help="Dimensions of a vector.")],
    algorithm: Annotated[str, typer.Option(help=ALGORITHMS)] = "vamana",
    vectors: Annotated[
        str, typer.Option(help="How shards store them: float32, float16, int8 or none.")
    ] = "float32",
    metric: Annotated[str, typer.Option(help="l2, cosine or ip.")] = "cosine",
    degree: Annotated[
        int | None,
        typer.Option(min=2, max=512, help="R of vamana, M of hnsw.  [default: as a build takes]"),
    ] = None,
    pq_m: Annotated[
        int | None, typer.Option(min=1, help="Codes of a row.  [default: as a build takes]")
    ] = None,
    centroids: Annotated[
        int, typer.Option(min=1, max=256, help="centroid: centroids of a data file.")
    ] = 1,
    shards: Annotated[
        int | None,
        typer.Option(min=1, help="[default: the fewest whose blobs Java can read, 2 GiB]"),
    ] = None,
    partitions_per_shard: Annotated[
        int, typer.Option(min=1, max=4096, help="k-means cells of a shard.")
    ] = 32,
    files: Annotated[int, typer.Option(min=1, help="Data files of the table.")] = 1,
    include_bytes: Annotated[
        float,
        typer.Option(
            min=0, help="Bytes of a row's values of the columns under `include`, compressed."
        ),
    ] = 0.0,
    row_groups: Annotated[int, typer.Option(min=1, help="Row groups of a data file.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Predict the bytes of an index, its cache and its memory, within a tenth.

    Told are limits that are near, too. How many links a graph has depends on the data: of few
    dimensions, where links outweigh vectors, predictions may be farther off.

    Example: puffin-ann size --rows 1e9 --dim 768
    """
    from puffin_ann.engines import sizes

    if not 0 <= rows <= MOST_ROWS:
        raise BadInputError(f"--rows must be a number from 0 to {MOST_ROWS:.0e}, got {rows}")
    given: dict[str, Any] = {"vectors": vectors, "degree": degree, "codes": pq_m}
    shape, found = sizes.predict(
        sizes.Shape(
            rows=round(rows),
            dimension=dim,
            algorithm=algorithm,
            metric=metric,
            shards=shards,
            partitions_per_shard=partitions_per_shard,
            files=files,
            row_groups=row_groups,
            centroids=centroids,
            included=include_bytes,
            **given,
        )
    )
    told = sizes.warnings(shape, found)
    if as_json:
        print_json({"shape": asdict(shape), "bytes": asdict(found), "warnings": told})
        return
    form = f"vectors: {vectors}, {shape.shards:,} shards" if shape.shards else f"{files:,} files"
    head = f"{shape.rows:,} rows of {dim} dimensions, {algorithm}, {metric}, {form}"
    console.print(head, highlight=False, soft_wrap=True)
    grid = Grid(show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    parts = PARTS if shape.shards else PARTS | {"shard": "centroids blob"}
    for name, what in parts.items():
        count = getattr(found, name)
        if count:
            grid.add_row(what, f"{count:,} bytes", _rounded(count))
    grid.add_row("requests of a first answer on S3", f"{found.requests:,}", "or more")
    console.print(grid)
    for warning in told:
        console.print(warning, highlight=False, soft_wrap=True)


def _rounded(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"
