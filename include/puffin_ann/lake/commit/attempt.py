"""What is published, as data: the request, the one commit made of it, and how it is found again."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveStatisticsUpdate,
    SetPropertiesUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)

from puffin_ann.errors import ConflictError
from puffin_ann.lake.catalog.index_snapshots import tag_of
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.commit.overwritten_statistics import path_in
from puffin_ann.lake.commit.publish_mode import PublishMode
from puffin_ann.lake.commit.tagged_snapshot import TaggedSnapshot, numbers_as_seen, removal_of
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.metadata.registered import NAMED_BY

RUN_ID_SUFFIX = ".run-id"
"""A summary key `ann.<index>.run-id` names the run; a run publishes at most once."""


@dataclass(frozen=True)
class Published:
    """What was published; `already` if an earlier attempt of the run did it.

    `snapshot_id` is the tagged snapshot, in mode `statistics` the base snapshot.
    """

    snapshot_id: int
    sequence_number: int
    already: bool


@dataclass(frozen=True)
class Request:
    """What is published: a Puffin file, on top of which snapshot, and how.

    Attributes:
        expected_head: snapshot of main that the run was planned on.
        base_snapshot_id: snapshot whose rows the index covers.
        path: location of the file, which must be there.
        file_size: its bytes.
        footer_size: bytes of its footer.
        summary: for the tagged snapshot; names the run under `ann.<index>.run-id`.
        blob_metadata: standard blob types only, each with fields: PyIceberg cannot load a table
            whose metadata names other types, and Spark's optimizer fails on a blob without fields.
        mode: whether a tagged snapshot is added, or statistics of the base snapshot alone.
        tag: in mode `tag`, its name.
        run_prefix: what the locations of the run's files, and of no other's, begin with.
        carried: locations of files whose blobs this one holds, too.
        needs: in mode `tag`, locations of files that this one names; tags of ours hold them.
        supersedes: in mode `tag`, snapshots that go in the same commit, with our tags on them and
            the registrations there.
        properties: of the table, set in the same commit.
    """

    expected_head: int
    base_snapshot_id: int
    path: str
    file_size: int
    footer_size: int
    summary: Mapping[str, str]
    blob_metadata: Sequence[BlobMetadata] = ()
    mode: PublishMode = "statistics"
    tag: str = ""
    run_prefix: str = ""
    carried: Set[str] = frozenset()
    needs: Set[str] = frozenset()
    supersedes: frozenset[int] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Require what a run is recognised by."""
        if not self.run_ids:
            raise ValueError(f"summary has no key ann.<index>{RUN_ID_SUFFIX}: {self.summary}")

    @property
    def run_ids(self) -> dict[str, str]:
        """The run ids of the summary, by key."""
        return {key: run for key, run in self.summary.items() if key.endswith(RUN_ID_SUFFIX)}

    @property
    def property_updates(self) -> tuple[TableUpdate, ...]:
        """The table properties that the commit sets besides."""
        return (SetPropertiesUpdate(updates=dict(self.properties)),) if self.properties else ()

    def is_of_the_run(self, path: str) -> bool:
        """Tell whether a file was made by this run, in this attempt or an earlier one."""
        return path == self.path or bool(self.run_prefix and path.startswith(self.run_prefix))

    def statistics(self, snapshot_id: int) -> StatisticsFile:
        """Return the registration of the file under a snapshot."""
        return StatisticsFile.model_validate(
            {
                "snapshot-id": snapshot_id,
                "statistics-path": self.path,
                "file-size-in-bytes": self.file_size,
                "file-footer-size-in-bytes": self.footer_size,
                "blob-metadata": list(self.blob_metadata),
            }
        )


@dataclass(frozen=True)
class Attempt:
    """One commit, ready to be sent.

    Attributes:
        snapshot_id: snapshot that shows the outcome: the one that is added, or the base.
        snapshot: the one that is added, whose manifest list is written; None in mode `statistics`.
        seen: in mode `statistics`, location of the file registered under the base before.
        seen_in: the metadata file in which that was seen.
    """

    snapshot_id: int
    snapshot: TaggedSnapshot | None
    seen: str | None
    seen_in: str
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]

    @classmethod
    def of(cls, fresh: Table, request: Request) -> "Attempt":
        """Make the commit for the table as it is now.

        Raises:
            ConflictError: in mode `statistics` the base snapshot is gone, or has a file that is
                not carried along; in mode `tag` somebody else's tag has the name.
        """
        make = _under_tag if request.mode == "tag" else _alone
        return make(fresh, request)

    def is_behind(self, table: Table) -> bool:
        """Tell whether a tagged snapshot has to be made again, since numbers were assigned."""
        return self.snapshot is not None and self.snapshot.is_behind(table)


