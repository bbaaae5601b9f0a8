"""Publish an index again as one file under a tag, for whoever wants to carry it."""

import logging

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lifecycle.maintain.examination.damage import require_whole
from puffin_ann.lifecycle.publish.republish import republish_under_tag
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.retry import retry_on_conflict
from puffin_ann.lifecycle.runtime.run_ids import new_run_id
from puffin_ann.lifecycle.versions.inventory import live_files, take_inventory
from puffin_ann.search.version.versions import require_versions

log = logging.getLogger("puffin_ann")


class GatherReport(BaseModel):
    """Where the whole index is.

    Attributes:
        table: the table's name.
        index: name of the index.
        file: location of the one file that has all of its newest version.
        files: how many it was in before, that one included if it was one.
    """

    model_config = ConfigDict(frozen=True)

    table: str
    index: str
    file: str
    files: int


def gather(table: str | Table, index: str) -> GatherReport:
    """Publish the newest version of an index as one file under a tag, without building it.

    Nothing is done where it is so already. The files it was in go once nothing needs them.

    Raises:
        IndexNotFoundError: no version of it can be read.
        DamagedIndexError: the newest version is not as it was written.
        TagNotKeptError: the catalog keeps no tags; the index is one file there in any case.
        ConflictError: the table was changed by others during every attempt; nothing was changed.
        UnclearCommitError: the catalog's answer was lost.
        LeaseHeldError: a run is at work on the index.
    """
    loaded = load_table(table)
    require_whole(loaded, require_versions(loaded, index)[0])
    owner = new_run_id(f"gather-{index}")
    with (
        leases.writing(loaded, index, owner, "gather it in one file", wait=False),
        leases.publishing(loaded, owner, f"gather index {index!r}"),
    ):
        return retry_on_conflict("gather", lambda: _gathered(loaded, index))


def _gathered(table: Table, index: str) -> GatherReport:
    inventory = take_inventory(table)
    live = live_files(inventory.published)
    where = name_of(inventory.table)
    if index not in live:
        raise IndexNotFoundError(f"no whole file of index {index!r} of {where} is left")
    file = live[index]
    path = file.path
    if file.needs or not inventory.is_tagged(file):
        path = republish_under_tag(inventory, index).path
        log.info("gather: index %s of %s is in %s", index, where, path)
    return GatherReport(table=where, index=index, file=path, files=1 + len(file.needs))
