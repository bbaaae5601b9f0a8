"""The tasks that begin and end a run that writes: one run at a time works on an index."""

from typing import Any

from airflow.sdk import BaseSensorOperator, Context, get_current_context, task

from puffin_ann.airflow.dag_ids import Kind
from puffin_ann.airflow.failures import fail_plainly
from puffin_ann.airflow.operators.submit_stage import owner_of
from puffin_ann.declaration import IndexDeclaration

LEASE_POLL_SECONDS = 15.0


class LeaseSensor(BaseSensorOperator):
    """Wait until no other run works on an index; from then on this one does.

    Args:
        declaration: the index.
        kind: what this run does; with its id, the name by which it has the lease.
        **kwargs: those of every operator.
    """

    def __init__(self, *, declaration: IndexDeclaration, kind: Kind, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=LEASE_POLL_SECONDS, **kwargs)
        self.table, self.index, self.kind = declaration.table, declaration.name, kind

    def poke(self, context: Context) -> bool:
        """Take the lease if nobody has it."""
        from puffin_ann.errors import LeaseHeldError
        from puffin_ann.lifecycle.runtime import leases

        owner = owner_of(self.kind, context["run_id"])
        with fail_plainly():
            try:
                leases.begin(self.table, self.index, owner, self.kind)
            except LeaseHeldError as error:
                self.log.info("%s; waiting for it", error)
                return False
        return True


def lease_tasks(declaration: IndexDeclaration, kind: Kind) -> tuple[Any, Any]:
    """Return the tasks that begin and end a run.

    The first waits, without a slot, for the run at work; what comes after is planned only then. So
    no run that was asked for is lost, though it may find that nothing is left to do. The second
    runs even if tasks between them failed.
    """

    @task
    @fail_plainly()
    def release() -> None:
        """Let the next run work on this index."""
        from puffin_ann.lifecycle.runtime import leases

        owner = owner_of(kind, get_current_context()["run_id"])
        if leases.end(declaration.table, declaration.name, owner):
            print("the lease is released: the next run may begin")
        else:
            print("this run had lost its lease: it sent no heartbeat for too long")

    lease = LeaseSensor(task_id="lease", declaration=declaration, kind=kind)
    begun = lease.as_setup()  # type: ignore[no-untyped-call]
    return begun, release().as_teardown(setups=begun)
