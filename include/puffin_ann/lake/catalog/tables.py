"""Find tables and snapshots through PyIceberg's own catalog configuration."""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pydantic
from pyiceberg import exceptions as catalog_errors
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableRequirement, TableUpdate

from puffin_ann.errors import (
    CatalogUnavailableError,
    NotInstalledError,
    ObjectMissingError,
    PuffinAnnError,
    SnapshotNotFoundError,
    TableNotFoundError,
    UnsupportedTableError,
)
from puffin_ann.imports.extras import Extra, install_command
from puffin_ann.lake.catalog.configuration import (
    not_configured,
    read_again,
    settings_of,
    wrong_file_io,
)
from puffin_ann.lake.catalog.index_snapshots import tag_of
from puffin_ann.lake.catalog.sqlite import SCHEME, SqliteCatalog, path_of
from puffin_ann.lake.catalog.timeouts import (
    HTTP_TIMEOUT,
    ask_until_answered,
    limit_requests,
    within,
)
from puffin_ann.lake.store.credentials import lend
from puffin_ann.lake.store.outages import ask_again, is_missing, is_of_a_store, translate
from puffin_ann.lake.store.store_properties import refuse_steering
from puffin_ann.redaction import remember_secrets, shown_cause
from puffin_ann.settings import settings
from puffin_ann.wording import meant

SHOWN = 10

# It quotes the catalog's address, and does so whenever that is loaded.
warnings.filterwarnings(
    "ignore", message=".*Iceberg REST client is missing the OAuth2", category=DeprecationWarning
)


def load_table(table: str | Table) -> Table:
    """Return the table named `catalog.namespace.table`; a PyIceberg table is handed back as it is.

    Raises TableNotFoundError if the name is not of that form or names nothing, and
    CatalogUnavailableError if the catalog is not configured or gives no answer within the setting
    `catalog_seconds`; StoreUnavailableError if it names a metadata file that cannot be read now.
    """
    if isinstance(table, Table):
        return table
    parts = table.split(".") if isinstance(table, str) else []
    if len(parts) < 3 or not all(parts):
        raise TableNotFoundError(
            f"{table!r} does not name a table: write catalog.namespace.table, "
            "with the catalog's name in the PyIceberg configuration first"
        )
    name, identifier = parts[0], ".".join(parts[1:])
    return _answered(name, identifier, lambda: _load(name, identifier))


def reload_table(table: Table) -> Table:
    """Return a table as its catalog has it now, asked over the connection that loaded it.

    To connect again costs as much as the question: an engine, or a REST catalog's configuration and
    token. Vended credentials come with each answer.

    Raises:
        TableNotFoundError, CatalogUnavailableError, StoreUnavailableError, UnsupportedTableError:
            as `load_table`.
    """
    name, identifier = table.catalog.name, ".".join(table.name())
    return _answered(name, identifier, lambda: _ask(table.catalog, name, identifier))


def snapshot(table: Table, snapshot_id: int | None = None) -> Snapshot | None:
    """Return the snapshot with this id, or the table's current one (None while it has none).

    Raises SnapshotNotFoundError, which lists the snapshots there are, without those that hold
    versions of indexes alone.
    """
    if snapshot_id is None:
        return table.current_snapshot()
    found = table.snapshot_by_id(snapshot_id)
    if found is None:
        newest = reversed(table.snapshots())
        known = [str(snapshot.snapshot_id) for snapshot in newest if tag_of(snapshot) is None]
        raise SnapshotNotFoundError(
            f"{name_of(table)} has no snapshot {snapshot_id}; newest first, it has: {_some(known)}"
        )
    return found


def snapshot_of_ref(table: Table, ref: str) -> Snapshot:
    """Return the snapshot that a branch or tag names.

    Raises SnapshotNotFoundError, which lists the branches and tags there are, without those that
    hold versions of indexes.
    """
    found = table.metadata.snapshot_by_name(ref)
    if found is None:
        known = sorted(
            name
            for name, found in table.refs().items()
            if tag_of(table.snapshot_by_id(found.snapshot_id)) is None
        )
        raise SnapshotNotFoundError(
            f"{name_of(table)} has no branch or tag {ref!r}{meant(ref, known)}; it has: "
            f"{_some(known)}"
        )
    return found


def is_branch(table: Table, ref: str | None) -> bool:
    """Tell whether a name is that of a branch; None is none."""
    found = table.refs().get(ref or "")
    return found is not None and found.snapshot_ref_type == SnapshotRefType.BRANCH


