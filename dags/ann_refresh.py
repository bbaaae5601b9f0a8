"""Refresh DAGs: one `ann_refresh_<index>` for each declaration; each runs when its table changes.

Tables are watched by the triggerer: one Asset for each table, shared by the DAGs of its indexes.
"""

from collections.abc import AsyncIterator
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, AssetWatcher, get_parsing_context
from airflow.triggers.base import BaseEventTrigger

from puffin_ann.declaration import IndexDeclaration, declarations_folder, seconds_of
from puffin_ann_common import SETTINGS, dags_of, lease_tasks, tags_of
from puffin_ann_forms import force_form
from puffin_ann_refreshing import refresh_tasks

KIND = "refresh"
PREFIX = "ann_refresh_"
BRANCH = "main"
TRIGGERS = "puffin_ann.airflow.triggers.table"
LONGEST_URI = 1400
"""Characters. Airflow refuses those that are not much longer, and with them the whole file."""


class Named(BaseEventTrigger):
    """Names a trigger that the triggerer makes; to import it here would import PyIceberg."""

    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__()
        self.name = name
        self.arguments = arguments

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return where the trigger's class stands, and its arguments."""
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
    watching = [one for one in declared if one.table == table and one.refresh.watch]
    poll = min(seconds_of(one.refresh.poll_interval) for one in watching)
    lags = {one.name: seconds_of(one.refresh.max_lag) for one in watching}
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
            AssetWatcher(name=f"{table} changed", trigger=Named("DataSnapshotTrigger", **common)),
            AssetWatcher(
                name=f"{table} waited",
                trigger=Named("IndexLagTrigger", **common, lags=dict(lags)),
            ),
        ],
    )


def refresh_dag(declaration: IndexDeclaration, declared: list[IndexDeclaration]) -> DAG:
    """Return the refresh DAG of one index."""
    watched = declaration.refresh.watch
    with DAG(
        dag_id=f"{PREFIX}{declaration.name}",
        description=f"Make vector index {declaration.name} follow {declaration.table}",
        doc_md=f"""
Makes the vector index **{declaration.name}** follow `{declaration.table}`: added rows become a
delta, deleted ones tombstones, rows that moved get new locators. A run ends at once where too
little changed; where building anew is due, it triggers `ann_build_{declaration.name}`.

It runs when the table has new snapshots, other than those that publish indexes, and when changes
have waited for `refresh.max_lag`. A run waits for other runs on the index, and plans after that.
""",
        schedule=[asset_of(declaration.table, declared)] if watched else None,
        tags=tags_of(KIND, declaration),
        **SETTINGS,
    ) as dag:
        lease, release = lease_tasks(declaration, KIND)
        first, last = refresh_tasks(declaration, PREFIX, KIND, maintenance=False)
        lease >> first
        [last, dag.get_task("build_anew")] >> release
    return dag


globals().update(
    dags_of(declarations_folder(), PREFIX, refresh_dag, force_form, get_parsing_context().dag_id)
)