def _alone(fresh: Table, request: Request) -> Attempt:
    base = request.base_snapshot_id
    if fresh.snapshot_by_id(base) is None:
        raise ConflictError(
            f"snapshot {base} of {name_of(fresh)}, which the index covers, has expired; nothing "
            "was published, build the index again"
        )
    seen = path_in(fresh, base)
    if seen is not None and seen not in request.carried:
        raise ConflictError(
            f"{seen} is registered under snapshot {base} of {name_of(fresh)} and its blobs are not "
            "carried along; nothing was published"
        )
    return Attempt(
        snapshot_id=base,
        snapshot=None,
        seen=seen,
        seen_in=fresh.metadata_location,
        updates=(
            SetStatisticsUpdate(statistics=request.statistics(base)),
            *request.property_updates,
        ),
        requirements=(
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=request.expected_head),
            AssertTableUUID(uuid=fresh.metadata.table_uuid),
        ),
    )


def _under_tag(fresh: Table, request: Request) -> Attempt:
    if request.tag in fresh.refs():
        raise ConflictError(
            f"tag {request.tag} of {name_of(fresh)} is there and not of this run; nothing was "
            "published, drop the tag and run again"
        )
    needed = _tags_as_seen(fresh, request.needs)
    removal, removed = _removal(fresh, request.supersedes)
    summary = {**request.summary, NAMED_BY: request.path}
    tagged = TaggedSnapshot.write(fresh, request.tag, summary)
    snapshot_id = tagged.snapshot.snapshot_id
    return Attempt(
        snapshot_id=snapshot_id,
        snapshot=tagged,
        seen=None,
        seen_in=fresh.metadata_location,
        updates=(
            *removal,
            *tagged.updates,
            SetStatisticsUpdate(statistics=request.statistics(snapshot_id)),
            *request.property_updates,
        ),
        requirements=(
            AssertRefSnapshotId(ref=request.tag, snapshot_id=None),
            *numbers_as_seen(fresh),
            *needed,
            *removed,
            AssertTableUUID(uuid=fresh.metadata.table_uuid),
        ),
    )


def _tags_as_seen(fresh: Table, needs: Set[str]) -> tuple[TableRequirement, ...]:
    """Return what asserts that our tags still hold the files that a version needs."""
    tags = own_tags(fresh)
    holders = {
        entry.statistics_path: entry.snapshot_id
        for entry in fresh.metadata.statistics
        if entry.snapshot_id in tags
    }
    missing = sorted(needs - holders.keys())
    if missing:
        raise ConflictError(
            f"no tag of {name_of(fresh)} holds {missing[0]} any more, which the index needs; "
            "nothing was published"
        )
    held = sorted(holders[path] for path in needs)
    return tuple(AssertRefSnapshotId(ref=tags[id_], snapshot_id=id_) for id_ in held)


def _removal(
    fresh: Table, superseded: frozenset[int]
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return what removes tagged snapshots that are there, and what asserts that they are."""
    tags = own_tags(fresh)
    gone = superseded & tags.keys()
    registered = {entry.snapshot_id for entry in fresh.metadata.statistics}
    entries = [RemoveStatisticsUpdate(snapshot_id=slot) for slot in sorted(gone & registered)]
    asserted = [AssertRefSnapshotId(ref=tags[slot], snapshot_id=slot) for slot in sorted(gone)]
    return (*entries, *removal_of(fresh, gone)), tuple(asserted)


def find_published(table: Table, request: Request, ours: Collection[int]) -> Published | None:
    """Find what an earlier attempt of this call, or an earlier call of the run, published.

    A registration of a file of the run counts, too: in mode `statistics` there is no snapshot of
    its own.

    Args:
        table: as the catalog has it now.
        request: what is to be published.
        ours: `snapshot_id` of this call's attempts.
    """
    with_file = {entry.snapshot_id for entry in table.metadata.statistics}
    held = with_file | own_tags(table).keys() | set(ours)
    for snapshot in table.snapshots():
        if tag_of(snapshot) is not None and snapshot.snapshot_id not in held:
            continue  # the tag was not kept: nothing is published by what is left of it
        properties = snapshot.summary.additional_properties if snapshot.summary else {}
        same_run = properties.get(NAMED_BY) and any(
            properties.get(key) == run for key, run in request.run_ids.items()
        )
        if same_run or (request.mode != "statistics" and snapshot.snapshot_id in ours):
            return _under(table, snapshot.snapshot_id, already=snapshot.snapshot_id not in ours)
    for entry in table.metadata.statistics:
        if request.is_of_the_run(entry.statistics_path):
            mine = entry.snapshot_id in ours and entry.statistics_path == request.path
            return _under(table, entry.snapshot_id, already=not mine)
    return None


def _under(table: Table, snapshot_id: int, *, already: bool) -> Published:
    snapshot = table.snapshot_by_id(snapshot_id)
    number = snapshot.sequence_number if snapshot else None
    return Published(snapshot_id, number or 0, already)
