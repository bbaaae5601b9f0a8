"""What the stages of a run hand each other: small JSON documents in the run's staging folder.

A stage is done when its document exists. Documents are created if absent, the first one wins, so a
task that was killed, retried or run twice by mistake finds what is done and goes on from there.
"""

from typing import Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import StagingGoneError
from puffin_ann.lake.read.files.live_files import DeleteFile, LiveFile
from puffin_ann.lake.store.staging import StagedObject, Staging


class Document(BaseModel):
    """Base of the documents; they are data, never changed after they are made."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedFile(Document):
    """A data file that the run covers.

    Attributes:
        file_id: stable id of the file in the index.
        path: absolute path in the table's store.
        rows: rows written to it, deleted ones included.
        deletes: delete files that apply to it in the base snapshot.
        keeps_row_ids: rows of it may be known by the row ids that it holds.
    """

    file_id: int
    path: str
    size: int
    sequence_number: int
    rows: int
    deletes: tuple[DeleteFile, ...] = ()
    keeps_row_ids: bool = False

    @classmethod
    def of(cls, file_id: int, file: LiveFile) -> "PlannedFile":
        """Return a live file as one that a run covers under an id."""
        return cls(
            file_id=file_id,
            path=file.path,
            size=file.size,
            sequence_number=file.sequence_number,
            rows=file.rows,
            deletes=file.deletes,
        )

    def live(self) -> LiveFile:
        """Return it in the lake's own terms."""
        return LiveFile(self.path, self.size, self.sequence_number, self.rows, self.deletes)


class AssignTask(Document):
    """Work of one Spark task of the assign stage: parts of files, in locator order.

    Attributes:
        parts: (index into the plan's files, part number, number of parts of that file); a part is
            a contiguous run of the file's row groups.
    """

    parts: tuple[tuple[int, int, int], ...]


