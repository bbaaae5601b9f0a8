"""The operator that runs a stage as a Spark application."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.log import mask_secret

from puffin_ann.airflow.dag_ids import Kind, dag_id_of
from puffin_ann.airflow.exceptions import AirflowFailException, AirflowSkipException
from puffin_ann.airflow.failures import StageException, stage_failure, without_secrets
from puffin_ann.airflow.submit.backends import Backend
from puffin_ann.airflow.submit.submission import Submission
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import PuffinAnnError
from puffin_ann.redaction import shown_cause
from puffin_ann.spark_apps import Stage


class StageOperator(BaseOperator):
    """Have one of our Spark applications submitted, for the plan of its run.

    What submits it is another operator, made when this one is executed: only then is known what
    differs from run to run. So nothing is rendered, here or there: configuration and names come
    from declarations, which are data. Airflow would run what is in braces in them, and take "1.10"
    for a number.

    An application that fails with one of our errors leaves it for the task, which fails with it,
    and is not retried where another attempt would fail in the same way.

    Args:
        submission: what is submitted, but for the arguments of the run.
        backend: what submits it.
        table: the indexed table.
        kind: what the run does, by which it has its lease; None where it needs no lease.
        group: the group of shards that the application works on, for those that do on one.
        **kwargs: those of every operator.
    """

    template_fields: Sequence[str] = ()

    def __init__(
        self,
        *,
        submission: Submission,
        backend: Backend,
        table: str,
        kind: Kind | None = None,
        group: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.submission = submission
        self.backend = backend
        self.table = table
        self.kind = kind
        self.group = group
        self._submitting: BaseOperator | None = None

    def execute(self, context: Context) -> None:
        """Submit the application and wait for its end.

        Raises:
            AirflowFailException: another attempt would find the same.
        """
        self._have(lambda operator: operator.execute(context), context)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> None:
        """Go on where what submits had waited in the triggerer."""
        self._have(
            lambda operator: operator.resume_execution(next_method, next_kwargs, context), context
        )

    def on_kill(self) -> None:
        """Cancel what was submitted."""
        if self._submitting is not None:
            self._submitting.on_kill()

    def _have(self, submit: Callable[[BaseOperator], Any], context: Context) -> None:
        """Let the operator of the backend do something, as the one that Airflow runs."""
        for value in self.submission.spark.secret_values:
            mask_secret(value)  # whatever submits logs what it is given
        operator = self.backend.make(self.submission.given(self.arguments(context)))
        self._submitting = operator
        running = copy_context()
        running.run(ExecutorSafeguard.tracker.set, operator)  # or it is warned of, or refused
        try:
            with self._following(context, operator):
                running.run(submit, operator)
        except (AirflowFailException, AirflowSkipException, StageException):
            raise
        except Exception as error:
            self._raise_last_words(context)
            if shown_cause(error) is not None:
                raise
            raise without_secrets(error) from None

    def _following(self, context: Context, operator: BaseOperator) -> AbstractContextManager[None]:
        """Log how far the application is, where nothing that it prints is seen here."""
        if getattr(operator, "prints_here", False):
            return nullcontext()
        from puffin_ann.lifecycle.runs.told_progress import following_progress

        return following_progress(
            self.table, _plan_of(context), self._attempt(context), self.log.info
        )

    def _raise_last_words(self, context: Context) -> None:
        """Fail by the error that the application left, if it left one.

        Raises:
            AirflowException: as `stage_failure` returns it.
        """
        from puffin_ann.lifecycle.runs.last_words import last_words

        try:
            words = last_words(self.table, _plan_of(context), self._attempt(context))
        except PuffinAnnError as error:
            self.log.info("whether the application said why it failed is not known: %s", error)
            return
        if words is not None:
            raise stage_failure(words.message, words.exit_code) from None

    def _attempt(self, context: Context) -> str:
        """Return what no other attempt at a task of the run is called."""
        ti = context["ti"]
        return f"{self.task_id}.{ti.map_index}.{ti.try_number}"

    def arguments(self, context: Context) -> list[str]:
        """Return the arguments of the application."""
        given = ["--table", self.table, "--plan", _plan_of(context)]
        given += ["--attempt", self._attempt(context)]
        if self.kind is not None:
            given += ["--owner", owner_of(self.kind, context["run_id"])]
        if self.group is not None:
            given += ["--group", self.group]
        return given


def _plan_of(context: Context) -> str:
    planned: dict[str, str] = context["ti"].xcom_pull(task_ids="plan")
    return planned["plan"]


def owner_of(kind: Kind, run_id: str) -> str:
    """Return by what name a DAG run holds its lease; runs of two DAGs may have one run id."""
    return f"{kind}/{run_id}"


def stage_arguments(
    declaration: IndexDeclaration,
    backend: Backend,
    kind: Kind,
    task_id: str,
    stage: Stage,
    *,
    has_lease: bool = True,
) -> dict[str, Any]:
    """Return the arguments of a `StageOperator`.

    Args:
        declaration: the index.
        backend: what submits its stages.
        kind: of the run.
        task_id: of the task.
        stage: which the application runs.
        has_lease: the run has a lease on the index, which the stage keeps alive.
    """
    name = f"{dag_id_of(kind, declaration.name)}.{task_id}"
    return {
        "task_id": task_id,
        "submission": Submission.of(stage, name, declaration.spark),
        "backend": backend,
        "table": declaration.table,
        "kind": kind if has_lease else None,
    }
