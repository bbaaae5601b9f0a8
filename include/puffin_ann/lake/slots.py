"""Statistics slots: a snapshot has one, the last writer wins, and no requirement guards it.

Iceberg's catalogs can be made to refuse a commit if a branch moved, not if somebody else's
statistics file was registered meanwhile. So whoever fills a slot looks afterwards at what stood in
it right before, which the table's log of metadata files tells, and gives it back.
"""

import logging
from collections.abc import Collection, Iterator

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import AssertTableUUID, SetStatisticsUpdate

from puffin_ann.errors import UnclearCommitError
from puffin_ann.lake.catalog import name_of

ATTEMPTS = 4

_log = logging.getLogger(__name__)


def slot(metadata: TableMetadata, snapshot_id: int) -> StatisticsFile | None:
    """Return the statistics file registered under a snapshot."""
    return next((one for one in metadata.statistics if one.snapshot_id == snapshot_id), None)


def path_in(metadata: TableMetadata, snapshot_id: int) -> str | None:
    """Return the location of the statistics file registered under a snapshot."""
    entry = slot(metadata, snapshot_id)
    return entry.statistics_path if entry else None


def overwritten(
    table: Table,
    snapshot_id: int,
    path: str,
    *,
    seen: Collection[str | None],
    seen_in: str | None = None,
) -> StatisticsFile | None:
    """Return what registering `path` under a snapshot pushed out, if it is not what we had seen.

    Args:
        table: as loaded after the registration.
        snapshot_id: whose slot was filled.
        path: location of the file that was registered.
        seen: what stood in the slot when the registration was prepared, at each attempt.
        seen_in: the metadata file that was looked at then. If it is the one before the current,
            nobody came between, and nothing is read.
    """
    log = table.metadata.metadata_log
    if log and seen_in is not None and log[-1].metadata_file == seen_in:
        return None
    registered = False
    for state in _states(table):
        entry = slot(state, snapshot_id)
        if entry is not None and entry.statistics_path == path:
            registered = True
        elif registered:
            return entry if entry is not None and entry.statistics_path not in seen else None
    return None


def _states(table: Table) -> Iterator[TableMetadata]:
    """Yield the table's states, the newest first, as far as they are kept."""
    yield table.metadata
    for entry in reversed(table.metadata.metadata_log):
        try:
            yield FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except (OSError, ValueError) as error:
            _log.warning(
                "cannot tell whether statistics were overwritten: %s is not readable (%s)",
                entry.metadata_file,
                error,
            )
            return


def give_back(table: Table, entry: StatisticsFile, *, ours: str) -> None:
    """Register again what `ours` pushed out of its slot, unless somebody filled the slot anew.

    Raises:
        UnclearCommitError: the catalog does not say whether it is registered again.
    """
    problem: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            fresh = table.catalog.load_table(table.name())
            if path_in(fresh.metadata, entry.snapshot_id) != ours:
                return
            fresh._do_commit(
                updates=(SetStatisticsUpdate(statistics=entry),),
                requirements=(AssertTableUUID(uuid=fresh.metadata.table_uuid),),
            )
        except Exception as error:
            problem = error
            continue
        _log.warning(
            "%s was registered under snapshot %d of %s at the same moment; it is so again",
            entry.statistics_path,
            entry.snapshot_id,
            name_of(table),
        )
        return
    raise UnclearCommitError(
        f"{ours} took the place of {entry.statistics_path} under snapshot {entry.snapshot_id} of "
        f"{name_of(table)}, and the catalog does not let it be registered again: {problem}"
    ) from problem
