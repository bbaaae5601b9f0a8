"""Publish a Puffin file in one catalog commit that asserts what it was planned on.

In mode `tag` the commit adds a snapshot that is on no branch (see `tagged_snapshot`). It asserts
that its tag is not there yet and that no branch moved since it was prepared; if one did, it is
prepared again. In mode `statistics` it asserts the head of main, and registers the file under the
base snapshot. What no assertion can guard, the statistics slot of a snapshot that others know too,
is looked at afterwards (see `overwritten_statistics`).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.table import Table

from puffin_ann.errors import (
    CatalogUnavailableError,
    ConflictError,
    PuffinAnnError,
    StagingError,
    StoreUnavailableError,
    TableNotFoundError,
    TagNotKeptError,
    UnclearCommitError,
)
from puffin_ann.lake.catalog.tables import commit, name_of, reload_table
from puffin_ann.lake.commit.attempt import Attempt, Published, Request, find_published
from puffin_ann.lake.commit.overwritten_statistics import give_back, overwritten
from puffin_ann.lake.commit.publish_mode import publish_mode
from puffin_ann.lake.commit.statistics_slots import SlotChange, change_slots, slots
from puffin_ann.lake.commit.tagged_snapshot import restore_number
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.store.objects import object_exists, object_length
from puffin_ann.redaction import shown_cause
from puffin_ann.settings import settings

ATTEMPTS = 4
LOOKS = 4
WAIT_SECONDS = 0.25

_REFUSALS = (
    CommitFailedException,
    ValidationException,
    NoSuchTableError,
    BadRequestError,
    UnauthorizedError,
    ForbiddenError,
    NotImplementedError,  # PyIceberg's own, of metadata that it cannot write
)
"""Answers that say for certain that nothing was committed. Any other error leaves it open."""

_DENIALS = (NoSuchTableError, UnauthorizedError, ForbiddenError)
"""Those of them that have nothing to do with how a file is published."""

_log = logging.getLogger("puffin_ann")


def commit_index_file(table: Table, request: Request) -> Published:
    """Register a Puffin file in one commit.

    In mode `tag` it adds a snapshot under a tag, with the file as its statistics; that the catalog
    keeps the tag is looked at afterwards. In mode `statistics` it asserts main's head, adds no
    snapshot and registers the file under the base snapshot, in the place of a carried file if there
    is one. A file that others register there at the same moment is given its place back. What
    remains in this mode is a request whose answer was lost and that lands after another writer
    filled the slot, while the head has not moved: no catalog can be told to refuse it, so that
    `doctor` has to find it.

    Args:
        table: not changed; load it again to see the result.
        request: what is published.

    Raises:
        ConflictError: in mode `statistics` main's head is not the expected one, another writer's
            file is registered under the base snapshot, or that snapshot is gone; in mode `tag`
            somebody else's tag has the name. Nothing was published.
        UnclearCommitError: the catalog's answers were lost, or the file vanished while it was being
            published. Files must be kept; after every other error nothing was published, and the
            file can be deleted.
        CatalogUnavailableError: the catalog does not answer, or refuses such commits altogether.
        UnsupportedTableError: the catalog cannot change tables of this format version at all.
        TagNotKeptError: in mode `tag`, the catalog keeps no tags; nothing was published.
        StagingError: the file is missing or has another size.
    """
    _check_file(table, request)
    published = _Publication(table, request).run()
    if not published.already:
        _check_still_there(table, request, published)
    return published


@dataclass
class _Publication:
    """Attempts to commit one request until the outcome is known, or given up on."""

    table: Table
    request: Request
    unclear: list[Attempt] = field(default_factory=list)
    """Attempts whose outcome is not known. Each asserted the same head, or the same tag: at most
    one of them can ever land, however late; in mode `statistics` all do the same."""

    def run(self) -> Published:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(WAIT_SECONDS * 2**attempt)
            published = self._attempt()
            if published is not None:
                return published
        if self.unclear:
            raise self._unclear_error()
        raise ConflictError(
            f"{name_of(self.table)} was changed by others during each of {ATTEMPTS} attempts to "
            "publish, though its head did not move; nothing was published"
        )

    def _attempt(self) -> Published | None:
        fresh = self._load()
        publish_mode(fresh, self.request.mode)  # refuses a format version that cannot be written
        found = self._find(fresh)
        if found is not None:
            return self._settled(fresh, found)
        attempt = self._staged(fresh)
        self.unclear.append(attempt)  # as long as we do not know better
        try:
            # Not commit_transaction(): that retries by itself, and puts the snapshot on the new
            # head. This is the one attempt below it, with our requirements.
            commit(fresh, attempt.updates, attempt.requirements)
        except _REFUSALS as error:
            return self._refused(attempt, error)
        except Exception as error:
            _log.warning("no answer to the commit of %s: %s", self.request.path, error)
            return self._look()
        committed = fresh.snapshot_by_id(attempt.snapshot_id)
        number = committed.sequence_number if committed else None
        return self._settled(fresh, Published(attempt.snapshot_id, number or 0, already=False))

    def _staged(self, fresh: Table) -> Attempt:
        """Make the commit for the table as it is, if that is still what was planned on."""
        try:
            self._check_head(fresh)
            return Attempt.of(fresh, self.request)
        except PuffinAnnError as error:
            if self.unclear:
                raise self._unclear_error() from shown_cause(error)
            raise

    def _find(self, table: Table) -> Published | None:
        ours = {attempt.snapshot_id for attempt in self.unclear}
        return find_published(table, self.request, ours)

    def _settled(self, table: Table, published: Published) -> Published:
        """Check for the tag; give back the place under the base snapshot, if that was somebody's.

        Raises:
            ConflictError: in mode `statistics` nothing is published then.
        """
        if self.request.mode == "tag":
            fresh = self._load()
            restore_number(fresh)
            if not published.already:
                self._require_tag(fresh, published)
            return published
        landed = [
            attempt for attempt in self.unclear if attempt.snapshot_id == published.snapshot_id
        ]
        if published.already or not landed:
            return published
        request = self.request
        pushed_out = overwritten(
            table,
            request.base_snapshot_id,
            request.path,
            seen={attempt.seen for attempt in landed},
            seen_in=landed[0].seen_in if len(landed) == 1 else None,
        )
        if pushed_out is None:
            return published
        give_back(self.table, pushed_out, ours=request.path)
        if request.is_of_the_run(pushed_out.statistics_path):
            return replace(published, already=True)
        if len(self.unclear) > 1:
            raise self._unclear_error()
        raise ConflictError(
            f"{pushed_out.statistics_path} was registered under snapshot "
            f"{request.base_snapshot_id} of {name_of(table)} at the same moment; nothing was "
            "published"
        )

    def _require_tag(self, fresh: Table, published: Published) -> None:
        """Refuse a catalog that takes a tag and forgets it: its snapshot would expire."""
        held = own_tags(fresh).get(published.snapshot_id)
        if held == self.request.tag:
            return
        slot = published.snapshot_id
        change = SlotChange(seen={slot: self.request.path}, clear=frozenset({slot}))
        for attempt in range(ATTEMPTS):
            if slot not in slots(fresh):
                break
            try:
                fresh = change_slots(
                    fresh, change, expected_head=fresh.metadata.current_snapshot_id
                )
            except ConflictError:  # data came, which changes nothing about it
                if attempt == ATTEMPTS - 1:
                    raise
                fresh = self._load()
        raise TagNotKeptError(
            f"the catalog of {name_of(fresh)} took tag {self.request.tag} and does not keep it; "
            "nothing was published under it, 'publish: auto' goes without tags then"
        )

    def _refused(self, attempt: Attempt, error: Exception) -> Published | None:
        # A transport that repeats requests may report the refusal of its own second one.
        fresh = self._load()
        found = self._find(fresh)
        if attempt.snapshot is not None and (
            found is None or found.snapshot_id != attempt.snapshot_id
        ):
            attempt.snapshot.remove_manifest_list()
        if found is not None:
            return self._settled(fresh, found)
        self.unclear.remove(attempt)
        if isinstance(error, CommitFailedException) or attempt.is_behind(fresh):
            return None  # if the head stayed, somebody else was faster elsewhere in the table
        if self.unclear:
            raise self._unclear_error() from shown_cause(error)
        refusal = f"the catalog refused to commit to {name_of(self.table)}: {error}"
        if self.request.mode == "tag" and not isinstance(error, _DENIALS):
            raise TagNotKeptError(refusal) from shown_cause(error)
        raise CatalogUnavailableError(refusal) from shown_cause(error)

    def _look(self) -> Published | None:
        """Look for the outcome of an attempt without an answer, some time long."""
        for look in range(LOOKS):
            fresh = self._load()
            found = self._find(fresh)
            if found is not None:
                return self._settled(fresh, found)
            time.sleep(WAIT_SECONDS * 2**look)
        return None

    def _check_head(self, fresh: Table) -> None:
        if self.request.mode == "tag":
            return  # what is on a branch does not matter
        head = fresh.metadata.current_snapshot_id
        if head == self.request.expected_head:
            return
        raise ConflictError(
            f"branch 'main' of {name_of(fresh)} is at snapshot {head or 'none'}, not at "
            f"{self.request.expected_head} as planned; nothing was published, plan the run again"
        )

    def _load(self) -> Table:
        try:
            return _with_patience(lambda: reload_table(self.table))
        except TableNotFoundError as error:
            raise ConflictError(
                f"{name_of(self.table)} was dropped during the run"
            ) from shown_cause(error)
        except PuffinAnnError as error:
            if self.unclear:
                raise self._unclear_error() from shown_cause(error)
            raise

    def _unclear_error(self) -> UnclearCommitError:
        ids = ", ".join(str(attempt.snapshot_id) for attempt in self.unclear)
        return UnclearCommitError(
            f"the catalog's answer to publishing {name_of(self.table)} was lost, and snapshot "
            f"{ids} is not in the table so far, or not with the file; it may still appear. "
            f"{self.request.path} is kept; run the task again, it finds out what became of it"
        )


def _check_file(table: Table, request: Request) -> None:
    length = object_length(table.io, request.path)
    if length is None:
        raise StagingError(f"{request.path} is missing; nothing was published")
    if length != request.file_size:
        raise StagingError(
            f"{request.path} has {length} bytes, not {request.file_size}; nothing was published"
        )


def _check_still_there(table: Table, request: Request, published: Published) -> None:
    """Notice a file that orphan removal took between our first look and the commit."""
    try:
        there = object_exists(table.io, request.path)
    except StoreUnavailableError as error:
        _log.warning("cannot tell whether %s is still there: %s", request.path, error)
        return
    if not there:
        raise UnclearCommitError(
            f"{request.path} was removed while it was being published as snapshot "
            f"{published.snapshot_id}, which now names a missing file; build the index again"
        )


def _with_patience(ask: Callable[[], Table]) -> Table:
    """Ask a catalog that fails again: an answer settles what became of a commit.

    One that keeps silent is given `catalog_seconds` by each question, and so is asked once only. A
    store that fails has been asked again already, for `store_seconds`.
    """
    until = time.monotonic() + settings().catalog_seconds
    for look in range(LOOKS - 1):
        try:
            return ask()
        except CatalogUnavailableError:
            if time.monotonic() >= until:
                raise
            time.sleep(WAIT_SECONDS * 2**look)
    return ask()
