"""Two triggers: a table's data changed; a change has waited longer than an index allows."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from puffin_ann.airflow.dag_ids import WATCH_PROBLEM
from puffin_ann.errors import EnvironmentProblemError, NotFoundError, PuffinAnnError
from puffin_ann.redaction import redact

SILENT = "the table's catalog or store does not answer; the triggerer's log says more"
LONGEST_PROBLEM = 400
WAITED_KEY = "waited"
SNAPSHOT_KEY = "snapshot_id"


class DataSnapshotTrigger(BaseEventTrigger):
    """Fire an event whenever the data of an Iceberg table changes.

    As the trigger of Airflow's Iceberg provider, which came with its version 2.1, except that our
    own index snapshots are passed over: they change no data, and an index that is published must
    not cause another run. Catalogs are those that the library uses, of PyIceberg's configuration,
    so that both see the same table.

    Args:
        table: name of the table in its catalog, such as `namespace.table`.
        iceberg_conn_id: name of the catalog in PyIceberg's configuration.
        branch: branch that is watched.
        poll_interval: seconds between two looks at the table.
        last_seen_snapshot_id: the snapshot that was told last; None makes the head the first event.
        **kwargs: those of every trigger.
    """

    def __init__(
        self,
        *,
        table: str,
        iceberg_conn_id: str,
        branch: str = "main",
        poll_interval: float = 60,
        last_seen_snapshot_id: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id
        self.branch = branch
        self.poll_interval = poll_interval
        self.last_seen_snapshot_id = last_seen_snapshot_id
        self._problem = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return where this class stands, and its arguments."""
        names = ("table", "iceberg_conn_id", "branch", "poll_interval", "last_seen_snapshot_id")
        return f"{__name__}.DataSnapshotTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the triggerer ends."""
        last = await load_state(self, SNAPSHOT_KEY)
        if last:
            self.last_seen_snapshot_id = int(last)
        told = await load_state(self, WATCH_PROBLEM)
        while True:
            head = await asyncio.to_thread(self._head_snapshot_id)
            if self._problem != told:
                told = self._problem
                await store_state(self, WATCH_PROBLEM, told)
            previous = self.last_seen_snapshot_id
            if head is not None and head != previous:
                self.last_seen_snapshot_id = head
                await store_state(self, SNAPSHOT_KEY, head)
                yield TriggerEvent(
                    {
                        "table": self.table,
                        "branch": self.branch,
                        "snapshot_id": head,
                        "previous_snapshot_id": previous,
                    }
                )
            await asyncio.sleep(self.poll_interval)

    def _head_snapshot_id(self) -> int | None:
        from puffin_ann.lake.catalog.tables import load_table
        from puffin_ann.lake.metadata.index_snapshots import data_snapshot

        self._problem = ""
        try:
            found = data_snapshot(load_table(f"{self.iceberg_conn_id}.{self.table}"), self.branch)
        except NotFoundError:
            self.log.debug("%s does not exist yet; waiting", self.table)
            return None
        except PuffinAnnError as error:
            # To raise would kill the trigger, and have it started once a second until it succeeds.
            self.log.warning("%s; asking again in %s s", error, self.poll_interval)
            # What a catalog says of itself, such as its address, is not for all who see the page.
            is_silent = isinstance(error, EnvironmentProblemError)
            self._problem = SILENT if is_silent else redact(str(error))[:LONGEST_PROBLEM]
            return None
        return found.snapshot_id if found else None


class IndexLagTrigger(BaseEventTrigger):
    """Fire an event when a table's indexes have not followed it for as long as they may.

    Few changes wait for more, up to `refresh.max_lag`, and if no more come nothing else would start
    a run. There is one event for each state of the table, at most one for each length of time.

    Args:
        table: name of the table in its catalog, such as `namespace.table`.
        iceberg_conn_id: name of the catalog in PyIceberg's configuration.
        branch: branch that is indexed.
        poll_interval: seconds between two looks at the table.
        lags: by index, seconds that a change may wait.
        **kwargs: those of every trigger.
    """

    def __init__(
        self,
        *,
        table: str,
        iceberg_conn_id: str,
        branch: str,
        poll_interval: float,
        lags: dict[str, int],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id
        self.branch = branch
        self.poll_interval = poll_interval
        self.lags = lags

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path of this class, and its arguments."""
        names = ("table", "iceberg_conn_id", "branch", "poll_interval", "lags")
        return f"{__name__}.IndexLagTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the triggerer ends."""
        last_event = await load_state(self, WAITED_KEY)
        while True:
            due = await asyncio.to_thread(self._find_due)
            if due and due != last_event:
                last_event = due
                await store_state(self, WAITED_KEY, due)
                yield TriggerEvent({"table": self.table, "branch": self.branch, "waited": due})
            await asyncio.sleep(self.poll_interval)

    def _find_due(self) -> str:
        """Return the state of the table and the indexes that should have followed it by now."""
        from puffin_ann.lake.catalog.tables import load_table
        from puffin_ann.lake.metadata.index_snapshots import data_snapshot, is_published_for

        try:
            table = load_table(f"{self.iceberg_conn_id}.{self.table}")
        except PuffinAnnError as error:
            self.log.debug("%s", error)
            return ""
        found = data_snapshot(table, self.branch)
        if found is None:
            return ""
        age = time.time() - found.timestamp_ms / 1000
        late = [
            index
            for index, lag in sorted(self.lags.items())
            if age >= lag and not is_published_for(table, index, found.snapshot_id)
        ]
        return f"{found.snapshot_id}: {', '.join(late)}" if late else ""


async def load_state(trigger: BaseEventTrigger, key: str) -> str:
    """Return what a trigger stored with its asset; empty where Airflow keeps no such thing."""
    store = getattr(trigger, "asset_state_store", None)  # since Airflow 3.3
    if store is None:
        return ""
    try:
        return str(await asyncio.to_thread(store.get, key) or "")
    except ValueError as error:  # several assets share the trigger: there is no one place
        trigger.log.debug("%s", error)
        return ""


async def store_state(trigger: BaseEventTrigger, key: str, value: str | int) -> None:
    """Store something with the asset of a trigger, for the next time that the triggerer starts."""
    store = getattr(trigger, "asset_state_store", None)
    if store is None:
        return
    try:
        await asyncio.to_thread(store.set, key, value)
    except ValueError as error:
        trigger.log.debug("%s", error)
