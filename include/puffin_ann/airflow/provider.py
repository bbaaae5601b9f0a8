"""What this package is to Airflow: a provider, as `airflow providers list` shows it."""

from typing import Any

from puffin_ann.version import __version__


def get_provider_info() -> dict[str, Any]:
    """Return what Airflow asks of each provider, by its schema.

    The plugin is not among it: Airflow finds that by an entry point, and would load it twice.
    """
    name = "Puffin ANN"
    return {
        "package-name": "puffin-ann",
        "name": name,
        "description": "Vector indexes that live inside Apache Iceberg tables as Puffin files",
        "versions": [__version__],
        "integrations": [{"integration-name": name, "tags": ["software"]}],
        "operators": [
            {
                "integration-name": name,
                "python-modules": [
                    "puffin_ann.airflow.operators.publish",
                    "puffin_ann.airflow.operators.submit_stage",
                    "puffin_ann.airflow.operators.trigger_build",
                ],
            }
        ],
        "sensors": [
            {"integration-name": name, "python-modules": ["puffin_ann.airflow.sensors"]},
        ],
        "triggers": [
            {
                "integration-name": name,
                "python-modules": [
                    "puffin_ann.airflow.triggers.index",
                    "puffin_ann.airflow.triggers.table",
                ],
            }
        ],
    }
