"""Watch an index: it fell behind its table, or so many of its rows were deleted."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import EnvironmentProblemError, PuffinAnnError


class IndexTrigger(BaseTrigger):
    """Fire once when a declared index is in some state; a subclass says in which.

    Args:
        index: name of the declared index.
        poll_interval: seconds between two looks.
        declaration: as JSON, where it lies beside a DAG file, which triggerers do not have; None
            where they find it by name.
    """

    def __init__(
        self, *, index: str, poll_interval: float, declaration: dict[str, Any] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.index = index
        self.poll_interval = poll_interval
        self.declaration = declaration

    def asked(self) -> str | IndexDeclaration:
        """Return the index to look at: its declaration, or the name to find that by."""
        if self.declaration is None:
            return self.index
        return IndexDeclaration.model_validate(self.declaration)

    @abstractmethod
    def look(self) -> tuple[bool, str]:
        """Say whether the wait is over, and why, or why not; asks the table, and so blocks."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that it is made with, for `serialize`."""
        given = {"index": self.index, "poll_interval": self.poll_interval}
        return given if self.declaration is None else {**given, "declaration": self.declaration}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path of this class, and its arguments."""
        return f"{__name__}.{type(self).__name__}", self.arguments()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the index is in that state."""
        while True:
            try:
                is_over, reason = await asyncio.to_thread(self.look)
            except EnvironmentProblemError as error:
                self.log.warning("%s; asking again in %s s", error, self.poll_interval)
            except PuffinAnnError as error:
                yield TriggerEvent({"error": str(error)})
                return
            else:
                if is_over:
                    yield TriggerEvent({"reason": reason})
                    return
            await asyncio.sleep(self.poll_interval)


class IndexStaleTrigger(IndexTrigger):
    """Fire once when an index has fallen behind its table, by its own declaration."""

    def look(self) -> tuple[bool, str]:
        """Say whether it has, and why."""
        from puffin_ann.lifecycle.report.staleness import staleness_of

        found = staleness_of(self.asked())
        return found.is_stale, found.reason


class IndexTombstoneTrigger(IndexTrigger):
    """Fire once when a maintenance window would rebuild shards of an index for their deleted rows.

    Args:
        ratio: share of a shard's rows that may be deleted; None: what the index declares.
    """

    def __init__(self, *, ratio: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ratio = ratio

    def look(self) -> tuple[bool, str]:
        """Say whether it would, and why."""
        from puffin_ann.lifecycle.report.staleness import tombstones_of

        found = tombstones_of(self.asked(), self.ratio)
        return found.is_due, found.reason

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that it is made with, for `serialize`."""
        return {**super().arguments(), "ratio": self.ratio}
