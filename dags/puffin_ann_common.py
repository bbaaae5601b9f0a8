"""What the DAG files share: DAGs by declaration, and leases.

It is imported with every parse of a DAG file, so it imports no more than Airflow, pydantic and
YAML.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseSensorOperator, Context, Param, get_current_context, task

from puffin_ann.declaration import Declared, IndexDeclaration, read_declarations
from puffin_ann.errors import DeclarationError
from puffin_ann.uncollected import uncollected
from puffin_ann_failing import plainly, tell
from puffin_ann_submitting import owner_of

LEASE_POLL_SECONDS = 15.0
LONGEST_TAG, LONGEST_ID = 100, 240
"""Characters. Airflow refuses longer tags, and ids that are not much longer."""
NO_ID = re.compile(r"[^\w.-]")
"""What Airflow refuses in an id."""
SETTINGS: dict[str, Any] = {
    "catchup": False,
    "max_active_runs": 1,
    "default_args": {
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "on_failure_callback": tell,
        "on_retry_callback": tell,
    },
}
"""Arguments of every DAG."""

Make = Callable[[IndexDeclaration, list[IndexDeclaration]], DAG]
"""Makes the DAG of an index; it is told all declarations, since some things are shared."""

Form = Callable[[IndexDeclaration], dict[str, Param]]
"""Makes the trigger form of an index's DAG."""


@uncollected()
def dags_of(
    folder: Path,
    prefix: str,
    make: Make,
    form: Form,
    wanted: str | None,
    *,
    stand_in: Callable[[str, DeclarationError], DAG] | None = None,
) -> dict[str, DAG]:
    """Return the DAGs of a folder of declarations, by id.

    Args:
        folder: of declarations.
        prefix: of the DAGs' ids; the rest is the name of the index.
        make: makes one, without its trigger form.
        form: makes that.
        wanted: the one DAG a task process needs; it does not make the others.
        stand_in: makes a DAG, by its id, for a declaration that is not valid. To raise would take
            away the DAGs of all other declarations. Without, there is none: that of the build says
            why.
    """
    declared = read_declarations(folder)
    dags: dict[str, DAG] = {}
    for one in declared.valid:
        dag_id = f"{prefix}{one.name}"
        if wanted in (None, dag_id):
            dags[dag_id] = dag = make(one, list(declared.valid))
            # Afterwards: while tasks are made, Airflow copies the whole form for each of them.
            dag.params = form(one)
    if stand_in:
        for dag_id, error in _stand_ins(declared, prefix).items():
            if wanted in (None, dag_id):
                dags[dag_id] = stand_in(dag_id, error)
    return dags


def _stand_ins(declared: Declared, prefix: str) -> dict[str, DeclarationError]:
    """Return an id for each problem that is not the id of a DAG: named after the file or index."""
    found: dict[str, DeclarationError] = {}
    taken = {f"{prefix}{one.name}" for one in declared.valid}
    named = [(path.stem, error) for path, error in declared.broken.items()]
    for name, error in [*declared.ambiguous.items(), *named]:
        dag_id = f"{prefix}{NO_ID.sub('_', name)}"[:LONGEST_ID]
        while dag_id in taken:
            dag_id += "_"
        taken.add(dag_id)
        found[dag_id] = error
    return found


def tags_of(kind: str, declaration: IndexDeclaration) -> list[str]:
    """Return the tags of an index's DAG."""
    return ["puffin-ann", kind, declaration.table[:LONGEST_TAG]]


class LeaseSensor(BaseSensorOperator):
    """Waits until no other run works on an index; from then on this one does.

    :param declaration: The index.
    :param kind: What this run does; with its id, the name it has the lease by.
    """

    def __init__(self, *, declaration: IndexDeclaration, kind: str, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=LEASE_POLL_SECONDS, **kwargs)
        self.table, self.index, self.kind = declaration.table, declaration.name, kind

    def poke(self, context: Context) -> bool:
        """Take the lease if nobody has it."""
        from puffin_ann.errors import LeaseHeldError
        from puffin_ann.lifecycle.runtime import leases

        owner = owner_of(self.kind, context["run_id"])
        with plainly():
            try:
                leases.begin(self.table, self.index, owner, self.kind)
            except LeaseHeldError as error:
                self.log.info("%s; waiting for it", error)
                return False
        return True


def lease_tasks(declaration: IndexDeclaration, kind: str) -> tuple[Any, Any]:
    """Return the tasks that begin and end a run: one writer works on an index at a time.

    The first waits, without a slot, for whoever is at work, and what comes after it is planned
    then: no run that somebody asked for is lost, though it may find that nothing is left to do. The
    second runs whatever became of the tasks between them.
    """

    @task
    @plainly()
    def release() -> None:
        """Let the next run work on this index."""
        from puffin_ann.lifecycle.runtime import leases

        owner = owner_of(kind, get_current_context()["run_id"])
        if not leases.end(declaration.table, declaration.name, owner):
            print("this run had lost its lease: it gave no sign of life for too long")

    begun = LeaseSensor(task_id="lease", declaration=declaration, kind=kind).as_setup()
    return begun, release().as_teardown(setups=begun)
