"""What every stage of a run opens first: the table, the staging folder and the plan."""

import io
import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, count
from typing import Any, TypeVar

import numpy as np
from pyiceberg.table import Table

from puffin_ann.errors import (
    EnvironmentProblemError,
    ObjectMissingError,
    StagingError,
    StagingGoneError,
)
from puffin_ann.foreign_json import object_of, parsed
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.read.vector_column import VectorColumn, table_vector_column
from puffin_ann.lake.store.listing import listed
from puffin_ann.lake.store.locations import is_staging_folder, staging_folder
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
from puffin_ann.lifecycle.runtime.heartbeat import heartbeat
from puffin_ann.search.versions import IndexVersion, load_version

KEPT_SECONDS = 60.0
"""So long a run within one process goes on with the table as it was loaded: far less than vended
credentials last."""

log = logging.getLogger("puffin_ann")

_kept: ContextVar["dict[tuple[str, str], tuple[float, Workspace]] | None"] = ContextVar(
    "_kept", default=None
)

T = TypeVar("T")
Plan = TypeVar("Plan", bound=RunPlan)


def attempt_unique(name: str) -> str:
    """Return a name that no other attempt at the same work uses."""
    return f"{name}.{uuid.uuid4().hex[:12]}"


def staging_root(table: Table, index: str, run_id: str) -> str:
    """Return the staging folder of a run."""
    return f"{staging_folder(table)}/{index}/{run_id}"


@dataclass(frozen=True)
class Workspace:
    """A run, seen from one process; loading the table again keeps vended credentials fresh."""

    table: Table
    staging: Staging

    @classmethod
    def open(cls, table: str, plan: str) -> "Workspace":
        """Open a run by its table's name and the location of its plan."""
        kept = _kept.get()
        since, workspace = (kept or {}).get((table, plan), (0.0, None))
        if workspace is not None and time.monotonic() - since < KEPT_SECONDS:
            return workspace
        workspace = cls._opened(table, plan)
        workspace.keep(table, plan)
        return workspace

    @classmethod
    def _opened(cls, table: str, plan: str) -> "Workspace":
        loaded = load_table(table)
        root, _, name = plan.rpartition("/")
        if name != PLAN or not any(map(is_staging_folder, root.split("/")[:-2])):
            raise StagingError(f"{plan!r} is not the location of a staged plan ({PLAN})")
        return cls(loaded, Staging(loaded.io, root))

    def keep(self, table: str, plan: str) -> None:
        """Be what `open` returns for these, within `opened_once`."""
        kept = _kept.get()
        if kept is not None:
            kept[table, plan] = (time.monotonic(), self)

    def start_from(self, plan: RefreshPlan, source: IndexVersion) -> None:
        """Take over the plan of a refresh that was just staged, and the version it is about."""
        if plan.source == source.path:
            known = {"run": plan, "refresh": plan, "source": replace(source, snapshot_id=None)}
            self.__dict__.update(known)  # where cached properties keep what they were

    @cached_property
    def source(self) -> IndexVersion:
        """The version that is refreshed.

        Raises:
            StagingError: its file holds another one now.
        """
        plan = self.refresh
        version = load_version(self.table.io, plan.source, plan.declaration.name)
        if version is None:
            raise StagingError(f"{plan.source} does not hold index {plan.declaration.name!r}")
        return version

    @cached_property
    def plan(self) -> BuildPlan:
        """The plan of a build."""
        return self._load(BuildPlan)

    @cached_property
    def refresh(self) -> RefreshPlan:
        """The plan of a refresh."""
        return self._load(RefreshPlan)

    @cached_property
    def run(self) -> RunPlan:
        """The plan, whatever the run does."""
        if not self.staging.exists(PLAN):
            return self.plan  # which says so
        try:
            kind = object_of(parsed(self.staging.read(PLAN))).get("kind")
        except ValueError:
            kind = None
        return self.refresh if kind == "refresh" else self.plan

    def _load(self, kind: type[Plan]) -> Plan:
        """Return the plan.

        Raises:
            StagingGoneError: it is gone; says who may have removed it, and what to do.
        """
        try:
            return load(self.staging, PLAN, kind)
        except StagingError as error:
            if self.staging.exists(PLAN):
                raise
            raise self.plan_gone() from error

    def plan_gone(self) -> StagingGoneError:
        """Return an error that says who may have removed the plan, and what to do."""
        index, run = self.staging.root.split("/")[-2:]
        return StagingGoneError(
            f"the plan of run {run} of index {index!r}, {self.staging.uri(PLAN)}, is gone: the "
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
        column = table_vector_column(self.table, self.run.declaration.column)
        if column.field_id != self.run.field_id:
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


def run_places(table: Table, index: str, run_id: str) -> Iterator[tuple[str, Staging, bool]]:
    """Yield the ids that a run may go by, the given one first, each with its staging folder.

    Left out are ids of runs that were given up, and those of which documents are left without the
    plan that they were made by. A plan that is torn, since the machine went down, is removed with
    all that was made by it.

    Yields:
        An id, its folder, and whether its plan is staged.
    """
    for name in chain([run_id], (f"{run_id}-{number}" for number in count(2))):
        staging = Staging(table.io, staging_root(table, index, name))
        stored = {file.uri.rpartition("/")[2] for file in listed(table.io, staging.root)}
        documents = {file for file in stored if file.endswith(".json")}
        if PLAN in documents and GIVEN_UP not in documents and staging.discard_torn(PLAN):
            staging.delete_tree()
            documents = set()
        if GIVEN_UP not in documents and (PLAN in documents or not documents):
            yield name, staging, PLAN in documents


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
            index, run = workspace.staging.root.split("/")[-2:]
            raise StagingGoneError(
                f"{error}. Run {run} of index {index!r} cannot go on: what it works with was "
                "altered or removed, such as by another engine's removal of orphan files. Start it "
                "again, by its DAG or its command: it is then planned again"
            ) from error


def _give_up(staging: Staging, why: str) -> None:
    try:
        staging.put_new(GIVEN_UP, json.dumps({"why": why}).encode())
    except EnvironmentProblemError as error:  # what is gone is what has to be told
        log.warning("%s is not marked as given up: %s", staging.root, error)


@contextmanager
def opened_once() -> Iterator[None]:
    """Open a run once for all its stages, where they follow each other in this thread.

    To load the table and to read the plan and the version that is refreshed again for each task
    took as long as all else that is done about a few deleted rows. What is published on is the
    table as it is then: publishing loads it by itself.
    """
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def is_opened_once() -> bool:
    """Tell whether this thread does all stages of a run, one after the other."""
    return _kept.get() is not None


def discard_staged(workspace: Workspace) -> None:
    """Remove what a run staged whose outcome is settled; what stays is for the clean-up."""
    try:
        workspace.staging.delete_tree()
    except EnvironmentProblemError as error:
        log.warning("%s is left behind: %s", workspace.staging.root, error)


def arrays_to_bytes(value: Any) -> bytes:
    """Serialise a dataclass of numpy arrays as .npz."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f.name: np.asarray(getattr(value, f.name)) for f in fields(value)}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def arrays_from_bytes(kind: type[T], data: bytes) -> T:
    """Read what `arrays_to_bytes` wrote; pickled content is refused by numpy."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            loaded: Mapping[str, Any] = {name: archive[name] for name in archive.files}
        return kind(**loaded)
    except (ValueError, TypeError, OSError, KeyError) as error:
        raise StagingError(f"staged arrays are not those of {kind.__name__}: {error}") from None
