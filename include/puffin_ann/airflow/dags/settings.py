"""The arguments that every DAG has: ours, those of its DAG file, and those of its declaration."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from puffin_ann.airflow.dag_ids import Kind, dag_id_of, tags_of
from puffin_ann.airflow.failures import log_failure
from puffin_ann.airflow.submit.backends import OURS, Backend, backend_of
from puffin_ann.declaration import AirflowOptions, IndexDeclaration, seconds_of

RETRIES = 4
BACKOFF = {
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
}
"""Between the attempts of a task, unless somebody says how long to wait: a store or a catalog that
is back within some ten minutes fails no run. What the next attempt would find the same fails at
once; see `failures.PERMANENT`."""

LOGGED = ("on_failure_callback", "on_retry_callback")
"""Callbacks by which the log of a failed attempt ends with what is wrong."""


@dataclass(frozen=True)
class Installation:
    """What a DAG file says of all its DAGs.

    Attributes:
        backends: what stages may be submitted by, by name.
        default_args: of every task, as Airflow has them.
        dag_args: of every DAG: callbacks and deadlines.
        tags: of every DAG, beside ours.
    """

    backends: Mapping[str, Backend] = field(default_factory=lambda: OURS)
    default_args: Mapping[str, Any] = field(default_factory=dict)
    dag_args: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()

    def backend_of(self, declaration: IndexDeclaration) -> Backend:
        """Return what the stages of an index are submitted by.

        Raises:
            DeclarationError: nothing has the declared name.
        """
        return backend_of(declaration, self.backends)

    def dag_arguments(self, kind: Kind, declaration: IndexDeclaration) -> dict[str, Any]:
        """Return the arguments of a DAG; of tasks, what is declared comes before the DAG file's."""
        said = {**self.default_args, **_declared(declaration.airflow)}
        given = {"retries": RETRIES, **({} if "retry_delay" in said else BACKOFF), **said}
        logged = {name: [log_failure, *_listed(given.get(name))] for name in LOGGED}
        return {
            "dag_id": dag_id_of(kind, declaration.name),
            "tags": [*tags_of(kind, declaration), *self.tags, *declaration.airflow.tags],
            "catchup": False,
            "max_active_runs": 1,
            "default_args": {**given, **logged},
            **self.dag_args,
        }


def _declared(options: AirflowOptions) -> dict[str, Any]:
    """Return what a declaration says of tasks, by Airflow's names."""
    said = {
        "pool": options.pool,
        "priority_weight": options.priority_weight,
        "queue": options.queue,
        "retries": options.retries,
        "retry_delay": _timedelta(options.retry_delay),
        "execution_timeout": _timedelta(options.timeout),
        "owner": options.owner,
    }
    return {name: value for name, value in said.items() if value is not None}


def _timedelta(duration: str | None) -> timedelta | None:
    return None if duration is None else timedelta(seconds=seconds_of(duration))


def _listed(callbacks: Any) -> list[Any]:
    """Return callbacks as a list; Airflow takes one, or several."""
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, Collection) else [callbacks]
