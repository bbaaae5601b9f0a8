"""Metrics of indexes, by Airflow's own `Stats`: StatsD or OpenTelemetry, as it is configured.

Each is sent twice, as Airflow's own are: once under its name, with the index and the table as tags,
and once with the index as the last part of its name, for a StatsD that has no tags. They are
gauges: what the last task found. Airflow puts its prefix before them.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from puffin_ann.declaration import IndexDeclaration

if TYPE_CHECKING:
    from puffin_ann.lifecycle.evaluate.records import Evaluation
    from puffin_ann.lifecycle.report.figures import Figures

log = logging.getLogger("airflow.task")

OF_AN_INDEX = (
    "coverage",
    "lag_seconds",
    "recall",
    "recall_target",
    "tombstone_ratio",
    "rows",
    "bytes",
    "seconds",
)
"""Sent as a run begins and after it has published: fields of `lifecycle.report.figures.Figures`."""

EVALUATED = {"evaluated_recall": "recall"}
"""Sent after an evaluation: by name, fields of `lifecycle.evaluate.records.Evaluation`."""

SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")
"""Options of Airflow's section `metrics`, one of which is set where there is somebody to tell."""


def send_state(declaration: IndexDeclaration) -> None:
    """Send how an index stands; nothing where nobody is told, or no version is there to tell of."""
    from puffin_ann.errors import PuffinAnnError
    from puffin_ann.lifecycle.report.figures import figures_of

    if not _is_on():  # to look at the table takes time
        return
    try:
        figures = figures_of(declaration.table, declaration.name)
    except PuffinAnnError as error:  # which is for the task to find, not for those who watch it
        log.info("no metrics of index %s are sent: %s", declaration.name, error)
        return
    send_figures(figures)


def send_figures(figures: "Figures") -> None:
    """Send how an index stands."""
    _send(figures.table, figures.index, {name: getattr(figures, name) for name in OF_AN_INDEX})


def send_evaluation(evaluation: "Evaluation") -> None:
    """Send the recall that was measured of a published index; nothing where none could be."""
    if evaluation.queries:
        values = {name: getattr(evaluation, field) for name, field in EVALUATED.items()}
        _send(evaluation.table, evaluation.index, values)


def metric(name: str) -> str:
    """Return what a metric is called, after Airflow's prefix."""
    return f"puffin_ann.index.{name}"


def _send(table: str, index: str, values: dict[str, float | None]) -> None:
    stats = _stats()
    for name, value in values.items():
        if value is not None:
            stats.gauge(metric(name), value, tags={"index": index, "table": table})
            stats.gauge(f"{metric(name)}.{index}", value)


def _stats() -> Any:
    """Return Airflow's `Stats`: that of tasks since 3.2, and the one that there was before."""
    try:
        return import_module("airflow.sdk.observability.stats").Stats
    except ModuleNotFoundError:
        return import_module("airflow.stats").Stats


def _is_on() -> bool:
    conf = import_module("airflow.configuration").conf
    return any(conf.getboolean("metrics", switch, fallback=False) for switch in SWITCHES)
