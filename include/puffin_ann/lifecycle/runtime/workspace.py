"""What every stage of a run opens first: the table, the staging folder and the plan."""

import io
import json
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, count
from typing import Any, TypeVar

import numpy as np
from pyiceberg.table import Table

from puffin_ann.array_files import load_array
from puffin_ann.blobs.version import partitions
from puffin_ann.errors import (
    EnvironmentProblemError,
    ObjectMissingError,
    StagingError,
    StagingGoneError,
)
from puffin_ann.foreign_json import object_of, parse
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.read.data.vector_column import VectorColumn, table_vector_column
from puffin_ann.lake.store.listing import list_objects
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.documents.refresh import RefreshPlan
from puffin_ann.lifecycle.documents.run import (
    GIVEN_UP,
    PLAN,
    BuildPlan,
    RunPlan,
    StagedFile,
    load,
)
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runtime.heartbeat import heartbeat
from puffin_ann.search.version.index_version import IndexVersion, load_version

OPEN_SECONDS = 60.0
"""How long the stages of an `OpenRun` use the table as it was loaded: far less than vended
credentials last."""

log = logging.getLogger("puffin_ann")

T = TypeVar("T")
Plan = TypeVar("Plan", bound=RunPlan)


def attempt_unique(name: str) -> str:
    """Return a name that no other attempt at the same work uses."""
    return f"{name}.{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class Workspace:
    """A run, seen from one process; loading the table again keeps vended credentials fresh.

    Attributes:
        table: that is indexed.
        run: which run.
        known_plan: its plan, where it need not be read.
        known_base: the version that is refreshed, in the same way.
        opened_at: when the table was loaded, by `time.monotonic`.
    """

    table: Table
    run: RunRef
    known_plan: RunPlan | None = None
    known_base: IndexVersion | None = None
    opened_at: float = field(default_factory=time.monotonic)

    @classmethod
    def open(cls, run: RunRef) -> "Workspace":
        """Load the table of a run, unless it is an `OpenRun`."""
        return run.workspace() if isinstance(run, OpenRun) else cls(load_table(run.table), run)

    def knowing(self, plan: RefreshPlan, base: IndexVersion) -> "Workspace":
        """Return the run with the plan that was just staged, and the version it is about."""
        if plan.base_path != base.path:
            return self  # another attempt was first
        base = replace(self._with_cells(base, plan), snapshot_id=None)
        return replace(self, known_plan=plan, known_base=base)

    def _with_cells(self, base: IndexVersion, plan: RefreshPlan) -> IndexVersion:
        """Return the version that is refreshed, with the cells that were made again for it."""
        if plan.cells is None:
            return base
        cells = partitions.decode(self.fetch_bytes(plan.cells))
        return replace(base, routing=replace(base.routing, cells=cells))

    @cached_property
    def staging(self) -> Staging:
        """The run's folder."""
        return Staging(self.table.io, self.run.folder)

    @cached_property
    def base_version(self) -> IndexVersion:
        """The version that is refreshed.

        Raises:
            StagingError: its file holds another one now.
        """
        if self.known_base is not None:
            return self.known_base
        plan = self.refresh_plan
        version = load_version(self.table.io, plan.base_path, plan.declaration.name)
        if version is None:
            raise StagingError(f"{plan.base_path} does not hold index {plan.declaration.name!r}")
        return self._with_cells(version, plan)

    @cached_property
    def build_plan(self) -> BuildPlan:
        """The plan of a build."""
        return self._load(BuildPlan)

    @cached_property
    def refresh_plan(self) -> RefreshPlan:
        """The plan of a refresh."""
        return self._load(RefreshPlan)

    @cached_property
    def plan(self) -> RunPlan:
        """The plan, whatever the run does."""
        if self.known_plan is not None:
            return self.known_plan
        if not self.staging.exists(PLAN):
            return self.build_plan  # which says so
        try:
            kind = object_of(parse(self.staging.read(PLAN))).get("kind")
        except ValueError:
            kind = None
        return self.refresh_plan if kind == "refresh" else self.build_plan

    def _load(self, kind: type[Plan]) -> Plan:
        """Return the plan.

        Raises:
            StagingGoneError: it is gone; says who may have removed it, and what to do.
        """
        if isinstance(self.known_plan, kind):
            return self.known_plan
        try:
            return load(self.staging, PLAN, kind)
        except StagingError as error:
            if self.staging.exists(PLAN):
                raise
            raise self.plan_gone() from error

    def plan_gone(self) -> StagingGoneError:
        """Return an error that says who may have removed the plan, and what to do."""
        index = self.run.index
        return StagingGoneError(
            f"the plan of run {self.run.run_id} of index {index!r}, {self.run.plan}, is gone: the "
            "clean-up ('puffin-ann clean' or 'puffin-ann doctor --fix') presumes that a "
            "run failed if it wrote nothing for its grace period, and removes all it staged; or "
            "another engine's removal of orphan files did. Start the build again: "
            f"'puffin-ann build {index} --force' or its build DAG; and let retention.grace, or "
            "--grace, be longer than the longest wait between two tasks of a build"
        )

    @property
    def column(self) -> VectorColumn:
        """The vector column, found by name and checked against the planned field id.

        Raises:
            StagingError: the column was replaced since the run was planned.
        """
        column = table_vector_column(self.table, self.plan.declaration.column)
        if column.field_id != self.plan.field_id:
            raise StagingError(
                f"column {column.name!r} of {self.run.table} was replaced by another one since "
                f"run {self.run.run_id} was planned; run the DAG again"
            )
        return column

    def stage_bytes(self, name: str, data: bytes) -> StagedFile:
        """Store bytes under a name that no other attempt uses and that begins with `name`."""
        with self.staging.create(attempt_unique(name)) as out:
            out.write(data)
        return StagedFile.of(out.staged)

    def fetch_bytes(self, file: StagedFile) -> bytes:
        """Read a staged object whole, verified by length and digest."""
        return self.staging.read_checked(file.object())


