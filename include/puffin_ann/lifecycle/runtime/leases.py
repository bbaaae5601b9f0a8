"""One writer per index at any time, and one per table while its index file is assembled.

A run holds the lease on its index from before it is planned until it ends, whatever triggered it;
while it publishes it also holds the lease on the table. A run that finds the lease taken waits, and
plans when it is free: so what was asked for is done, or the other run has done it already.

Leases save work. Only the commit's assertion of the branch head ensures that a run publishes at
most once, and never on top of something it has not seen.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyiceberg.table import Table

from puffin_ann.declaration import check_name, is_name
from puffin_ann.errors import EnvironmentProblemError, LeaseHeldError, NotFoundError
from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lake.store.leases import CLAIM, Held, Lease
from puffin_ann.lake.store.listing import list_objects
from puffin_ann.lake.store.locations import staging_folder, staging_folders
from puffin_ann.settings import settings

log = logging.getLogger("puffin_ann")

Tell = Callable[[str], object]

POLL_SECONDS = 2.0
PATIENCE_SECONDS = 1800.0
"""How long a publication waits for another one, which takes minutes at most."""

BEATS = 4
"""The heartbeat within the time after which a run without any is presumed dead."""

_held_here: set[tuple[str, str]] = set()
_guard = threading.Lock()


def index_lease(table: Table, index: str) -> Lease:
    """Return the lease held by a run that builds, refreshes, maintains or drops an index."""
    return Lease(table.io, index_folder(table, index), f"index {index!r} of {name_of(table)}")


def index_folder(table: Table, index: str) -> str:
    """Return the folder of what is kept beside an index: its lease, evaluations, staged runs.

    Raises:
        BadInputError: no index can have that name, which may lead out of there.
    """
    return f"{staging_folder(table)}/{check_name(index)}"


def index_folders(table: Table, index: str) -> list[str]:
    """Return that folder, and after it those that it may have been before.

    Raises:
        BadInputError: no index can have that name, which may lead out of there.
    """
    return [f"{folder}/{check_name(index)}" for folder in staging_folders(table)]


def table_lease(table: Table) -> Lease:
    """Return the lease of those who assemble a table's index file and publish it."""
    return Lease(table.io, staging_folder(table), f"the index file of {name_of(table)}")


def leases_of(table: Table) -> list[tuple[str, Lease]]:
    """Return the leases that a run has or had: on indexes, by name, and on the table, as ""."""
    root = staging_folder(table)
    found = list_objects(table.io, root, recursive=True)
    paths = {lease.uri[len(root) + 1 :].rpartition("/") for lease in found}
    indexes = {index for index, _, name in paths if CLAIM.fullmatch(name) and "/" not in index}
    return [
        (index, index_lease(table, index) if index else table_lease(table))
        for index in sorted(indexes)
        if not index or is_name(index)
    ]


def break_lease(table: str | Table, index: str) -> str:
    """End the lease on an index, or on the table's index file where `index` is the table's name.

    The holder goes on, and may do in vain what another run does meanwhile. Returns who had
    it, in a sentence.

    Raises:
        NotFoundError: nobody has it.
    """
    loaded = load_table(table)
    lease = table_lease(loaded) if index == name_of(loaded) else index_lease(loaded, index)
    held = lease.break_lease()
    if held is None:
        raise NotFoundError(f"nobody holds the lease on {lease.what}")
    return f"took the lease on {lease.what} away from {held.described}"


def begin(table: str | Table, index: str, owner: str, purpose: str) -> Held:
    """Take the lease of an index for a run whose work is spread over several processes.

    It lasts until `end`, or until the run sends no heartbeat for `lease_idle_seconds`.

    Raises:
        LeaseHeldError: another run has it; says which, and since when.
    """
    loaded = load_table(table)
    idle = settings().lease_idle_seconds
    held = index_lease(loaded, index).acquire(owner, purpose, idle)
    log.info("lease: %s has %s, number %d", owner, index_lease(loaded, index).what, held.number)
    return held


