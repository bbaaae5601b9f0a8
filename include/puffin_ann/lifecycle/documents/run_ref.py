"""Which run: what names it everywhere, from the task that plans it to the commit."""

from dataclasses import dataclass

from pyiceberg.table import Table

from puffin_ann.errors import StagingError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.store.locations import is_staging_folder, staging_folder
from puffin_ann.lifecycle.documents.run import PLAN, PlanPointer


@dataclass(frozen=True)
class RunRef:
    """A run of an index: small enough to go into every task of it.

    Attributes:
        table: `catalog.namespace.table`.
        index: name of the index.
        run_id: of the run, as its folder is called.
        staging_folder: the table's when the run was planned; `write.metadata.path` may have been
            set since.
    """

    table: str
    index: str
    run_id: str
    staging_folder: str

    @classmethod
    def on(cls, table: Table, index: str, run_id: str) -> "RunRef":
        """Return a run that is planned now."""
        return cls(name_of(table), index, run_id, staging_folder(table))

    @classmethod
    def at(cls, table: str, plan: str) -> "RunRef":
        """Return the run of a table whose plan lies at a location.

        Raises:
            StagingError: no run has its plan there.
        """
        folder, *names = plan.rsplit("/", 3)
        if len(names) != 3 or names[-1] != PLAN or not is_staging_folder(folder.split("/")[-1]):
            raise StagingError(f"{plan!r} is not the location of a staged plan ({PLAN})")
        return cls(table, names[0], names[1], folder)

    @classmethod
    def planned(cls, pointer: PlanPointer) -> "RunRef":
        """Return the run that was planned.

        Raises:
            StagingError: nothing was to be done, and so nothing is staged.
        """
        return cls.at(pointer.table, pointer.plan)

    def as_json(self) -> dict[str, str]:
        """Return what names a run for the tasks after the planning one; `at` takes it back."""
        return {"table": self.table, "plan": self.plan, "run_id": self.run_id}

    @property
    def folder(self) -> str:
        """Where all lies that the run stages."""
        return f"{self.staging_folder}/{self.index}/{self.run_id}"

    @property
    def plan(self) -> str:
        """Location of the staged plan."""
        return f"{self.folder}/{PLAN}"
