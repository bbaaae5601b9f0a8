"""What Airflow's own database knows of indexes: documents, DAGs, runs; no catalog is asked."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, get_args

from airflow.models import DagModel, DagRun, TaskInstance, Variable
from airflow.models.asset import DagScheduleAssetReference
from airflow.models.crypto import get_fernet
from airflow.models.dag import DagTag
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from cryptography.fernet import InvalidToken
from sqlalchemy import func, select

from puffin_ann.airflow.dag_ids import APPROVE, REASON, WATCH_PROBLEM, WHY_FAILED, Kind
from puffin_ann.airflow.exceptions import AirflowException
from puffin_ann.airflow.state.document import StateDocument
from puffin_ann.airflow.state.store import PREFIX, parse

TAG = "puffin-ann"
DAGS, RUNS, TASKS, TAGS, VARIABLES, XCOMS, STARTS = (
    model.__table__.c
    for model in (
        DagModel,
        DagRun,
        TaskInstance,
        DagTag,
        Variable,
        XComModel,
        DagScheduleAssetReference,
    )
)
OURS = select(TAGS.dag_id).where(TAGS.name == TAG)
Ask = Callable[[Any], Any]
"""Asks the database."""

FINISHED = ("success", "failed")
MOST_RUNS = 12


@dataclass(frozen=True)
class Run:
    """One run of a DAG; times in milliseconds since 1970."""

    dag_id: str
    run_id: str
    state: str
    began_ms: int | None
    ended_ms: int | None
    reason: str = ""
    """What its task `plan` said that it does, and why."""


@dataclass(frozen=True)
class Broken:
    """The task that failed first of a run, and why; an empty text if that is not known."""

    run: Run
    task_id: str
    why: str = ""


@dataclass(frozen=True)
class Dag:
    """One of our DAGs, as Airflow last parsed it; without the tags that tell it is one of ours."""

    dag_id: str
    tags: frozenset[str]
    is_paused: bool
    description: str
    next_ms: int | None


@dataclass(frozen=True)
class Asking:
    """A run that waits for a person's approval."""

    dag_id: str
    run_id: str


@dataclass(frozen=True)
class Known:
    """All that the database knows of the DAGs that a user may read."""

    dags: tuple[Dag, ...]
    last: dict[str, Run]
    """The last finished run of each DAG."""
    running: dict[str, tuple[Run, ...]]
    """Runs that are at work, or queued."""
    documents: tuple[StateDocument, ...]
    asking: tuple[Asking, ...] = ()
    broke: dict[tuple[str, str], Broken] = field(default_factory=dict)
    """The task that failed first, by DAG and run, of last runs that failed."""
    unwatched: dict[str, str] = field(default_factory=dict)
    """Why the watcher of its table cannot look, by the id of the DAG that it would start."""


@dataclass(frozen=True)
class Stage:
    """One task of a run; seconds of its last attempt, None while it has not begun."""

    task_id: str
    state: str
    seconds: float | None


def read(readable: set[str]) -> Known:
    """Return what is known of the DAGs that a user may read, and all documents.

    Tables are asked rather than models, and by a subquery rather than by hundreds of ids: that is
    half of the time.
    """
    with create_session() as session:
        ask = session.connection().execute
        dags = tuple(_dags(ask, readable))
        ids = {dag.dag_id for dag in dags}
        newest = (
            select(func.max(RUNS.id))
            .where(RUNS.dag_id.in_(OURS), RUNS.state.in_(FINISHED))
            .group_by(RUNS.dag_id)
        )
        last = {run.dag_id: run for run in _runs(ask, ids, RUNS.id.in_(newest))}
        at_work = RUNS.dag_id.in_(OURS), RUNS.state.in_(("running", "queued"))
        running: dict[str, tuple[Run, ...]] = defaultdict(tuple)
        for run in _runs(ask, ids, *at_work):
            running[run.dag_id] += (run,)
        return Known(
            dags=dags,
            last=last,
            running=dict(running),
            documents=tuple(_documents(ask)),
            asking=tuple(_asking(ask, ids)) if running else (),
            broke=_broke(ask, [run for run in last.values() if run.state == "failed"]),
            unwatched={dag_id: why for dag_id, why in _unwatched(ask) if dag_id in ids},
        )


def history(dag_ids: Iterable[str]) -> list[tuple[Run, tuple[Stage, ...]]]:
    """Return the newest runs of some DAGs with their tasks, the newest first."""
    with create_session() as session:
        ids = set(dag_ids)
        ask = session.connection().execute
        runs = list(_runs(ask, ids, RUNS.dag_id.in_(ids), newest=MOST_RUNS))
        of_run: dict[tuple[str, str], tuple[Stage, ...]] = defaultdict(tuple)
        columns = (TASKS.dag_id, TASKS.run_id, TASKS.task_id, TASKS.state, TASKS.duration)
        told = select(*columns).where(
            TASKS.dag_id.in_({run.dag_id for run in runs}),
            TASKS.run_id.in_({run.run_id for run in runs}),
        )
        order = (TASKS.start_date, TASKS.map_index)
        for dag_id, run_id, task_id, state, seconds in ask(told.order_by(*order)):
            of_run[dag_id, run_id] += (Stage(task_id, str(state or "none"), seconds),)
        why = dict(_reasons(ask, runs))
        return [
            (
                replace(run, reason=why.get((run.dag_id, run.run_id), "")),
                of_run[run.dag_id, run.run_id],
            )
            for run in runs
        ]


def _reasons(ask: Ask, runs: Sequence[Run]) -> Iterable[tuple[tuple[str, str], str]]:
    told = select(XCOMS.dag_id, XCOMS.run_id, XCOMS.value).where(
        XCOMS.task_id == "plan",
        XCOMS.key == REASON,
        XCOMS.dag_id.in_({run.dag_id for run in runs}),
        XCOMS.run_id.in_({run.run_id for run in runs}),
    )
    for dag_id, run_id, value in ask(told):
        yield (dag_id, run_id), _plain(value)


