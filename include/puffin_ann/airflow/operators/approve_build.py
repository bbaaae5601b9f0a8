"""Have a person approve a build that is expected to cost more than its declaration allows."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import Context

from puffin_ann.airflow.dag_ids import APPROVE, EXPECT
from puffin_ann.declaration import IndexDeclaration, seconds_of
from puffin_ann.imports.extras import needing

with needing("airflow", "to have builds approved"):
    from airflow.providers.standard.operators.hitl import ApprovalOperator


class ApproveBuildOperator(ApprovalOperator):
    """Wait until a person approves the build, if the task before found that one is to be asked.

    The task waits without a slot, and before the run has its lease. What is rejected, or not
    approved in time, is not done: the tasks after it are skipped. Nothing of it is a template.

    Args:
        declaration: the index.
        **kwargs: those of every operator.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, declaration: IndexDeclaration, **kwargs: Any) -> None:
        super().__init__(
            task_id=APPROVE,
            subject=f"Build vector index {declaration.name} of {declaration.table}?",
            defaults=self.REJECT,
            response_timeout=timedelta(seconds=seconds_of(declaration.build.approval_expires)),
            ignore_downstream_trigger_rules=True,
            **kwargs,
        )

    def execute(self, context: Context) -> Any:
        """Ask, or let the run go on."""
        expected: dict[str, Any] = context["ti"].xcom_pull(task_ids=EXPECT)
        if not expected["asks"]:
            self.log.info("nobody is asked: %s", expected["reason"])
            return None
        cost = expected["cost"]
        self.body = "\n".join(
            [
                f"- why: {expected['reason']}",
                f"- it would build {cost['rows']:,} rows, write {cost['bytes']:,} bytes, and work "
                f"for {cost['seconds']:,.0f} s of one process",
                f"- asked, since: {expected['asks']}",
            ]
        )
        self.log.info("a person is asked: %s", expected["asks"])
        return super().execute(context)