def schema_of_snapshot(table: Table, snapshot_id: int, *, by_branch: bool = False) -> Schema:
    """Return the schema by which columns of a snapshot are named.

    That is the table's current one of the current snapshot, and of the head of a branch that was
    asked for by name, as engines read branches; else the one that the snapshot was written with.

    Args:
        table: whose snapshot it is.
        snapshot_id: of it.
        by_branch: whether it was asked for by the name of a branch.

    Raises:
        SnapshotNotFoundError: the table has no such snapshot.
    """
    is_current = by_branch or snapshot_id == table.metadata.current_snapshot_id
    at = None if is_current else snapshot(table, snapshot_id)
    if at is None or at.schema_id is None:
        return table.schema()
    return table.schemas().get(at.schema_id, table.schema())


def name_of(table: Table) -> str:
    """Return `catalog.namespace.table`, the name that `load_table` takes."""
    return ".".join((table.catalog.name, *table.name()))


def commit(
    table: Table, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
) -> None:
    """Change a table by one commit, and once more only where it cannot have come to anything.

    Raises:
        Exception: PyIceberg's, or its clients'. Most leave it open what became of the commit.
    """
    # A catalog that has PyIceberg read the metadata does so before it changes anything.
    ask_again(
        lambda: table._do_commit(updates=updates, requirements=requirements),
        after=lambda error: bool(_unread_metadata(error)),
    )


def _answered(name: str, identifier: str, ask: Callable[[], Table]) -> Table:
    """Return the table that a catalog answers with in time; a store that fails is asked again."""
    try:
        return ask_again(lambda: within(settings().catalog_seconds, name, ask))
    except Exception as error:
        file = _unread_metadata(error)
        if not file:
            raise
        what = f"metadata file {file} of {name}.{identifier}"
        if is_missing(error):
            raise ObjectMissingError(f"{what} is gone from the store") from shown_cause(error)
        raise translate(error, what) from shown_cause(error)


def _unread_metadata(error: BaseException) -> str:
    """Return the location of the metadata file that a store did not give; empty if it is not that.

    Catalogs that keep no more than its location have PyIceberg read it, in the midst of their
    answer. What the store's client raises then does not tell itself from an error of the catalog's.
    """
    trace = error.__traceback__ if is_of_a_store(error) else None
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if frame.f_code is FromInputFile.table_metadata.__code__:
            return str(frame.f_locals["input_file"].location)
    return ""


def open_catalog(name: str) -> Catalog:
    """Connect to a catalog of PyIceberg's configuration.

    Raises:
        CatalogUnavailableError: it is not configured, or does not answer.
    """
    try:
        catalog = _connect_as_described(name)
    except ValueError as error:
        _remember_configured(name)
        raise not_configured(name, error) from shown_cause(error)
    except (catalog_errors.NotInstalledError, ModuleNotFoundError) as error:
        raise _not_installed(name, error) from None
    except PuffinAnnError:
        raise
    except Exception as error:
        _remember_configured(name)
        raise unavailable(name, error) from shown_cause(error)
    remember_secrets(catalog.properties)
    return catalog


def _connect_as_described(name: str) -> Catalog:
    """Connect to a catalog; one that is not known may have been described since we began."""
    try:
        return _connect(name)
    except ValueError:
        # PyIceberg reads its configuration when it is imported, and a triggerer runs for months.
        read_again()
        return _connect(name)


def _require_database(name: str) -> None:
    """Refuse an SQLite catalog whose file is away: PyIceberg would make an empty one in its place.

    Raises:
        CatalogUnavailableError: names the file.
    """
    uri = str(settings_of(name).get("uri", ""))
    path = uri.removeprefix(SCHEME).partition("?")[0]
    if not uri.startswith(SCHEME) or path.startswith((":memory:", "file:")) or not path:
        return
    if "%" in path:  # SQLAlchemy unquotes it since 2.1, and did not before
        path = _as_sqlalchemy_has_it(uri) or path
    what = f"catalog {name!r} is the SQLite file {path}, which"
    if _may_not_be_read(path):
        raise CatalogUnavailableError(
            f"{what} this user may not read: give them permission for it and for its folder"
        )
    if not Path(path).exists():
        raise CatalogUnavailableError(
            f"{what} is not there; put it back, or "
            "correct the catalog's uri. The first table that PyIceberg makes in it makes the file"
        )


def _may_not_be_read(path: str) -> bool:
    """Tell whether a file is kept from this user, or the folder that it would be in."""
    try:
        return Path(path).exists() and not os.access(path, os.R_OK)
    except PermissionError:
        return True


