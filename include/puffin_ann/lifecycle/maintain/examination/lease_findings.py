"""Tell which runs are at work on a table's indexes, and which claims no run made."""

from pyiceberg.table import Table

from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.store.leases import Held, Lease
from puffin_ann.lifecycle.maintain.examination.findings import Finding
from puffin_ann.lifecycle.runtime.leases import leases_of
from puffin_ann.moments import as_utc, now_ms


def lease_findings(table: Table) -> tuple[list[Finding], list[Lease]]:
    """Return which runs are at work, and the leases whose newest claim no run made."""
    findings: list[Finding] = []
    odd: list[Lease] = []
    for index, lease in leases_of(table):
        held = lease.look()
        if held is None or held.released:
            continue
        if held.oddity:
            odd.append(lease)
            findings.append(_odd(index, lease, held))
        elif held.is_alive(now_ms()):
            findings.append(_at_work(table, index, lease, held))
    return findings, odd


def _odd(index: str, lease: Lease, held: Held) -> Finding:
    return Finding(
        kind="lease",
        indexes=(index,) if index else (),
        file=lease.location_of(held),
        what=f"a claim to {lease.what} that no run made: {held.oddity}; it keeps nobody out",
        remedy="'puffin-ann doctor --fix' removes it",
    )


def _at_work(table: Table, index: str, lease: Lease, held: Held) -> Finding:
    taken = f"puffin-ann doctor {name_of(table)} --break-lease {index or name_of(table)}"
    return Finding(
        kind="lease",
        indexes=(index,) if index else (),
        file=lease.location_of(held),
        what=f"{lease.what} is being worked on by {held.described}",
        remedy=f"none needed; without a heartbeat it ends at {as_utc(held.until_ms)}, "
        f"and {taken!r} ends it at once",
        is_problem=False,
    )
