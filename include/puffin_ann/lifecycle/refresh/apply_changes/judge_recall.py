"""Judge a shard that was changed by what it finds, beside what the published one does."""

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.declaration import EXACT
from puffin_ann.engines import engine
from puffin_ann.engines.reranked import ArrayRows, RowVectors
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.policy.kept_recall import ShardRecall, keeps, loses
from puffin_ann.lifecycle.refresh.apply_changes.check_recall import recall_of_blob
from puffin_ann.lifecycle.refresh.apply_changes.remap import ShardRows
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.shards.opening.blobs import shard_blobs
from puffin_ann.search.version.index_version import IndexVersion


@dataclass(frozen=True)
class Changed:
    """A shard that was changed, as it is to be published.

    Attributes:
        encoded: its blob.
        deleted: (n,) bool, rows of it that are.
        vectors: (m, d) float32, of its last rows: those of which they are at hand.
    """

    encoded: Path
    deleted: NDArray[np.bool_]
    vectors: NDArray[np.float32]


@dataclass(frozen=True)
class Published:
    """The published shard that a changed one is to replace.

    Attributes:
        shard: the shard.
        now: which of its rows are live in the new version.
        table: vectors of these, if they are at hand; asked for where the shard has none.
    """

    shard: ShardEntry
    now: ShardRows
    table: RowVectors | None = None


@dataclass(frozen=True)
class Judgement:
    """What a changed shard finds, and whether that is enough.

    Attributes:
        recall: of the shard alone; None where all rows are compared, or none has a neighbour.
        before: the bar, where the shard is under the target and what it replaces can be measured.
        keeps: it finds as much as it has to, chance left out of it.
        loses: it surely finds less.
    """

    recall: float | None = None
    before: ShardRecall | None = None
    keeps: bool = True
    loses: bool = False


@dataclass(frozen=True)
class RecallJudge:
    """Measures shards of a version and those that replace them by the same rule.

    Attributes:
        workspace: of the run.
        version: that is refreshed.
        threads: threads to use.
    """

    workspace: Workspace
    version: IndexVersion
    threads: int

    def judge(
        self,
        changed: Changed,
        number: int,
        published: Published | None,
        scratch: Path,
        before: ShardRecall | None = None,
    ) -> Judgement:
        """Judge a changed shard.

        What is published is measured where the changed shard is under the target, and its bar is
        not known yet: the new one may be no worse.

        Args:
            changed: the shard.
            number: its id.
            published: what it replaces; None where that cannot be read.
            scratch: a folder to work in that nobody has worked in; it is made.
            before: what is published finds, where that was measured just now.
        """
        scratch.mkdir()
        target = self.workspace.refresh_plan.declaration.recall_target
        rows = len(changed.deleted)
        first = rows - len(changed.vectors)
        vectors = ArrayRows(changed.vectors, first, rows)
        with changed.encoded.open("rb") as source:
            now = self._measure(
                source, changed.deleted, scratch / "changed", vectors, first=first, target=target
            )
        if now is None or now.recall >= target:
            return Judgement(None if now is None else now.recall)
        if first and self.version.routing.vectors == "none":
            # What was measured by the rows at hand alone is compared with nothing but the target.
            return Judgement(now.recall, None, keeps(now, None, target), loses(now, None, target))
        before = before or self._noted(number)
        if before is None and published is not None:
            before = self._of_published(published, scratch)
        return Judgement(now.recall, before, keeps(now, before, target), loses(now, before, target))

    def _noted(self, number: int) -> ShardRecall | None:
        recalls = IndexProperties(self.version.routing.properties).shard_recalls
        return recalls.of(number, self.workspace.refresh_plan.declaration.gate.k)

    def _of_published(self, published: Published, scratch: Path) -> ShardRecall | None:
        folder, deleted = scratch / "published", published.now.deleted
        with self.version.files(self.workspace.table.io) as files:
            source = shard_blobs(files, self.version, published.shard).engine.open()
            # By many rows, whatever few of them find: a bar is not to be high by luck.
            return self._measure(source, deleted, folder, published.table, target=inf)

    def _measure(
        self,
        source: BinaryIO,
        deleted: NDArray[np.bool_],
        folder: Path,
        table: RowVectors | None,
        *,
        first: int = 0,
        target: float,
    ) -> ShardRecall | None:
        """Return the recall of a shard, see `recall_of_blob`; of one that compares all, None."""
        routing, declaration = self.version.routing, self.workspace.refresh_plan.declaration
        if routing.algorithm == EXACT:
            return None
        found = recall_of_blob(
            engine(routing.algorithm),
            source,
            deleted,
            folder,
            table,
            first=first,
            k=declaration.gate.k,
            width=routing.search_width,
            target=target,
            seed=declaration.seed,
            threads=self.threads,
        )
        if found is None:
            return None
        return ShardRecall(recall=found.recall, low=found.low, high=found.high)
