"""What Airflow runs: DAGs of the declared indexes, sensors for DAGs of your own, a page.

The one package of the library that imports Airflow. What runs and what is written to a table is in
`puffin_ann.lifecycle`; here is when, by whom, and how a failure is reported.

    dags        the DAGs of each declared index: build, refresh, maintain, evaluate
    operators   have a stage submitted to Spark; ask for runs
    submit      what stages are submitted by, chosen by name
    assets      one Asset for each watched table, which starts refreshes, and one for each index
    lineage     what was read and published, for OpenLineage where that is installed
    metrics     how indexes stand, by Airflow's StatsD or OpenTelemetry
    sensors     wait until an index has fallen behind, or holds too many deleted rows
    triggers    watch tables and indexes in the triggerer
    state       how indexes stand, kept in Airflow's database for the page
    page        the page *Vector indexes* of Airflow's user interface
    forms       trigger forms, with the bounds of the declaration
    failures    how a task fails: for good or to be tried again, and what its log says
    exceptions  Airflow's exceptions, wherever its version has them
    provider    what this package is to Airflow's list of providers
    dag_ids     ids and tags of the DAGs

Airflow parses DAG files every few seconds and imports plugins in every process. So a module here
imports no more than Airflow, pydantic and YAML at its top, other than `triggers` and
`page.application`, which only the triggerer and the API server import.

What a deployment has of its own is a DAG file, as `dags/vector_indexes.py` is one:

    from puffin_ann.airflow import index_dags

    globals().update(index_dags())

Airflow finds the page by an entry point of the installed package, as it finds `provider`.
"""

from typing import TYPE_CHECKING, Any

from puffin_ann.errors import NotInstalledError
from puffin_ann.imports.extras import install_command, is_installed
from puffin_ann.imports.uncollected import imported

if TYPE_CHECKING:
    from puffin_ann.airflow.assets import index_asset as index_asset
    from puffin_ann.airflow.dags.factory import index_dags as index_dags
    from puffin_ann.airflow.submit.submission import Submission as Submission

__all__ = ["Submission", "index_asset", "index_dags"]

_PROVIDED = {
    "Submission": "puffin_ann.airflow.submit.submission",
    "index_asset": "puffin_ann.airflow.assets",
    "index_dags": "puffin_ann.airflow.dags.factory",
}

if not is_installed("airflow"):
    raise NotInstalledError(f"puffin_ann.airflow needs Airflow: {install_command('airflow')}")


def __getattr__(name: str) -> Any:
    """Import what makes DAGs only for DAG files: every process of Airflow imports this package."""
    if name in _PROVIDED:
        return getattr(imported(_PROVIDED[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
