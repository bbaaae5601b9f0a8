"""Say what repairs a shard that turns out damaged while a refresh reads it."""

from collections.abc import Iterator
from contextlib import contextmanager

from puffin_ann.errors import DamagedIndexError, DataFileError, FormatError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lifecycle.runtime.workspace import Workspace


@contextmanager
def naming_the_remedy(workspace: Workspace) -> Iterator[None]:
    """Name the index and the remedy where a blob of the base version is damaged.

    Raises:
        DamagedIndexError: one is.
        DataFileError: a file of the table itself is.
    """
    try:
        yield
    except (DataFileError, DamagedIndexError):
        raise
    except FormatError as error:
        table = name_of(workspace.table)
        raise DamagedIndexError(
            f"index {workspace.base_version.index!r}: {error}; nothing was published. "
            f"'puffin-ann doctor {table} --fix' makes what is damaged again of the table's rows"
        ) from error
