"""Publish a Puffin file in one catalog commit: an index snapshot and its registration.

The index snapshot is a `replace` without data change. Its commit asserts that the branch head is
the snapshot the run was planned on; that assertion alone is what keeps two writers apart, so
nothing here ever moves a snapshot to another parent.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import (
    AssertTableUUID,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT

from puffin_ann.errors import (
    CatalogUnavailableError,
    ConflictError,
    StagingError,
    UnclearCommitError,
    UnsupportedTableError,
)
from puffin_ann.lake.catalog import name_of

RUN_ID_SUFFIX = ".run-id"
"""A summary key `ann.<index>.run-id` names the run; a run publishes at most once."""

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
)
"""Answers that say for certain that nothing was committed. Any other error leaves it open."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """A published index snapshot; `already` if an earlier attempt of the run published it."""

    snapshot_id: int
    sequence_number: int
    already: bool


def publish(
    table: Table,
    *,
    expected_head: int,
    base_snapshot_id: int,
    statistics_path: str,
    file_size: int,
    footer_size: int,
    summary: Mapping[str, str],
    blob_metadata: Sequence[BlobMetadata] = (),
    branch: str = MAIN_BRANCH,
) -> Published:
    """Commit an index snapshot on `branch` that registers the Puffin file at `statistics_path`.

    One catalog commit adds the snapshot (the parent's manifests and totals carried over, `summary`
    and `statistics-file` in its summary), registers the file under it and, if that has no
    statistics of its own, under the base snapshot too, so that neither rollback nor expiry of the
    index snapshot alone loses the file.

    `summary` must have a run id under `ann.<index>.run-id`. `blob_metadata` may list standard blob
    types only: PyIceberg cannot load a table whose metadata names others. `table` is not changed;
    load it again to see the result.

    Raises:
        ConflictError: the branch head is not `expected_head`; nothing was published.
        UnclearCommitError: the catalog's answers were lost, or the file vanished while it was being
            published. Files must be kept; after every other error nothing was published, and the
            file can be deleted.
        CatalogUnavailableError: the catalog does not answer, or refuses such commits altogether.
        UnsupportedTableError: the table's format version is one PyIceberg cannot write.
        StagingError: the file is missing or has another size.
    """
    request = _Request(
        expected_head=expected_head,
        base_snapshot_id=base_snapshot_id,
        path=statistics_path,
        file_size=file_size,
        footer_size=footer_size,
        summary=dict(summary),
        blob_metadata=tuple(blob_metadata),
        branch=branch,
    )
    _check_file(table, request)
    published = _Publication(table, request).run()
    if not published.already:
        _check_still_there(table, request, published)
    return published


@dataclass(frozen=True)
class _Request:
    expected_head: int
    base_snapshot_id: int
    path: str
    file_size: int
    footer_size: int
    summary: dict[str, str]
    blob_metadata: tuple[BlobMetadata, ...]
    branch: str

    def __post_init__(self) -> None:
        if not self.run_ids:
            raise ValueError(f"summary has no key ann.<index>{RUN_ID_SUFFIX}: {self.summary}")

    @property
    def run_ids(self) -> dict[str, str]:
        return {key: run for key, run in self.summary.items() if key.endswith(RUN_ID_SUFFIX)}

    def statistics(self, snapshot_id: int) -> StatisticsFile:
        return StatisticsFile.model_validate(
            {
                "snapshot-id": snapshot_id,
                "statistics-path": self.path,
                "file-size-in-bytes": self.file_size,
                "file-footer-size-in-bytes": self.footer_size,
                "blob-metadata": list(self.blob_metadata),
            }
        )


class IndexSnapshot(_SnapshotProducer["IndexSnapshot"]):
    """A `replace` snapshot that carries every manifest of its parent, data and delete, as it is."""

    def _existing_manifests(self) -> list[ManifestFile]:
        return list(self._parent().manifests(io=self._io))

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        # PyIceberg's own way to carry totals, update_snapshot_summaries(), refuses `replace`.
        summary = self._parent().summary
        totals = {
            key: value
            for key, value in (summary.additional_properties if summary else {}).items()
            if key.startswith("total-")
        }
        return Summary(operation=Operation.REPLACE, **{**totals, **snapshot_properties})

    def _parent(self) -> Snapshot:
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id or -1)
        if parent is None:
            raise ConflictError("the branch has no snapshot to publish on")
        return parent

    def remove_manifest_list(self) -> None:
        """Delete the manifest list, the only file written here, after a definite refusal."""
        self._clean_all_uncommitted()


@dataclass
class _Publication:
    """One call of `publish`: attempts to commit until the outcome is known, or given up on."""

    table: Table
    request: _Request
    unclear: list[int] = field(default_factory=list)
    """Snapshot ids of attempts whose outcome is not known; each asserted the same head, so at
    most one of them can ever land, however late."""

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
        _check_format(fresh)
        found = _published(fresh, self.request, self.unclear)
        if found is not None:
            return found
        self._check_head(fresh)
        snapshot, updates, requirements = _stage(fresh, self.request)
        self.unclear.append(snapshot.snapshot_id)  # as long as we do not know better
        try:
            # Not commit_transaction(): that retries by itself, and puts the snapshot on the new
            # head. This is the one attempt below it, with our requirements.
            fresh._do_commit(updates=updates, requirements=requirements)
        except _REFUSALS as error:
            return self._refused(snapshot, error)
        except Exception as error:
            _log.warning("no answer to the commit of snapshot %d: %s", snapshot.snapshot_id, error)
            return self._look()
        committed = fresh.snapshot_by_id(snapshot.snapshot_id)
        sequence_number = committed.sequence_number if committed else None
        return Published(snapshot.snapshot_id, sequence_number or 0, already=False)

    def _refused(self, snapshot: IndexSnapshot, error: Exception) -> Published | None:
        # A transport that repeats requests may report the refusal of its own second one.
        found = _published(self._load(), self.request, self.unclear)
        if found is not None:
            return found
        self.unclear.remove(snapshot.snapshot_id)
        snapshot.remove_manifest_list()
        if isinstance(error, CommitFailedException):
            return None  # if the head stayed, somebody else was faster elsewhere in the table
        if self.unclear:
            raise self._unclear_error() from error
        raise CatalogUnavailableError(
            f"the catalog refused to commit to {name_of(self.table)}: {error}"
        ) from error

    def _look(self) -> Published | None:
        """Look for the outcome of an attempt without an answer, some time long."""
        for look in range(LOOKS):
            found = _published(self._load(), self.request, self.unclear)
            if found is not None:
                return found
            time.sleep(WAIT_SECONDS * 2**look)
        return None

    def _check_head(self, fresh: Table) -> None:
        head = fresh.metadata.snapshot_by_name(self.request.branch)
        if head is not None and head.snapshot_id == self.request.expected_head:
            return
        if self.unclear:
            raise self._unclear_error()
        raise ConflictError(
            f"branch {self.request.branch!r} of {name_of(fresh)} is at snapshot "
            f"{head.snapshot_id if head else 'none'}, not at {self.request.expected_head} as "
            "planned; nothing was published, plan the run again"
        )

    def _load(self) -> Table:
        def load() -> Table:
            return self.table.catalog.load_table(self.table.name())

        try:
            return _with_patience(load)
        except NoSuchTableError as error:
            raise ConflictError(f"{name_of(self.table)} was dropped during the run") from error
        except Exception as error:
            if self.unclear:
                raise self._unclear_error() from error
            raise CatalogUnavailableError(
                f"catalog {self.table.catalog.name!r} does not answer: {error}"
            ) from error

    def _unclear_error(self) -> UnclearCommitError:
        ids = ", ".join(map(str, self.unclear))
        return UnclearCommitError(
            f"the catalog's answer to publishing {name_of(self.table)} was lost, and snapshot "
            f"{ids} is not in the table so far; it may still appear. {self.request.path} is kept; "
            "run the task again, it finds out what became of it"
        )


def _stage(
    fresh: Table, request: _Request
) -> tuple[IndexSnapshot, tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Write the manifest list and return the updates and requirements of the one commit."""
    transaction = fresh.transaction()
    snapshot = IndexSnapshot(
        Operation.REPLACE,
        transaction,
        fresh.io,
        snapshot_properties={**request.summary, "statistics-file": request.path},
        branch=request.branch,
    )
    updates, requirements = snapshot._commit()
    registrations = [request.statistics(snapshot.snapshot_id)]
    if _slot_is_free(fresh, request.base_snapshot_id):
        registrations.append(request.statistics(request.base_snapshot_id))
    return (
        snapshot,
        (*updates, *(SetStatisticsUpdate(statistics=one) for one in registrations)),
        (*requirements, AssertTableUUID(uuid=fresh.metadata.table_uuid)),
    )


