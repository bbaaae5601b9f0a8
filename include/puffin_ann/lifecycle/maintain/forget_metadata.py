"""Let foreign metadata files be ignored, as a person asks for who knows that nobody needs them."""

import logging
from collections.abc import Sequence

from pyiceberg.table import Table

from puffin_ann.declaration import RetentionOptions
from puffin_ann.errors import BadInputError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.commit.forget_metadata import forget
from puffin_ann.lake.metadata.foreign import Foreign, Reach
from puffin_ann.lake.store.listing import canonical
from puffin_ann.lifecycle.retention.foreign_history import SHOWN
from puffin_ann.lifecycle.retention.withheld import Protection
from puffin_ann.moments import now_ms

log = logging.getLogger("puffin_ann")


def forget_metadata(
    table: Table, files: Sequence[str], *, dry_run: bool, at_ms: int | None = None
) -> tuple[str, ...]:
    """Let foreign metadata files, and what they name alone, be ignored from now on.

    Args:
        table: is loaded again; a property of it remembers them.
        files: their locations, or names where those are enough. Of several commits in a row it
            takes each: any of them may be what another catalog points to.
        dry_run: remember nothing.
        at_ms: what counts as now.

    Returns:
        Their locations.

    Raises:
        BadInputError: one is not a foreign metadata file in reach, or too young.
        StoreUnavailableError: it cannot be told now.
    """
    protection = Protection.of(table, at_ms=at_ms)
    protection.require_readable()
    reach = protection.reach
    if reach.elsewhere:
        raise BadInputError(f"{reach.elsewhere}; so there is no metadata file to forget")
    oldest = (now_ms() if at_ms is None else at_ms) - RetentionOptions().grace_ms
    chosen = [_chosen(reach, file) for file in files if canonical(file) not in _forgotten(reach)]
    for foreign in chosen:
        if foreign.updated_ms > oldest:
            raise BadInputError(
                f"{foreign.location} is younger than {RetentionOptions().grace}: whoever made it "
                "may be about to commit it, or be working on the table; forget it when that is over"
            )
    found = tuple(foreign.location for foreign in chosen)
    if found and not dry_run:
        forget(reach.table, found, stored=reach.stored)
        log.info("clean: ignored from now on: %s", ", ".join(found))
    return found


def _forgotten(reach: Reach) -> set[str]:
    return {canonical(location) for location in reach.forgotten}


def _chosen(reach: Reach, file: str) -> Foreign:
    wanted = canonical(file)
    found = [
        foreign
        for foreign in reach.foreign
        if canonical(foreign.location) == wanted or foreign.location.rpartition("/")[2] == file
    ]
    if len(found) != 1:
        known = ", ".join(sorted(foreign.location for foreign in reach.foreign)[:SHOWN]) or "none"
        raise BadInputError(
            f"{file!r} is no foreign metadata file in reach of {name_of(reach.table)}; there are: "
            f"{known}"
        )
    return found[0]