def _as_sqlalchemy_has_it(uri: str) -> str | None:
    try:
        from sqlalchemy.engine import make_url
    except ImportError:  # which PyIceberg tells when it makes the catalog
        return None
    return make_url(uri).database


def file_io(name: str, location: str) -> FileIO:
    """Return what reads a location by a catalog's properties, where no table lends its own.

    Raises:
        CatalogUnavailableError: the catalog is not configured, or does not answer.
    """
    return load_file_io(open_catalog(name).properties, location)


def _load(name: str, identifier: str) -> Table:
    return _ask(open_catalog(name), name, identifier)


def _ask(catalog: Catalog, name: str, identifier: str) -> Table:
    try:
        table = ask_until_answered(lambda: catalog.load_table(identifier))
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise TableNotFoundError(
            f"catalog {name!r} has no table {identifier!r}",
            # A reader of one DAG's log must not learn of other tables.
            aside=_neighbours(catalog, identifier),
        ) from shown_cause(error)
    except (ValidationError, pydantic.ValidationError) as error:
        # A statistics entry with a blob type PyIceberg does not know is the usual reason.
        raise UnsupportedTableError(
            f"PyIceberg cannot read the metadata of {name}.{identifier}: {error}"
        ) from shown_cause(error)
    except Exception as error:
        if _unread_metadata(error):
            raise
        raise unavailable(name, error) from shown_cause(error)
    remember_secrets(table.io.properties)  # a catalog may have vended them with this answer
    refuse_steering(table, f"{name}.{identifier}")
    lend(
        table.io,
        catalog.properties,
        lambda: _answered(name, identifier, lambda: _ask(catalog, name, identifier)).io.properties,
    )
    return table


def _remember_configured(name: str) -> None:
    """Keep the secrets of a catalog's configuration out of the error that is about to tell of it.

    Where the catalog could not even be made, PyIceberg has them, but no object of it.
    """
    with suppress(CatalogUnavailableError):  # the configuration is what is wrong
        remember_secrets(settings_of(name))


def _connect(name: str) -> Catalog:
    _require_database(name)
    if _speaks_http(name):
        limit_requests()
    catalog = ask_until_answered(lambda: _made(name))
    session = getattr(catalog, "_session", None)
    if session is None:
        return catalog
    import requests  # a REST catalog has imported it; for others it would be a tenth of a second

    if isinstance(session, requests.Session):
        # PyIceberg gives its requests no timeout, so that one that is never answered, a commit for
        # instance, would never be known to be lost.
        session.request = partial(session.request, timeout=HTTP_TIMEOUT)  # type: ignore[method-assign]
    return catalog


def _made(name: str) -> Catalog:
    given = settings_of(name)
    if path_of(given) is None:
        return load_catalog(name)
    return SqliteCatalog(name, given)  # type: ignore[abstract]  # what is missing is handed on


def _speaks_http(name: str) -> bool:
    given = settings_of(name)
    return given.get("type") == "rest" or str(given.get("uri", "")).startswith("http")


def _not_installed(name: str, error: Exception) -> NotInstalledError:
    """Return the error of a catalog whose client is not installed; names the extra of it."""
    wanted = str(error)
    extra: Extra | None = None
    if isinstance(error, ModuleNotFoundError) and error.name in ("boto3", "botocore"):
        extra = "s3"  # requests to a REST catalog may have to be signed as AWS has it
    elif "pyiceberg[glue]" in wanted:
        extra = "glue"
    elif "pyiceberg[hive]" in wanted:
        extra = "hive"
    remedy = install_command(extra) if extra else wanted
    return NotInstalledError(f"what catalog {name!r} is reached by is not installed: {remedy}")


def unavailable(name: str, error: Exception) -> CatalogUnavailableError:
    """Return the error that tells of a catalog which does not answer, and what to look at."""
    if wrong := wrong_file_io(name):
        return CatalogUnavailableError(wrong)
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return CatalogUnavailableError(
        f"catalog {name!r} does not answer: {reason}; check that its service runs and that "
        f"PYICEBERG_CATALOG__{name.upper()}__URI (or .pyiceberg.yaml) points to it"
    )


def _neighbours(catalog: Catalog, identifier: str) -> str:
    namespace, wanted = identifier.rsplit(".", 1)
    try:
        tables = sorted(found[-1] for found in catalog.list_tables(namespace))
    except Exception:
        return f"nor a namespace {namespace!r}"
    return f"namespace {namespace!r} has: {_some(tables)}{meant(wanted, tables)}"


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
