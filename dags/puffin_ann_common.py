"""What the DAG files share: DAGs by declaration, Spark operators, trigger forms, leases.

It is imported with every parse of a DAG file, so it imports no more than Airflow, pydantic and
YAML.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseSensorOperator, Context, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException
from pydantic import BaseModel

from puffin_ann.declaration import Declared, IndexDeclaration, read_declarations
from puffin_ann.errors import BadInputError, DeclarationError, NotFoundError
from puffin_ann.uncollected import uncollected

SPARK_APPS = Path(__file__).resolve().parents[1] / "spark_apps"
PLAN = "{{ ti.xcom_pull(task_ids='plan')['plan'] }}"
LEASE_POLL_SECONDS = 15.0
LONGEST_TAG, LONGEST_ID = 100, 240
"""Characters. Airflow refuses longer tags, and ids that are not much longer."""
NO_ID = re.compile(r"[^\w.-]")
"""What Airflow refuses in an id."""
SETTINGS: dict[str, Any] = {
    "catchup": False,
    "max_active_runs": 1,
    "render_template_as_native_obj": True,
    "default_args": {"retries": 2, "retry_delay": timedelta(seconds=30)},
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


@cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schemas of a model's fields, by name."""
    fields: dict[str, Any] = model.model_json_schema().get("properties", {})
    return fields


def bounds_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a trigger form needs of a field's JSON schema: types, bounds, description."""
    options = schema.get("anyOf", [schema])
    bounds: dict[str, Any] = {"type": [option["type"] for option in options]}
    for option in options:
        for name in ("minimum", "maximum"):
            if name in option:
                bounds[name] = option[name]
    bounds["description"] = schema.get("description", "")
    return bounds


def checkbox(description: str) -> Param:
    """Return a box of a trigger form that is not ticked."""
    return Param(False, type="boolean", description=description)


def force_form(_: IndexDeclaration) -> dict[str, Param]:
    """Return the trigger form of a DAG that refreshes."""
    return {"force": checkbox("Publish changes however few they are.")}


def executor_environment() -> dict[str, str]:
    """Return the Spark configuration that lets executors find PyIceberg's configuration.

    Only its location: catalog credentials never stand in arguments.
    """
    home = os.environ.get("PYICEBERG_HOME")
    return {"spark.executorEnv.PYICEBERG_HOME": home} if home else {}


def spark(declaration: IndexDeclaration, prefix: str, task_id: str, app: str) -> dict[str, Any]:
    """Return the arguments of an operator that submits one of our Spark applications."""
    return {
        "task_id": task_id,
        "application": str(SPARK_APPS / app),
        "name": f"{prefix}{declaration.name}.{task_id}",
        "conn_id": declaration.spark.conn_id,
        "conf": {**executor_environment(), **declaration.spark.conf},
    }


def owner_of(kind: str, run_id: str) -> str:
    """Return by what name a DAG run holds its lease; runs of two DAGs may have one run id."""
    return f"{kind}/{run_id}"


def arguments(declaration: IndexDeclaration, kind: str) -> list[str]:
    """Return the arguments that every Spark application of a run gets."""
    owner = owner_of(kind, "{{ run_id }}")
    return ["--table", declaration.table, "--plan", PLAN, "--owner", owner]


@contextmanager
def refusing() -> Iterator[None]:
    """Fail a task for good where the next attempt would find the same: it would only hold up."""
    try:
        yield
    except (BadInputError, NotFoundError) as error:
        raise AirflowFailException(str(error)) from None


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
        from puffin_ann.lifecycle import leases

        owner = owner_of(self.kind, context["run_id"])
        try:
            with refusing():
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
    def release() -> None:
        """Let the next run work on this index."""
        from puffin_ann.lifecycle import leases

        owner = owner_of(kind, get_current_context()["run_id"])
        if not leases.end(declaration.table, declaration.name, owner):
            print("this run had lost its lease: it gave no sign of life for too long")

    begun = LeaseSensor(task_id="lease", declaration=declaration, kind=kind).as_setup()
    return begun, release().as_teardown(setups=begun)