def _slot_is_free(table: Table, snapshot_id: int) -> bool:
    """Tell whether a snapshot exists and has no statistics; one has room for a single file."""
    return table.snapshot_by_id(snapshot_id) is not None and all(
        entry.snapshot_id != snapshot_id for entry in table.metadata.statistics
    )


def _published(table: Table, request: _Request, ours: Iterable[int]) -> Published | None:
    """Find what an earlier attempt of this call, or an earlier call of the run, published.

    The file's own registration counts as well: the index snapshot may have expired since.
    """
    own = set(ours)
    for snapshot in table.snapshots():
        properties = snapshot.summary.additional_properties if snapshot.summary else {}
        same_run = properties.get("statistics-file") and any(
            properties.get(key) == run for key, run in request.run_ids.items()
        )
        if same_run or snapshot.snapshot_id in own:
            already = snapshot.snapshot_id not in own
            return Published(snapshot.snapshot_id, snapshot.sequence_number or 0, already)
    for entry in table.metadata.statistics:
        if entry.statistics_path == request.path:
            under = table.snapshot_by_id(entry.snapshot_id)
            number = under.sequence_number if under else None
            return Published(entry.snapshot_id, number or 0, already=True)
    return None


def _check_format(table: Table) -> None:
    if table.metadata.format_version > 2:
        raise UnsupportedTableError(
            f"{name_of(table)} is of format version {table.metadata.format_version}; PyIceberg "
            "cannot commit snapshots to tables above version 2, so no index can be published in "
            "one; use a version 2 table"
        )


def _check_file(table: Table, request: _Request) -> None:
    file = table.io.new_input(request.path)
    if not file.exists():
        raise StagingError(f"{request.path} is missing; nothing was published")
    if len(file) != request.file_size:
        raise StagingError(
            f"{request.path} has {len(file)} bytes, not {request.file_size}; nothing was published"
        )


def _check_still_there(table: Table, request: _Request, published: Published) -> None:
    """Notice a file that orphan removal took between our first look and the commit."""
    try:
        there = table.io.new_input(request.path).exists()
    except OSError as error:
        _log.warning("cannot tell whether %s is still there: %s", request.path, error)
        return
    if not there:
        raise UnclearCommitError(
            f"{request.path} was removed while it was being published as snapshot "
            f"{published.snapshot_id}, which now names a missing file; build the index again"
        )


def _with_patience(ask: Callable[[], Table]) -> Table:
    for look in range(LOOKS - 1):
        try:
            return ask()
        except NoSuchTableError:
            raise
        except Exception:
            time.sleep(WAIT_SECONDS * 2**look)
    return ask()
