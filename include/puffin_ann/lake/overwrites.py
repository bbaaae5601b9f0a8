"""What a registration pushed out of a snapshot's statistics slot, and how it is given back.

A snapshot has one slot and the last writer wins. Catalogs can be made to refuse a commit if a
branch moved, not if somebody else's statistics file was registered meanwhile. So whoever fills a
slot looks afterwards at what stood in it right before, which the table's log of metadata files
tells, and gives it back.
"""

import logging
from collections.abc import Collection, Iterator, Mapping

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import AssertTableUUID, SetStatisticsUpdate

from puffin_ann.errors import UnclearCommitError
from puffin_ann.lake.catalog import name_of
from puffin_ann.lake.past import metadata_document
from puffin_ann.lake.slots import slots

ATTEMPTS = 4

_log = logging.getLogger(__name__)


def path_in(table: Table, snapshot_id: int) -> str | None:
    """Return the location of the statistics file registered under a snapshot."""
    entry = slots(table).get(snapshot_id)
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
        entry = state.get(snapshot_id)
        if entry is not None and entry.statistics_path == path:
            registered = True
        elif registered:
            return entry if entry is not None and entry.statistics_path not in seen else None
    return None


def _states(table: Table) -> Iterator[Mapping[int, StatisticsFile]]:
    """Yield the table's slots now and in its earlier states, as far as those are kept."""
    yield slots(table)
    for entry in reversed(table.metadata.metadata_log):
        document = metadata_document(table.io, entry.metadata_file)
        if document is None:
            _log.warning(
                "cannot tell whether statistics of %s were overwritten: %s is not readable",
                name_of(table),
                entry.metadata_file,
            )
            return
        earlier = map(StatisticsFile.model_validate, document.get("statistics", ()))
        yield {one.snapshot_id: one for one in earlier}


def give_back(table: Table, entry: StatisticsFile, *, ours: str) -> None:
    """Register again what `ours` pushed out of its slot, unless somebody filled the slot anew.

    Raises:
        UnclearCommitError: the catalog does not say whether it is registered again.
    """
    problem: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            fresh = table.catalog.load_table(table.name())
            if path_in(fresh, entry.snapshot_id) != ours:
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
