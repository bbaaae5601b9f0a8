"""The operator that publishes what a run made, and tells those who want to know."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context

from puffin_ann.airflow.assets import index_asset, tell_published
from puffin_ann.airflow.exceptions import AirflowSkipException
from puffin_ann.airflow.failures import fail_plainly
from puffin_ann.airflow.lineage import operator_lineage
from puffin_ann.airflow.metrics import send_figures
from puffin_ann.declaration import IndexDeclaration

if TYPE_CHECKING:
    from puffin_ann.lifecycle.report.lineage import Lineage


class PublishOperator(BaseOperator):
    """Assemble the Puffin file and publish it in one commit, at most once a run.

    Refused where the gate measured a recall under the target, and skipped where somebody else has
    published the index meanwhile. When it succeeds, it emits an event of the index's Asset; metrics
    and lineage tell the same.

    Args:
        declaration: the index.
        **kwargs: those of every operator.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, declaration: IndexDeclaration, **kwargs: Any) -> None:
        asset = index_asset(declaration.table, declaration.name)
        super().__init__(outlets=[asset], **kwargs)
        self.asset = asset
        self._lineage: Lineage | None = None

    @fail_plainly()
    def execute(self, context: Context) -> dict[str, Any]:
        """Publish; a retry finds what its own run has published."""
        from puffin_ann.errors import SupersededError
        from puffin_ann.lifecycle.documents.run_ref import RunRef
        from puffin_ann.lifecycle.report.lineage import told_of
        from puffin_ann.lifecycle.runs import publish

        # Not an argument: with the plan as upstream it would run where a branch passes it by.
        planned = context["ti"].xcom_pull(task_ids="plan")
        run = RunRef.at(planned["table"], planned["plan"])
        try:
            published = publish.publish(run)
        except SupersededError as error:
            raise AirflowSkipException(str(error)) from None
        figures, self._lineage = told_of(run.table, run.index)
        tell_published(context, self.asset, figures)
        send_figures(figures)
        return published.model_dump()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return what was read and published, to the provider of OpenLineage."""
        return operator_lineage(self._lineage)
