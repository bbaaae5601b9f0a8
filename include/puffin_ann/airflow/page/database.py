"""What Airflow's own database knows of indexes: documents, DAGs, runs; no catalog is asked."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from airflow.models import DagModel, DagRun, TaskInstance, Variable
from airflow.models.crypto import get_fernet
from airflow.models.dag import DagTag
from airflow.utils.session import create_session
from cryptography.fernet import InvalidToken
from sqlalchemy import func, or_, select

from puffin_ann.airflow.dag_ids import APPROVE
from puffin_ann.airflow.exceptions import AirflowException
from puffin_ann.airflow.state.document import StateDocument
from puffin_ann.airflow.state.store import PREFIX, parse

TAG = "puffin-ann"
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


@dataclass(frozen=True)
class Dag:
    """One of our DAGs, as Airflow last parsed it."""

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


@dataclass(frozen=True)
class Stage:
    """One task of a run; seconds of its last attempt, None while it has not begun."""

    task_id: str
    state: str
    seconds: float | None


def read(readable: set[str]) -> Known:
    """Return what is known of the DAGs that a user may read, and all documents."""
    with create_session() as session:
        dags = tuple(_dags(session, readable))
        ids = [dag.dag_id for dag in dags]
        newest = (
            select(func.max(DagRun.id))
            .where(DagRun.dag_id.in_(ids), DagRun.state.in_(FINISHED))
            .group_by(DagRun.dag_id)
        )
        last = {run.dag_id: run for run in _runs(session, DagRun.id.in_(newest))}
        running: dict[str, tuple[Run, ...]] = defaultdict(tuple)
        for run in _runs(session, DagRun.dag_id.in_(ids), DagRun.state.in_(("running", "queued"))):
            running[run.dag_id] += (run,)
        return Known(
            dags=dags,
            last=last,
            running=dict(running),
            documents=tuple(_documents(session)),
            asking=tuple(_asking(session, ids)) if running else (),
        )


def history(dag_ids: Iterable[str]) -> list[tuple[Run, tuple[Stage, ...]]]:
    """Return the newest runs of some DAGs with their tasks, the newest first."""
    with create_session() as session:
        query = DagRun.dag_id.in_(list(dag_ids))
        runs = list(_runs(session, query, newest=MOST_RUNS))
        of_run: dict[tuple[str, str], tuple[Stage, ...]] = defaultdict(tuple)
        columns = (
            TaskInstance.dag_id,
            TaskInstance.run_id,
            TaskInstance.task_id,
            TaskInstance.state,
            TaskInstance.duration,
        )
        told = select(*columns).where(
            TaskInstance.dag_id.in_({run.dag_id for run in runs}),
            TaskInstance.run_id.in_({run.run_id for run in runs}),
        )
        order = (TaskInstance.start_date, TaskInstance.map_index)
        for dag_id, run_id, task_id, state, seconds in session.execute(told.order_by(*order)):
            of_run[dag_id, run_id] += (Stage(task_id, str(state or "none"), seconds),)
        return [(run, of_run[run.dag_id, run.run_id]) for run in runs]


def _dags(session: Any, readable: set[str]) -> Iterable[Dag]:
    ours = select(DagTag.dag_id).where(DagTag.name == TAG)
    tags: dict[str, set[str]] = defaultdict(set)
    for dag_id, name in session.execute(
        select(DagTag.dag_id, DagTag.name).where(DagTag.dag_id.in_(ours))
    ):
        tags[dag_id].add(name)
    rows = session.execute(
        select(
            DagModel.dag_id,
            DagModel.is_paused,
            DagModel.description,
            DagModel.next_dagrun_create_after,
        ).where(DagModel.dag_id.in_(ours), DagModel.is_stale.is_(False))
    )
    for dag_id, is_paused, description, after in rows:
        if dag_id in readable:
            yield Dag(dag_id, frozenset(tags[dag_id]), is_paused, description or "", _ms(after))


def _runs(session: Any, *conditions: Any, newest: int | None = None) -> Iterable[Run]:
    query = select(
        DagRun.dag_id,
        DagRun.run_id,
        DagRun.state,
        DagRun.start_date,
        DagRun.end_date,
    ).where(*conditions)
    if newest is not None:
        query = query.limit(newest)
    for dag_id, run_id, state, began, ended in session.execute(query.order_by(DagRun.id.desc())):
        yield Run(dag_id, run_id, str(getattr(state, "value", state)), _ms(began), _ms(ended))


def _asking(session: Any, dag_ids: Sequence[str]) -> Iterable[Asking]:
    """Yield the runs that wait for approval: before Airflow 3.3 their tasks count as deferred."""
    rows = session.execute(
        select(TaskInstance.dag_id, TaskInstance.run_id).where(
            TaskInstance.dag_id.in_(dag_ids),
            TaskInstance.task_id == APPROVE,
            or_(TaskInstance.state == "awaiting_input", TaskInstance.state == "deferred"),
        )
    )
    for dag_id, run_id in rows:
        yield Asking(dag_id, run_id)


def _documents(session: Any) -> Iterable[StateDocument]:
    rows = session.execute(
        select(Variable._val, Variable.is_encrypted).where(
            Variable.key.startswith(PREFIX, autoescape=True)
        )
    )
    for stored, is_encrypted in rows:
        found = _document(stored or "", is_encrypted)
        if found is not None:
            yield found


@lru_cache(maxsize=1024)
def _document(stored: str, is_encrypted: bool) -> StateDocument | None:
    """Return a document from what the database has; most are the same from page to page.

    As a `Variable`, each would be decrypted twice whenever it is loaded.
    """
    if not is_encrypted:
        return parse(stored)
    try:
        return parse(get_fernet().decrypt(stored.encode()).decode())
    except (InvalidToken, AirflowException):
        return None  # of another key: the next look writes a new one


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
