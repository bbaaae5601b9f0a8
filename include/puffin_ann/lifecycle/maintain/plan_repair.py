"""What it takes to make damaged shards, and the cells, of an index again: a refresh."""

from collections.abc import Sequence

from pyiceberg.io import FileIO

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import PuffinAnnError, StoreUnavailableError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lifecycle.policy.decision import Decision
from puffin_ann.lifecycle.policy.explain import spoken_seconds
from puffin_ann.lifecycle.refresh.due import find_due
from puffin_ann.lifecycle.versions.inventory import Inventory, live_files
from puffin_ann.lifecycle.versions.recorded_declaration import Recorded
from puffin_ann.lifecycle.versions.unreadable import Unreadable
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import live_state


def plan_repair(
    inventory: Inventory,
    index: str,
    damaged: Unreadable,
    declarations: Sequence[IndexDeclaration] = (),
) -> str:
    """Return what is done about damaged parts, and its cost; empty where that is not possible.

    Args:
        inventory: of the table.
        index: name of the index.
        damaged: what of its newest version cannot be read.
        declarations: of the table's indexes.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    declaration = declaration_of(inventory, index, declarations)
    path = live_files(inventory.published)[index].path

    def known(_: FileIO, version: IndexVersion) -> Unreadable:
        return damaged if version.path == path else Unreadable()

    if declaration is None:
        return ""
    try:
        live = live_state(inventory.table, inventory.head)
        due = find_due(inventory.table, declaration, live, force=True, repair=True, find=known)
    except StoreUnavailableError:
        raise
    except PuffinAnnError:
        return ""  # the table, or its column, does not allow it
    is_made = due.decision.unreadable or due.decision.remakes_cells
    return _in_words(due.decision) if is_made else ""


def declaration_of(
    inventory: Inventory, index: str, declarations: Sequence[IndexDeclaration] = ()
) -> IndexDeclaration | None:
    """Return what the newest version of an index was built by, or what is declared if that is it.

    None where nothing is recorded that can be read.
    """
    file = live_files(inventory.published).get(index)
    texts = [held.declaration for held in file.holds if held.index == index] if file else []
    recorded = Recorded.of(texts[0]).declaration() if texts else None
    if recorded is None:
        return None
    for declared in declarations:
        if declared.name == index and declared.fingerprint() == recorded.fingerprint():
            return declared
    return recorded.model_copy(update={"name": index, "table": name_of(inventory.table)})


def _in_words(decision: Decision) -> str:
    numbers = ", ".join(map(str, decision.unreadable))
    plural = "s" if len(decision.unreadable) > 1 else ""
    made = ["the cells again of the rows of all shards"] if decision.remakes_cells else []
    if decision.unreadable:
        made.append(
            f"shard{plural} {numbers} again of {decision.rows_lost:,} rows that are read from the "
            "table"
        )
    return (
        f"makes {' and '.join(made)}, in a new version that names what is whole where it is: about "
        f"{decision.bytes_written:,} bytes written, {decision.bytes_copied:,} copied, "
        f"{spoken_seconds(decision.seconds)} of work"
    )