def end(table: str | Table, index: str, owner: str) -> bool:
    """Give an index's lease back; False if the run did not have it any more."""
    return index_lease(load_table(table), index).release(owner)


@contextmanager
def keep_lease(table: str | Table, index: str, owner: str, purpose: str) -> Iterator[None]:
    """Keep the lease of a run alive during one of its stages, wherever that runs.

    Raises:
        LeaseHeldError: the run was presumed dead, and another one is at work.
    """
    lease = index_lease(load_table(table), index)
    lease.acquire(owner, purpose, settings().lease_seconds)
    try:
        with _kept(lease, owner):
            yield
    finally:
        _renew(lease, owner, settings().lease_idle_seconds)


@contextmanager
def writing(
    table: str | Table,
    index: str,
    owner: str,
    purpose: str,
    *,
    wait: bool = True,
    tell: Tell | None = None,
) -> Iterator[None]:
    """Hold an index's lease for a run within this process; others wait for its end.

    Nested for the same run, the outermost one gives it back.

    Args:
        table: by name, or as loaded.
        index: name of the index.
        owner: id of the run.
        purpose: what it does, for those who wait.
        wait: for the holder; else fail at once.
        tell: gets a sentence when there is something to wait for.

    Raises:
        LeaseHeldError: another run has it, and `wait` is not set.
    """
    lease = index_lease(load_table(table), index)
    with _holding(lease, owner, purpose, float("inf") if wait else 0.0, tell):
        yield


@contextmanager
def publishing(
    table: str | Table, owner: str, purpose: str, *, tell: Tell | None = None
) -> Iterator[None]:
    """Hold a table's lease while its index file is assembled and published.

    Raises:
        LeaseHeldError: others have it for longer than any publication takes.
    """
    with _holding(table_lease(load_table(table)), owner, purpose, PATIENCE_SECONDS, tell):
        yield


@contextmanager
def _holding(
    lease: Lease, owner: str, purpose: str, patience: float, tell: Tell | None
) -> Iterator[None]:
    key = (lease.what, owner)
    with _guard:
        outermost = key not in _held_here
        _held_here.add(key)
    if not outermost:
        yield
        return
    try:
        _wait(lease, owner, purpose, patience, tell)
        try:
            with _kept(lease, owner):
                yield
        finally:
            _give_back(lease, owner)
    finally:
        with _guard:
            _held_here.discard(key)


def _wait(lease: Lease, owner: str, purpose: str, patience: float, tell: Tell | None) -> None:
    deadline = time.monotonic() + patience
    told = ""
    while True:
        try:
            lease.acquire(owner, purpose, settings().lease_seconds)
        except LeaseHeldError as error:
            if time.monotonic() >= deadline:
                raise
            if str(error) != told:
                told = str(error)
                log.info("lease: %s; waiting", told)
                if tell is not None:
                    tell(
                        f"{told}; waiting until that ends, or has shown no sign of life for "
                        f"{settings().lease_seconds:.0f} s"
                    )
            time.sleep(min(POLL_SECONDS, settings().lease_seconds / BEATS))
        else:
            return


@contextmanager
def _kept(lease: Lease, owner: str) -> Iterator[None]:
    """Renew a lease from a thread until the body ends."""
    seconds = settings().lease_seconds
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(seconds / BEATS):
            _renew(lease, owner, seconds)

    thread = threading.Thread(target=beat, name="puffin-ann-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _renew(lease: Lease, owner: str, seconds: float) -> None:
    try:
        if not lease.renew(owner, seconds):
            log.warning(
                "lease: run %s no longer holds the lease on %s; it continues, and its commit may "
                "be refused",
                owner,
                lease.what,
            )
    except (EnvironmentProblemError, OSError) as error:
        log.warning("lease: no heartbeat could be sent for %s: %s", lease.what, error)


def _give_back(lease: Lease, owner: str) -> None:
    try:
        lease.release(owner)
    except (EnvironmentProblemError, OSError) as error:
        log.warning("lease: %s is not released, and will expire: %s", lease.what, error)
