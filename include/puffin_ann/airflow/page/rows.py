"""What the page shows of an index: its state as a word, from its document and its runs."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from puffin_ann.airflow.dag_ids import LONGEST_TAG, Kind, dag_id_of
from puffin_ann.airflow.page.database import Asking, Broken, Dag, Known, Run
from puffin_ann.airflow.page.figures import duration, recall, share
from puffin_ann.airflow.state.document import StateDocument

State = Literal[
    "failing",
    "unreachable",
    "declaration not valid",
    "orphaned",
    "stale",
    "waiting",
    "building",
    "not built",
    "fresh",
]
STATES: tuple[State, ...] = get_args(State)
"""The worst first."""

KINDS: tuple[Kind, ...] = get_args(Kind)
INVALID = "invalid-declaration"
OLD_MS = 24 * 3600 * 1000
"""Documents of indexes without DAGs that nobody looked at for longer are not shown."""


@dataclass(frozen=True)
class Row:
    """One index, as a user may see it.

    Attributes:
        index: its name.
        table: `catalog.namespace.table`; empty if that is not known.
        state: the worst that can be said of it.
        words: why, in one sentence.
        dags: by kind, those that the user may read.
        document: how it stood when it was last looked at; None if it was not yet.
        last: the newest run that has ended.
        failed: the last runs of DAGs whose last run failed.
        broke: the task that failed first, of those of them of which it is known.
        running: at work, or queued.
        asking: runs that wait for approval.
        next_ms: when the next run is due by the clock.
        invalid: the DAG that stands for a declaration that is not valid.
    """

    index: str
    table: str
    state: State
    words: str
    dags: dict[Kind, Dag] = field(default_factory=dict)
    document: StateDocument | None = None
    last: Run | None = None
    failed: tuple[Run, ...] = ()
    broke: tuple[Broken, ...] = ()
    running: tuple[Run, ...] = ()
    asking: tuple[Asking, ...] = ()
    next_ms: int | None = None
    invalid: Dag | None = None

    @property
    def reference(self) -> str:
        """What names the index in the address of its page."""
        return f"{self.index}@{self.table}"

    @property
    def rank(self) -> int:
        """Its place: the worst have the lowest."""
        return STATES.index(self.state)


def rows_of(known: Known, now_ms: int) -> list[Row]:
    """Return a row for each index that the user may see, the worst first.

    Args:
        known: of the DAGs that the user may read.
        now_ms: milliseconds since 1970.
    """
    documents = {
        (_dag_name(document.index), document.table[:LONGEST_TAG]): document
        for document in known.documents
        if document.outcome != "orphaned"
    }
    grouped: dict[str, dict[Kind, Dag]] = defaultdict(dict)
    rows: list[Row] = []
    collects = False
    for dag in known.dags:
        if INVALID in dag.tags:
            rows.append(_invalid(dag))
        elif "collect" in dag.tags and dag.dag_id.startswith("ann_collect_"):
            collects = True
        else:
            kind = next((each for each in KINDS if dag.dag_id.startswith(f"ann_{each}_")), None)
            if kind is not None:
                grouped[dag.dag_id.removeprefix(f"ann_{kind}_")][kind] = dag
    for name, dags in grouped.items():
        table = _table_of(dags)
        rows.append(_declared(name, table, dags, documents.get((name, table)), known))
    if collects:  # who may see what collects may see what nothing declares
        rows += _undeclared(known.documents, grouped, now_ms)
    return sorted(rows, key=lambda row: (row.rank, row.index))


def _dag_name(index: str) -> str:
    return dag_id_of("build", index).removeprefix("ann_build_")


def _invalid(dag: Dag) -> Row:
    return Row(
        index=dag.dag_id.removeprefix("ann_build_"),
        table="",
        state="declaration not valid",
        words=dag.description.removeprefix("A declaration is not valid: "),
        invalid=dag,
    )


def _undeclared(
    documents: Iterable[StateDocument], declared: Iterable[str], now_ms: int
) -> Iterable[Row]:
    names = set(declared)
    for document in documents:
        is_new = now_ms - document.looked_ms <= OLD_MS
        if document.outcome == "orphaned" and is_new and _dag_name(document.index) not in names:
            yield Row(
                index=document.index,
                table=document.table,
                state="orphaned",
                words=document.problem,
                document=document,
            )


def _declared(
    name: str, table: str, dags: dict[Kind, Dag], document: StateDocument | None, known: Known
) -> Row:
    ids = {dag.dag_id for dag in dags.values()}
    ended = [known.last[dag_id] for dag_id in sorted(ids & known.last.keys())]
    running = tuple(run for dag_id in sorted(ids) for run in known.running.get(dag_id, ()))
    failed = tuple(run for run in ended if run.state == "failed")
    asking = tuple(each for each in known.asking if each.dag_id in ids)
    unwatched = next((known.unwatched[dag_id] for dag_id in ids & known.unwatched.keys()), "")
    broke = tuple(
        known.broke[run.dag_id, run.run_id]
        for run in failed
        if (run.dag_id, run.run_id) in known.broke
    )
    state, words = _state(document, failed, broke, running, asking, unwatched)
    due = [dag.next_ms for dag in dags.values() if dag.next_ms is not None and not dag.is_paused]
    return Row(
        index=document.index if document else name,
        table=document.table if document else table,
        state=state,
        words=words,
        dags=dags,
        document=document,
        last=max(ended, key=lambda run: run.ended_ms or 0, default=None),
        failed=failed,
        broke=broke,
        running=running,
        asking=asking,
        next_ms=min(due, default=None),
    )


def _table_of(dags: dict[Kind, Dag]) -> str:
    """Return the table, which is a tag of each DAG: the one with dots."""
    tags = next(iter(dags.values())).tags
    return next((tag for tag in sorted(tags) if tag.count(".") >= 2), "")


def _state(
    document: StateDocument | None,
    failed: tuple[Run, ...],
    broke: tuple[Broken, ...],
    running: tuple[Run, ...],
    asking: tuple[Asking, ...],
    unwatched: str,
) -> tuple[State, str]:
    """Return the worst that can be said, and why."""
    if failed:
        kinds = ", ".join(sorted(kind_of(run) for run in failed))
        why = next((f": {each.why}" for each in broke if each.why), "")
        return "failing", f"the last run failed: {kinds}{why}"
    if document is not None and document.outcome in ("problem", "unreachable"):
        state: State = "failing" if document.outcome == "problem" else "unreachable"
        return state, document.problem
    if unwatched:
        return "failing", f"no change starts a refresh: its table is not watched: {unwatched}"
    behind = _behind(document)
    waiting = {(run.dag_id, run.run_id) for run in asking}
    at_work = [
        run for run in running if run.state == "running" and (run.dag_id, run.run_id) not in waiting
    ]
    if at_work:
        return "building", f"at work: {', '.join(sorted({kind_of(run) for run in at_work}))}"
    if asking:
        return "waiting", "a build waits for approval"
    if behind:
        return "stale", behind
    if running:
        return "waiting", f"queued: {', '.join(sorted({kind_of(run) for run in running}))}"
    if document is None:
        return "waiting", "nobody has looked at it yet"
    if document.outcome == "not_built":
        return "not built", "its first refresh or build publishes it"
    return "fresh", "it answers for all that it should"


def _behind(document: StateDocument | None) -> str:
    """Return in which way an index is not as its declaration wants it."""
    if document is None or document.overview is None or document.limits is None:
        return ""
    found, limits = document.overview, document.limits
    figures = found.figures
    said = []
    if any(finding.kind == "column" for finding in found.findings):
        said.append("its column is not what its name means by now: searches are refused")
    if found.is_changed:
        said.append("the declaration has changed since it was built")
    if figures.lag_seconds > limits.max_lag_seconds:
        said.append(
            f"the oldest change waits for {duration(figures.lag_seconds)}, more than "
            f"{duration(limits.max_lag_seconds)}"
        )
    if figures.coverage < limits.min_coverage:
        said.append(f"covers {share(figures.coverage)}, less than {share(limits.min_coverage)}")
    measured = found.evaluated_recall
    if measured is not None and measured < limits.recall_target:
        said.append(f"recall is {recall(measured)}, less than {recall(limits.recall_target)}")
    return "; ".join(said)


def kind_of(run: Run) -> str:
    """Return what kind of run it is: of a build, a refresh, and so on."""
    return next((kind for kind in KINDS if run.dag_id.startswith(f"ann_{kind}_")), run.dag_id)