@dataclass(frozen=True)
class OpenRun(RunRef):
    """A run whose stages follow each other in this process, opened once for all of them.

    To load the table, and to read the plan and the version that is refreshed, again for each stage
    and task takes as long as all else that is done about a few deleted rows: 141 ms in place of 66
    (GloVe, 18,000 rows, 1 % deleted; medians of nine refreshes each, in turns; 204 and 144 ms
    while others used the machine).

    Sent to another process, such as a worker of Spark, it is a `RunRef` and opened there.
    """

    opened: list[Workspace] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def of(cls, run: RunRef, workspace: Workspace | None = None) -> "OpenRun":
        """Return a run of which the workspace may be open already."""
        made = cls(run.table, run.index, run.run_id, run.staging_folder)
        if workspace is not None:
            made.opened.append(replace(workspace, run=made))
        return made

    def workspace(self) -> Workspace:
        """Return the run's workspace; the table is loaded again where that was a while ago."""
        if not self.opened or time.monotonic() - self.opened[0].opened_at > OPEN_SECONDS:
            self.opened[:] = [Workspace(load_table(self.table), self)]
        return self.opened[0]

    def __reduce__(self) -> tuple[type[RunRef], tuple[str, str, str, str]]:
        """Pickle it as the `RunRef` that names the run."""
        return RunRef, (self.table, self.index, self.run_id, self.staging_folder)


def workspaces_for(table: Table, index: str, run_id: str) -> Iterator[tuple[Workspace, bool]]:
    """Yield the workspaces of the ids that a run may go by, the given one first.

    Left out are ids of runs that were given up, those of a table that was there before under the
    same name, and those of which documents are left without the plan that they were made by. A plan
    that is torn, since the machine went down, is removed with all that was made by it.

    Yields:
        A workspace, and whether the run's plan is staged.
    """
    for name in chain([run_id], (f"{run_id}-{number}" for number in count(2))):
        workspace = Workspace(table, RunRef.on(table, index, name))
        files = list_objects(table.io, workspace.run.folder)
        stored = {file.uri.rpartition("/")[2] for file in files}
        documents = {file for file in stored if file.endswith(".json")}
        is_given_up = GIVEN_UP in documents
        if PLAN in documents and not is_given_up and workspace.staging.discard_torn(PLAN):
            workspace.staging.delete_tree()
            documents = set()
        is_planned = PLAN in documents
        if is_given_up or (documents and not is_planned):
            continue
        if not (is_planned and _is_of_another_table(workspace)):
            yield workspace, is_planned


def _is_of_another_table(workspace: Workspace) -> bool:
    try:
        planned = object_of(parse(workspace.staging.read(PLAN))).get("table_uuid")
    except ValueError:
        return False  # whoever opens the plan says what is wrong with it
    return bool(planned) and planned != str(workspace.table.metadata.table_uuid)


@contextmanager
def at_work(workspace: Workspace) -> Iterator[None]:
    """Show that a run works while the body does; give the run up where what it staged is gone.

    Cleaners of other engines may remove what no metadata names. It is not made again: whoever
    starts the run again, under the same id or another, has it planned again.

    Raises:
        StagingGoneError: something staged is gone, or is not what was staged.
    """
    with heartbeat(workspace.staging):
        try:
            yield
        except (StagingGoneError, ObjectMissingError) as error:
            if not workspace.staging.exists(PLAN):
                raise workspace.plan_gone() from error
            _give_up(workspace.staging, str(error))
            run = workspace.run
            raise StagingGoneError(
                f"{error}. Run {run.run_id} of index {run.index!r} cannot go on: what it works "
                "with was altered or removed, such as by another engine's removal of orphan files. "
                "Start it again, by its DAG or its command: it is then planned again"
            ) from error


def _give_up(staging: Staging, why: str) -> None:
    try:
        staging.put_new(GIVEN_UP, json.dumps({"why": why}).encode())
    except EnvironmentProblemError as error:  # what is gone is what has to be told
        log.warning("%s is not marked as given up: %s", staging.root, error)


def remove_staging(workspace: Workspace) -> None:
    """Remove what a run staged whose outcome is settled; what stays is for the clean-up."""
    try:
        workspace.staging.delete_tree()
    except EnvironmentProblemError as error:
        log.warning("%s is left behind: %s", workspace.staging.root, error)


def arrays_to_bytes(value: Any) -> bytes:
    """Serialise a dataclass of numpy arrays: each as .npy, one after the other."""
    buffer = io.BytesIO()
    for each in fields(value):
        np.save(buffer, np.asarray(getattr(value, each.name)), allow_pickle=False)
    return buffer.getvalue()


def arrays_from_bytes(kind: type[T], data: bytes) -> T:
    """Read what `arrays_to_bytes` wrote; pickled content is refused by numpy."""
    stream = io.BytesIO(data)
    try:
        loaded = [load_array(stream) for _ in fields(kind)]  # type: ignore[arg-type]
    except (ValueError, TypeError, OSError) as error:
        raise StagingError(f"staged arrays are not those of {kind.__name__}: {error}") from None
    if stream.tell() != len(data):
        raise StagingError(f"staged arrays are not those of {kind.__name__}: there are more")
    return kind(*loaded)