def _unwatched(ask: Ask) -> Iterable[tuple[str, str]]:
    """Yield what watchers of tables keep of their problems: since Airflow 3.3 there is a place."""
    try:
        from airflow.models.asset_state_store import AssetStateStoreModel
    except ImportError:
        return
    kept = AssetStateStoreModel.__table__.c
    told = (
        select(STARTS.dag_id, kept.value)
        .join(AssetStateStoreModel.__table__, kept.asset_id == STARTS.asset_id)
        .where(STARTS.dag_id.in_(OURS), kept.key == WATCH_PROBLEM)
    )
    for dag_id, value in ask(told):
        if problem := _plain(value):
            yield dag_id, problem


def _plain(value: Any) -> str:
    """Return a text that Airflow keeps as JSON, once or twice."""
    for _ in range(2):
        try:
            value = json.loads(value)
        except (TypeError, ValueError):
            break
    return value if isinstance(value, str) else ""


def _dags(ask: Ask, readable: set[str]) -> Iterable[Dag]:
    tags: dict[str, set[str]] = defaultdict(set)
    told = select(TAGS.dag_id, TAGS.name).where(
        TAGS.dag_id.in_(OURS), TAGS.name.not_in((TAG, *get_args(Kind)))
    )
    for dag_id, name in ask(told).all():
        tags[dag_id].add(name)
    rows = ask(
        select(DAGS.dag_id, DAGS.is_paused, DAGS.description, DAGS.next_dagrun_create_after).where(
            DAGS.dag_id.in_(OURS), DAGS.is_stale.is_(False)
        )
    )
    for dag_id, is_paused, description, after in rows.all():
        if dag_id in readable:
            yield Dag(dag_id, frozenset(tags[dag_id]), is_paused, description or "", _ms(after))


def _runs(
    ask: Ask, dag_ids: set[str], *conditions: Any, newest: int | None = None
) -> Iterable[Run]:
    columns = (RUNS.dag_id, RUNS.run_id, RUNS.state, RUNS.start_date, RUNS.end_date)
    query = select(*columns).where(*conditions).limit(newest)
    for dag_id, run_id, state, began, ended in ask(query.order_by(RUNS.id.desc())).all():
        if dag_id in dag_ids:
            yield Run(dag_id, run_id, str(getattr(state, "value", state)), _ms(began), _ms(ended))


def _asking(ask: Ask, dag_ids: set[str]) -> Iterable[Asking]:
    """Yield the runs that wait for approval: before Airflow 3.3 their tasks count as deferred."""
    rows = ask(
        select(TASKS.dag_id, TASKS.run_id).where(
            TASKS.dag_id.in_(OURS),
            TASKS.task_id == APPROVE,
            TASKS.state.in_(("awaiting_input", "deferred")),
        )
    )
    for dag_id, run_id in rows:
        if dag_id in dag_ids:
            yield Asking(dag_id, run_id)


def _broke(ask: Ask, failed: Sequence[Run]) -> dict[tuple[str, str], Broken]:
    """Return the task that failed first of each run that failed."""
    runs = {(run.dag_id, run.run_id): run for run in failed}
    if not runs:
        return {}
    rows = ask(
        select(TASKS.dag_id, TASKS.run_id, TASKS.task_id)
        .where(
            TASKS.dag_id.in_({run.dag_id for run in failed}),
            TASKS.run_id.in_({run.run_id for run in failed}),
            TASKS.state == "failed",
        )
        .order_by(TASKS.end_date.desc())
    )
    first = {(dag_id, run_id): task_id for dag_id, run_id, task_id in rows}
    said = select(XCOMS.dag_id, XCOMS.run_id, XCOMS.task_id, XCOMS.value).where(
        XCOMS.key == WHY_FAILED,
        XCOMS.dag_id.in_({dag_id for dag_id, _ in first}),
        XCOMS.run_id.in_({run_id for _, run_id in first}),
    )
    why = {tuple(place): _plain(value) for *place, value in (ask(said) if first else ())}
    return {
        run: Broken(runs[run], task_id, why.get((*run, task_id), ""))
        for run, task_id in first.items()
        if run in runs
    }


@dataclass
class _Parsed:
    """Documents by what the database has of them, those of the last page: most come again.

    Parsed anew, each would be decrypted and made of hundreds of objects at every load; kept for
    longer, the collector of garbage would look through them.
    """

    known: dict[tuple[str, bool], StateDocument | None] = field(default_factory=dict)

    def read(self, rows: Iterable[tuple[str, bool]]) -> list[StateDocument]:
        """Return the documents of rows, and forget all others."""
        known = self.known
        self.known = found = {row: known[row] if row in known else _document(*row) for row in rows}
        return [document for document in found.values() if document is not None]


_parsed = _Parsed()


def _documents(ask: Ask) -> list[StateDocument]:
    rows = ask(
        select(VARIABLES.val, VARIABLES.is_encrypted).where(
            VARIABLES.key.startswith(PREFIX, autoescape=True)
        )
    )
    return _parsed.read((stored or "", is_encrypted) for stored, is_encrypted in rows.all())


def _document(stored: str, is_encrypted: bool) -> StateDocument | None:
    """Return a document from what the database has.

    As a `Variable`, it would be decrypted twice whenever it is loaded.
    """
    if not is_encrypted:
        return parse(stored)
    try:
        return parse(get_fernet().decrypt(stored.encode()).decode())
    except (InvalidToken, AirflowException):
        return None  # of another key: the next look writes a new one


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
