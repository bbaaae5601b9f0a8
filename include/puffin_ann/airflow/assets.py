"""One Asset for each watched table, shared by the refresh DAGs of its indexes.

The triggerer watches it. Its triggers are only named here: to import them would import PyIceberg.
"""

from collections.abc import AsyncIterator
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger

from puffin_ann.declaration import IndexDeclaration, seconds_of

BRANCH = "main"
TRIGGERS = "puffin_ann.airflow.triggers.table"
LONGEST_URI = 1400
"""Characters. Airflow refuses those that are not much longer, and with them the whole file."""


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


def _uri(table: str) -> str:
    """Return what identifies a table's branch; names may hold what has a meaning in a URI."""
    path = "/".join(quote(part, safe="") for part in table.split("."))
    if len(path) > LONGEST_URI:
        path = sha256(table.encode()).hexdigest()
    return f"iceberg://{path}/{BRANCH}"


@cache
def _asset(table: str, poll: int, lags: tuple[tuple[str, int], ...]) -> Asset:
    catalog, _, name = table.partition(".")
    common = {"table": name, "iceberg_conn_id": catalog, "branch": BRANCH, "poll_interval": poll}
    return TableAsset(
        name=f"{table}@{BRANCH}",
        uri=_uri(table),
        group="puffin-ann",
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