class RunPlan(Document):
    """What every run has decided before it reads a vector.

    Attributes:
        table: `catalog.namespace.table`.
        base_snapshot_id: snapshot whose live rows are indexed.
        base_sequence_number: sequence number of that snapshot.
        field_id: field id of the vector column.
        dimension: numbers in a vector.
        files: data files that are read.
        manifests: paths of the base snapshot's manifests.
        column_type: of the column's elements.
        included: field ids of the columns of which shards keep the values.
        planned_ms: when it was planned, milliseconds since 1970. What is published takes times from
            here, so that two attempts at it make the same bytes.
        table_uuid: of the table; another one may have its name and place since.
    """

    run_id: str
    table: str
    declaration: IndexDeclaration
    base_snapshot_id: int
    base_sequence_number: int
    field_id: int
    dimension: int
    files: tuple[PlannedFile, ...]
    manifests: tuple[str, ...]
    column_type: str = ""
    included: tuple[int, ...] = ()
    planned_ms: int = 0
    table_uuid: str = ""

    def rows_of(self, task: AssignTask) -> int:
        """Return about how many rows a task reads; those of its data files, deleted ones too."""
        return sum(self.files[file].rows // parts for file, _, parts in task.parts)


class BuildPlan(RunPlan):
    """A run that reads the whole table: a build, or an evaluation, which builds no shards.

    Attributes:
        reason: why the index is built, in one sentence.
        expected_rows: live rows by the manifests, null vectors not yet known.
        groups: by group id, the shards that one spark-submit builds.
        shards: how many are built, where the table has not the rows for those declared; else none.
    """

    kind: Literal["build"] = "build"
    reason: str = ""
    expected_rows: int
    assign_tasks: tuple[AssignTask, ...]
    groups: dict[str, tuple[int, ...]]
    shards: int | None = None

    @property
    def shard_count(self) -> int:
        """Shards that rows are dealt to."""
        return self.shards or self.declaration.shards

    @property
    def cell_count(self) -> int:
        """Cells of the whole index."""
        return self.declaration.partitions // self.declaration.shards * self.shard_count


class StagedFile(Document):
    """A staged object: where it is, and how to know it is whole."""

    uri: str
    length: int
    sha256: str

    @classmethod
    def of(cls, staged: StagedObject) -> "StagedFile":
        """Take over what staging said of an object it stored."""
        return cls(uri=staged.uri, length=staged.length, sha256=staged.sha256)

    def object(self) -> StagedObject:
        """Return it in staging's own terms."""
        return StagedObject(self.uri, self.length, self.sha256)


class Trial(Document):
    """What one engine did on a sample of the table's rows.

    Attributes:
        rows: rows of the sample.
        search_width: about the smallest that reaches the declared recall, or the widest tried.
        recall: at that width.
        queries_per_second: at that width, on one thread.
    """

    algorithm: str
    rows: int
    search_width: int
    recall: float
    queries_per_second: float
    build_seconds: float


class Choice(Document):
    """The algorithm of a run's shards; made once, since timings differ from attempt to attempt.

    Attributes:
        trials: what `algorithm: auto` measured; empty where nothing had to be measured.
    """

    algorithm: str
    trials: tuple[Trial, ...] = ()


class Trained(Document):
    """Outcome of the train stage; `result` is a file of arrays, see `train.TrainResult`."""

    result: StagedFile
    choice: Choice
    sampled_rows: int
    seconds: float


class AssignOutcome(Document):
    """What one task reports to the driver: pointers and counts."""

    task: int
    segment: StagedFile
    summary: StagedFile
    rows: int
    deleted: int
    skipped: dict[str, int]
    vector_bytes_read: int


class Assigned(Document):
    """Outcome of the assign stage.

    Attributes:
        segments: by assign task, its rows grouped by shard.
        summary: a file of arrays, see `assign.AssignSummary`.
        rows: rows assigned.
        skipped: by reason, rows that have no usable vector.
        deleted: rows left out because row-level deletes name them.
        vector_bytes_read: bytes of the vector column decoded from the table.
    """

    segments: tuple[StagedFile, ...]
    summary: StagedFile
    rows: int
    skipped: dict[str, int]
    deleted: int
    vector_bytes_read: int
    seconds: float


class BuiltShard(Document):
    """A shard's staged Puffin file, with its engine's blobs and its rows blob."""

    shard_id: int
    file: StagedFile
    rows: int
    bytes: int
    seconds: float


class BuiltGroup(Document):
    """Outcome of one spark-submit of the build stage."""

    shards: tuple[BuiltShard, ...]
    seconds: float


class Gated(Document):
    """Outcome of the recall gate.

    Attributes:
        staged_index: staged Puffin file with the final routing and coverage blobs; its shard
            entries name the staged shard files.
        recall: measured recall at `k`, with its 95 % interval.
        scan_partitions: nearest cells that a search by ranges compares.
        scan_recall: what those have of the true neighbours.
    """

    staged_index: StagedFile = Field(validation_alias=AliasChoices("staged_index", "candidate"))
    k: int
    queries: int
    recall: float
    low: float
    high: float
    target: float
    search_width: int
    probe_partitions: int
    scan_partitions: int = 0
    scan_recall: float = 1.0
    seconds: float


class PublishedVersion(Document):
    """Outcome of publishing.

    Attributes:
        rows_added: rows that the version before did not have, or all.
        rows_gone: rows of the version before that are not live any more.
        undone: what the run left undone, why, and what to do; empty if nothing.
    """

    snapshot_id: int
    path: str
    bytes_written: int
    bytes_copied: int
    rows_added: int
    rows_gone: int
    seconds: float
    undone: str = ""


class PlanPointer(Document):
    """What the plan task gives to the tasks after it: small, whatever the size of the table.

    Attributes:
        decision: what was decided, for people; empty where there was nothing to decide.
        asks: why work on whole shards waits for a person's approval; empty where none does.
    """

    action: Literal["build", "refresh", "none"]
    reason: str
    table: str
    plan: str
    run_id: str
    groups: list[str]
    decision: str = ""
    asks: str = ""


D = TypeVar("D", bound=Document)

PLAN, TRAIN, ASSIGN, GATE, PUBLISH = (
    f"{stage}.json" for stage in ("plan", "train", "assign", "gate", "publish")
)

GIVEN_UP = "given-up.json"
"""Says that what a run staged is gone, or not what it staged: no plan of that run id is used again,
so that a run that is started again plans again."""

EVALUATED = "_evaluation-"
"""What the names of recorded evaluations begin with, which are beside an index's runs."""

CHOICE = "_choice.json"
"""Chosen once: shards that are built rest on it."""


def group_name(group: str) -> str:
    """Return the name of a group's document."""
    return f"group-{group}.json"


def store(staging: Staging, name: str, document: D) -> D:
    """Create a document; if another attempt was first, return its document instead."""
    if staging.put_new(name, document.model_dump_json().encode()):
        return document
    return load(staging, name, type(document))


def load(staging: Staging, name: str, kind: type[D]) -> D:
    """Read a document.

    Raises:
        StagingGoneError: it is not there, or is not what it should be.
    """
    try:
        return kind.model_validate_json(staging.read(name))
    except ValueError as error:
        raise StagingGoneError(
            f"staged document {staging.uri(name)} is not valid: {error}"
        ) from None


def done(staging: Staging, name: str, kind: type[D]) -> D | None:
    """Return a stage's document if the stage is done; a torn one counts as missing, and is removed.

    A torn plan is left to the planning task: all that was made by it has to go, too.
    """
    if not staging.exists(name):
        return None
    try:
        return load(staging, name, kind)
    except StagingGoneError:
        if name != PLAN and staging.discard_torn(name):
            return None
        raise
