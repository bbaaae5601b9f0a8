"""What the page of indexes shows of each: a row for each declaration, as texts.

What costs time is imported when the page is opened.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from puffin_ann.airflow.dag_ids import dag_id_of
from puffin_ann.declaration import IndexDeclaration, load_declaration
from puffin_ann.errors import (
    DeclarationError,
    EnvironmentProblemError,
    IndexNotFoundError,
    PuffinAnnError,
)

if TYPE_CHECKING:
    from puffin_ann.lifecycle.report.status import IndexStatus

log = logging.getLogger("puffin_ann")

UNKNOWN = "cannot be found now; see the log of the API server"


@dataclass(frozen=True)
class Row:
    """One index as the page shows it: texts, not yet escaped, by column."""

    dag_id: str
    cells: dict[str, str]


def row_of(path: Path) -> Row:
    """Return the row of a declaration's file.

    An index whose state cannot be found has the reason as its state: the others are shown anyway.
    """
    try:
        declaration = load_declaration(path)
    except DeclarationError as error:
        return row_with(path.stem, "", {"state": f"declaration not valid: {error}"})
    return row_with(declaration.name, declaration.table, _state(declaration))


def row_with(index: str, table: str, state: dict[str, str]) -> Row:
    """Return a row with the columns that every index has, and those that its state gives."""
    dag_id = dag_id_of("build", index)
    return Row(dag_id, {"index": index, "table": table, "DAG": dag_id, **state})


def _state(declaration: IndexDeclaration) -> dict[str, str]:
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.report.status import status

    try:
        (found,) = status(load_table(declaration.table), declaration.name)
    except IndexNotFoundError:
        return {"state": "not built yet"}
    except EnvironmentProblemError as error:
        # It quotes what a catalog or a store said of itself: addresses and files, not for everyone.
        log.warning("the state of index %s cannot be found: %s", declaration.name, error)
        return {"state": UNKNOWN}
    except PuffinAnnError as error:
        return {"state": str(error)}
    except Exception:
        log.exception("the state of index %s cannot be found", declaration.name)
        return {"state": UNKNOWN}
    return _figures(found, declaration)


def _figures(found: "IndexStatus", declaration: IndexDeclaration) -> dict[str, str]:
    if found.fingerprint != declaration.fingerprint():
        state = "declaration changed since it was built"
    elif found.rows_to_scan or found.rows_masked:
        state = f"{found.rows_to_scan:,} rows added, {found.rows_masked:,} deleted since"
    else:
        state = "up to date"
    return {
        "state": state,
        "vectors": f"{found.vectors:,}",
        "in deltas": f"{found.delta_rows:,}" if found.deltas else "",
        "tombstones": f"{found.tombstone_ratio:.1%}" if found.tombstones else "",
        "coverage": f"{found.coverage:.2%}",
        "recall": "" if found.recall is None else f"{found.recall:.4f}",
        "MB": f"{found.bytes / 1e6:,.1f}",
        "published": found.published_at or "",
    }
