"""A catalog in a folder: SQLite with the tables beside it, for one machine."""

import sqlite3
from contextlib import closing
from pathlib import Path

import yaml

from puffin_ann.errors import EnvironmentProblemError
from puffin_ann.imports.pyiceberg_configuration import FILE


def create_embedded(folder: Path, name: str) -> None:
    """Make a catalog in a folder, and describe it in the folder's `.pyiceberg.yaml`.

    PyIceberg finds it where `PYICEBERG_HOME` names the folder. What is there already stays, other
    catalogs that the file describes among it.

    Args:
        folder: made if it is not there.
        name: of the catalog.

    Raises:
        OSError: it cannot be made.
        EnvironmentProblemError: the `.pyiceberg.yaml` that is there describes no catalogs.
    """
    folder = folder.resolve()
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    create_database(folder / "catalog.db")
    described = {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }
    _describe(folder / FILE, name, described)


def _describe(file: Path, name: str, described: dict[str, str]) -> None:
    """Have a file of PyIceberg's describe a catalog; written only where it does not yet."""
    try:
        found = yaml.safe_load(file.read_text()) if file.exists() else None
    except yaml.YAMLError as error:
        raise EnvironmentProblemError(f"{file} is not YAML: {error}; mend or remove it") from None
    whole = {} if found is None else found
    catalogs = whole.get("catalog") or {} if isinstance(whole, dict) else None
    if not isinstance(catalogs, dict):
        raise EnvironmentProblemError(f"{file} describes no catalogs; mend or remove it")
    if catalogs.get(name) != described:
        whole["catalog"] = {**catalogs, name: described}
        file.write_text(yaml.safe_dump(whole))


def create_database(path: Path) -> None:
    """Create a catalog's SQLite database with write-ahead logging, unless it is there.

    A commit then waits for the disk once instead of four times, as lasting as before, and neither
    waits for readers nor keeps them out, of which a scheduler and its tasks are several. It stays
    with the file. Not for network file systems, which lack the memory that processes share.
    """
    if not path.exists():
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=WAL")
