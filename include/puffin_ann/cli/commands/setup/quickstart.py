"""`puffin-ann quickstart`: from a Parquet file of vectors to a searched index."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.declarations import KeyColumn, Metric, VectorColumn
from puffin_ann.cli.output import console, say
from puffin_ann.cli.paths import named_path
from puffin_ann.cli.progress import steps
from puffin_ann.errors import BadInputError, EnvironmentProblemError
from puffin_ann.imports.pyiceberg_configuration import FILE

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from puffin_ann.declaration import IndexDeclaration
    from puffin_ann.lifecycle.report.status import IndexStatus

CATALOG = "local"
NAMESPACE = "quickstart"
ANSWERS = 5
ROWS_LOOKED_AT = 1000


def quickstart(
    file: Annotated[
        Path,
        typer.Argument(
            parser=named_path, metavar="FILE", help="A Parquet file with a column of vectors."
        ),
    ],
    column: VectorColumn = None,
    columns: Annotated[
        str, typer.Option(help="Columns to take, separated by commas.  [default: all]")
    ] = "",
    key: KeyColumn = None,
    metric: Metric = None,
    to: Annotated[
        Path,
        typer.Option(parser=named_path, metavar="FOLDER", help="Folder for all that is made."),
    ] = Path("puffin-ann-quickstart"),
) -> None:
    """Make a catalog, a table, a declaration and an index of a Parquet file, and search it.

    Everything lies in one folder, which may be removed afterwards. A second call with the same file
    goes on where the first one ended.

    Example: puffin-ann quickstart include/sample_data/glove-100d-20k.parquet
    """
    from puffin_ann.declaration import load_declaration
    from puffin_ann.declaration.fields.names import as_name

    to = to.resolve()
    _make_catalog(to)
    name = as_name(file.stem)
    path = to / "indexes" / f"{name}.yaml"
    with steps(as_json=False) as step:
        with step("write table"):
            table = _table(name, file, [part for part in columns.split(",") if part])
        if path.exists():
            declaration = load_declaration(path)
            _require_as_declared(declaration, path, column=column, key=key, metric=metric)
        else:
            with step("declare index"):
                declaration = _declare(table, path, column, key, metric)
    say(f"table {declaration.table} is in {to}, its declaration is {path}:")
    say(path.read_text(encoding="utf-8"))
    status = _build(declaration)
    environment = _write_environment(to)
    example = _search(declaration, status)
    say("Go on in a shell of your own:")
    for line in (
        f"source {shlex.quote(str(environment))}",
        *([example] if example else []),
        f"puffin-ann status {declaration.table}",
        f"puffin-ann refresh {declaration.name}  # after changes of the table or the declaration; "
        "--force where they are few",
        f"puffin-ann evaluate {declaration.name} --vector QUERIES.npy  # how much queries of your "
        "own find",
    ):
        say(f"  {line}")


def _make_catalog(folder: Path) -> None:
    """Make a catalog, and point this process at it before PyIceberg is imported, which reads it."""
    os.environ["PYICEBERG_HOME"] = str(folder)
    os.environ["PUFFIN_ANN_DECLARATIONS_DIR"] = str(folder / "indexes")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        described = folder / FILE
        if not described.exists():  # else another would be read, which may be for nothing here
            described.write_text("catalog:\n")
        from puffin_ann.lake.catalog.embedded import create_embedded

        create_embedded(folder, CATALOG)
    except OSError as error:
        raise EnvironmentProblemError(
            f"no catalog can be made in {folder}: {error}; choose another folder by --to"
        ) from None


def _table(name: str, file: Path, columns: list[str]) -> "Table":
    from puffin_ann.lake.catalog.tables import open_catalog
    from puffin_ann.lifecycle.declare.import_parquet import import_parquet

    return import_parquet(open_catalog(CATALOG), f"{NAMESPACE}.{name}", file, columns)


def _declare(
    table: "Table", path: Path, column: str | None, key: str | None, metric: str | None
) -> "IndexDeclaration":
    from puffin_ann.lifecycle.declare.look import look_at
    from puffin_ann.lifecycle.declare.suggest import suggest
    from puffin_ann.lifecycle.declare.write import write

    seen = look_at(table, column, key)
    return write(suggest(seen, name=path.stem, key=key, metric=metric), path)


def _require_as_declared(declaration: "IndexDeclaration", path: Path, **asked: str | None) -> None:
    """Refuse options that the declaration of an earlier call contradicts."""
    for field, value in asked.items():
        declared = getattr(declaration, field)
        if value not in (None, declared):
            raise BadInputError(
                f"{path} declares {field}: {declared}, not {value}: edit it, or choose another "
                "folder by --to"
            )


def _build(declaration: "IndexDeclaration") -> "IndexStatus":
    """Build or refresh the index in this process; return what it is like then."""
    from puffin_ann.cli.lease_options import own_run_id, writing
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.report import status as statuses
    from puffin_ann.lifecycle.runs.in_process import refresh_in_process

    run_id = own_run_id()
    with (
        writing(declaration.table, declaration.name, run_id, "build", no_wait=False),
        steps(as_json=False) as step,
    ):
        refresh_in_process(declaration, run_id=run_id, force=True, progress=step)
    (status,) = statuses.status(load_table(declaration.table), declaration.name, [declaration])
    console.print(statuses.grid(status))
    return status


def _write_environment(folder: Path) -> Path:
    """Write the file that points a shell at what was made."""
    lines = [
        f"export {name}={shlex.quote(os.environ[name])}\n"
        for name in ("PYICEBERG_HOME", "PUFFIN_ANN_DECLARATIONS_DIR")
    ]
    path = folder / "env"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _search(declaration: "IndexDeclaration", status: "IndexStatus") -> str | None:
    """Search with one row's vector; return the command that does it, if rows have keys."""
    from puffin_ann.cli.commands.reading.search import search
    from puffin_ann.lake.catalog.tables import load_table

    table = load_table(declaration.table)
    row = _row(table, declaration, status.dimension)
    k = min(ANSWERS, status.vectors - 1)
    if row is None or not k:
        return None
    key = f"{declaration.key}={row}"
    columns = ",".join([str(declaration.key), *_texts(table, declaration.key)])
    say(f"nearest to {key}:")
    search(declaration.table, declaration.name, key=[key], k=k, columns=[columns])
    words = ["puffin-ann", "search", declaration.table, declaration.name]
    few = ["--k", str(k)] if k < ANSWERS else []
    return shlex.join([*words, "--key", key, "--columns", columns, *few])


def _row(table: "Table", declaration: "IndexDeclaration", dimension: int) -> object:
    """Return the key of a row that can be searched with; None if the first rows have none."""
    import pyarrow.compute as pc

    from puffin_ann.lake.read.data.vectors import vectors_of

    if declaration.key is None:
        return None
    wanted = (declaration.key, declaration.column)
    rows = table.scan(selected_fields=wanted, limit=ROWS_LOOKED_AT).to_arrow()
    usable = vectors_of(rows.column(declaration.column), dimension).valid
    keys = rows.column(declaration.key)
    there = pc.is_valid(keys).to_numpy()
    return next((keys[int(at)].as_py() for at in (usable & there).nonzero()[0]), None)


def _texts(table: "Table", key: str | None) -> list[str]:
    """Return a column of text that tells people what a row is, if there is one beside its key."""
    from pyiceberg.types import StringType

    return [
        field.name
        for field in table.schema().fields
        if isinstance(field.field_type, StringType) and field.name != key and "," not in field.name
    ][:1]
