"""Assets: one of each watched table, which starts refreshes, and one of each index.

The triggerer watches that of a table. Its triggers are only named here: to import them would import
PyIceberg. That of an index has an event whenever a run of its DAGs publishes it, for DAGs of users.
"""

from collections.abc import AsyncIterator
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetWatcher, Context
from airflow.triggers.base import BaseEventTrigger

from puffin_ann.declaration import IndexDeclaration, seconds_of

if TYPE_CHECKING:
    from puffin_ann.lifecycle.report.figures import Figures

BRANCH = "main"
GROUP = "puffin-ann"
TRIGGERS = "puffin_ann.airflow.triggers.table"
LONGEST_URI = 1400
"""Characters. Airflow refuses those that are not much longer, and with them the whole file."""

TOLD = (
    "index",
    "table",
    "run_id",
    "snapshot_id",
    "base_snapshot_id",
    "rows",
    "recall",
    "recall_target",
    "coverage",
)
"""What the `extra` of an index's event has: fields of `lifecycle.report.figures.Figures`."""


class NamedTrigger(BaseEventTrigger):
    """Names a trigger that the triggerer makes; to import it here would import PyIceberg."""

    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name = name
        self.arguments = arguments

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path of the trigger's class, and its arguments."""
        return f"{TRIGGERS}.{self.name}", self.arguments

    async def run(self) -> AsyncIterator[Any]:
        """Do what the trigger that is named does."""
        made = getattr(import_module(TRIGGERS), self.name)(**self.arguments)
        async for event in made.run():
            yield event


class TableAsset(Asset):
    """An Asset that is hashed by what it is; Airflow does so at every edge between two tasks."""

    def __hash__(self) -> int:
        """Return the hash of the URI alone: equal ones have equal ones."""
        return hash(self.uri)


def asset_of(table: str, declared: list[IndexDeclaration]) -> Asset:
    """Return the Asset of a table's branch, with what watches it.

    It is the same for all indexes of the table, whichever DAG asks: the table is asked as often as
    the most impatient of them wants.
    """
    watching = [index for index in declared if index.table == table and index.refresh.watch]
    poll = min(seconds_of(index.refresh.poll_interval) for index in watching)
    lags = {index.name: seconds_of(index.refresh.max_lag) for index in watching}
    return _asset(table, poll, tuple(sorted(lags.items())))


@cache
def index_asset(table: str, index: str) -> Asset:
    """Return the Asset of an index, for DAGs of your own that run when it is refreshed.

    Its events come from the task `publish` of the DAGs that build, refresh and maintain the index,
    when that has published a version, and from no other run. What an event tells is in its `extra`,
    by the names of `TOLD`::

        WORDS = index_asset("demo.glove.words", "glove_words")

        @dag(schedule=[WORDS], catchup=False)
        def after_refresh(): ...

    Args:
        table: `catalog.namespace.table`, as it is declared.
        index: name of the index.
    """
    return Asset(name=f"{table}/{index}", uri=f"puffin-ann://{_path(table)}/{index}", group=GROUP)


def tell_published(context: Context, asset: Asset, figures: "Figures") -> None:
    """Put what was published into the event of an index, which a task emits when it succeeds."""
    context["outlet_events"][asset].extra = figures.model_dump(include=set(TOLD))


def _path(table: str) -> str:
    """Return a table's name as the path of a URI; it may hold what has a meaning there."""
    path = "/".join(quote(part, safe="") for part in table.split("."))
    return path if len(path) <= LONGEST_URI else sha256(table.encode()).hexdigest()


@cache
def _asset(table: str, poll: int, lags: tuple[tuple[str, int], ...]) -> Asset:
    catalog, _, name = table.partition(".")
    common = {"table": name, "iceberg_conn_id": catalog, "branch": BRANCH, "poll_interval": poll}
    return TableAsset(
        name=f"{table}@{BRANCH}",
        uri=f"iceberg://{_path(table)}/{BRANCH}",
        group=GROUP,
        watchers=[
            AssetWatcher(
                name=f"{table} changed", trigger=NamedTrigger("DataSnapshotTrigger", **common)
            ),
            AssetWatcher(
                name=f"{table} waited",
                trigger=NamedTrigger("IndexLagTrigger", **common, lags=dict(lags)),
            ),
        ],
    )
