"""The recall gate: choose how wide to search, then measure, on queries not used to choose."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.routing import Recall
from puffin_ann.declaration import EXACT
from puffin_ann.errors import RecallTooLowError, StagingError
from puffin_ann.lifecycle.build import staged_index
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.build.train import TrainResult
from puffin_ann.lifecycle.documents.run import BuiltShard, Gated
from puffin_ann.lifecycle.evaluate.ground_truth import MAX_DUPLICATES, Truth
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.index import Index, open_version
from puffin_ann.search.snapshot_view import live_state
from puffin_ann.search.versions import load_version

WIDTHS = (
    *(16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256),
    *(384, 512, 768, 1024, 1536, 2048),
)
NORMAL_95 = 1.96
TIMED_ROUNDS = 7
FEW_QUERIES, UNTUNED_WIDTH = 50, 256
"""With fewer tuning queries than this, differences between searches cannot be told from luck."""


@dataclass(frozen=True)
class Measure:
    """A recall with its 95 % interval, over a number of queries."""

    recall: float
    low: float
    high: float
    queries: int

    @classmethod
    def of(cls, recalls: NDArray[np.float64]) -> "Measure":
        """Return the mean of (q,) recalls, q of at least 1; one tells nothing of others."""
        mean, error = float(recalls.mean()), 1.0
        if len(recalls) > 1:
            error = NORMAL_95 * float(recalls.std(ddof=1)) / float(np.sqrt(len(recalls)))
        return cls(mean, max(0.0, mean - error), min(1.0, mean + error), len(recalls))


@dataclass(frozen=True)
class Judge:
    """Queries with their exact answers, to measure a search with.

    Attributes:
        queries: (q, d) float32.
        truth: their exact answers.
        k: neighbours asked for.
        paths: absolute path by file id, as the answers have them; None: ids are those of the index.
    """

    queries: NDArray[np.float32]
    truth: Truth
    k: int
    paths: Mapping[int, str] | None = None

    def part(self, first: int, last: int) -> "Judge":
        """Return a run of the queries, without those that have too many exact duplicates."""
        usable = self.truth.duplicate_counts <= MAX_DUPLICATES
        usable &= np.isfinite(self.truth.distances[:, 0])
        chosen = np.flatnonzero(usable)
        chosen = chosen[(chosen >= first) & (chosen < last)]
        renumbered = np.full(len(self.queries), -1, dtype=np.int64)
        renumbered[chosen] = np.arange(len(chosen))
        duplicates = self.truth.duplicates.copy()
        duplicates[:, 0] = renumbered[duplicates[:, 0]]
        return Judge(
            self.queries[chosen],
            Truth(
                self.truth.distances[chosen],
                duplicates[duplicates[:, 0] >= 0],
                self.truth.duplicate_counts[chosen],
            ),
            self.k,
            self.paths,
        )

    def measure(self, index: Index, *, width: int, probe_partitions: int) -> Measure:
        """Search as users do, and compare; rows equal to the query count neither way."""
        if not len(self.queries):
            return Measure(1.0, 1.0, 1.0, 0)
        most = int(self.truth.duplicate_counts.max())
        found = index.search(
            self.queries,
            self.k + most,
            width=width,
            probe_partitions=probe_partitions or None,
            allow_fewer=True,
        )
        recalls = _recalls(
            found.column("query").to_numpy(),
            found.column("distance").to_numpy(),
            _is_duplicate(index, found, self.truth.duplicates, self.paths),
            self.truth.distances,
        )
        return Measure.of(recalls)

    def fastest(self, index: Index, pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return the pair of width and partitions that answers the queries in the least time.

        Pairs alternate, so that a busy moment of the machine hits all alike, and the best round of
        each counts: whatever else runs can only lengthen one.
        """
        if len(pairs) == 1:
            return pairs[0]
        least = dict.fromkeys(pairs, math.inf)
        for _ in range(TIMED_ROUNDS):
            for width, probe in pairs:
                began = time.perf_counter()
                index.search(
                    self.queries,
                    self.k,
                    width=width,
                    probe_partitions=probe,
                    allow_fewer=True,
                )
                elapsed = time.perf_counter() - began
                least[width, probe] = min(least[width, probe], elapsed)
        return min(pairs, key=least.__getitem__)


def _recalls(
    query: NDArray[np.int32],
    distance: NDArray[np.float32],
    left_out: NDArray[np.bool_],
    truth: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Return each query's share of true neighbours found; equal distances count as found."""
    recalls = np.zeros(len(truth), dtype=np.float64)
    for number, exact in enumerate(truth):
        wanted = exact[np.isfinite(exact)]
        mine = distance[(query == number) & ~left_out][: len(wanted)]
        recalls[number] = (mine <= wanted[-1]).sum() / len(wanted)
    return recalls


def _is_duplicate(
    index: Index, found: object, duplicates: NDArray[np.int64], given: Mapping[int, str] | None
) -> NDArray[np.bool_]:
    """Tell which answers are rows equal to their query."""
    locator = found.column("locator").combine_chunks()  # type: ignore[attr-defined]
    query = found.column("query").to_pylist()  # type: ignore[attr-defined]
    paths = given or {
        file.file_id: index.view.files[int(index.view.rank_of_file_id[file.file_id])]
        for file in index.version.coverage.files
    }
    equal = {(q, paths[f], g, o) for q, f, g, o in duplicates.tolist()}
    rows = zip(
        query,
        locator.field("file").to_pylist(),
        locator.field("row_group").to_pylist(),
        locator.field("row_offset").to_pylist(),
        strict=True,
    )
    return np.array([row in equal for row in rows], dtype=np.bool_)


def choose_widths(index: Index, judge: Judge, *, target: float, partitions: int) -> tuple[int, int]:
    """Find the fastest search that reaches the target on the tuning queries, with some to spare.

    A search must exceed the target by a quarter of the rest with the low end of its interval, so
    that what passes here by luck is rare, and users' queries, which are no rows of the table, find
    as much. More partitions need less width: of all pairs that are just enough the fastest is
    taken, as measured. With few queries nothing is saved: every partition is probed. So it is with
    `exact`, which promises every row, near the rows of the table or not.

    Returns:
        Search width and partitions to probe; the widest search if none reaches the target.
    """
    if not len(index.version.routing.centroids):
        return WIDTHS[0], 0  # files are left out by proven bounds only: nothing to choose
    if index.version.routing.algorithm == EXACT:
        return WIDTHS[0], partitions
    if len(judge.queries) < FEW_QUERIES:
        return max(UNTUNED_WIDTH, 4 * judge.k), partitions
    pairs = _pairs(index, judge, target + (1.0 - target) / 4, partitions)
    if not pairs:
        return WIDTHS[-1], partitions
    return judge.fastest(index, pairs)


def _pairs(index: Index, judge: Judge, wanted: float, partitions: int) -> list[tuple[int, int]]:
    """Return widths with the fewest partitions by which each of them finds enough."""

    def is_enough(place: int, probe: int) -> bool:
        width = WIDTHS[place]
        return judge.measure(index, width=width, probe_partitions=probe).low >= wanted

    pairs: list[tuple[int, int]] = []
    place = len(WIDTHS) - 1
    ladder = [partitions] if len(index.version.routing.shards) == 1 else _probes(partitions)
    for probe in ladder:
        if not is_enough(place, probe):
            continue
        while place and is_enough(place - 1, probe):
            place -= 1
        if not pairs or pairs[-1][0] != WIDTHS[place]:
            pairs.append((WIDTHS[place], probe))
    return pairs


def _probes(partitions: int) -> Iterator[int]:
    ladder = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
    return (tried for tried in chain(ladder, [partitions]) if tried <= partitions)


def run_gate(
    workspace: Workspace,
    trained: TrainResult,
    summary: AssignSummary,
    shards: list[BuiltShard],
    seconds: Mapping[str, float],
    figures: Mapping[str, str],
    *,
    algorithm: str,
) -> Gated:
    """Tune and measure the unpublished index, and stage the candidate that publishing takes.

    Args:
        seconds: by stage, how long it took.
        figures: what earlier stages counted, for the routing blob's properties.
        algorithm: what the shards were built with.
    """
    began = time.monotonic()
    plan = workspace.plan
    declaration = plan.declaration
    location = workspace.table.location()
    routing = staged_index.routing_of(plan, trained, summary, shards, figures, algorithm=algorithm)
    coverage = staged_index.coverage_of(plan, summary, location)
    files = staged_index.centroids_of(plan, summary, coverage)
    trial = workspace.stage_bytes(
        "trial.puffin", staged_index.encode(plan, routing, coverage, files)
    )
    version = load_version(workspace.table.io, trial.uri, declaration.name)
    if version is None:
        raise StagingError(f"{trial.uri} does not hold index {declaration.name!r}")
    index = open_version(
        workspace.table, version, live_state(workspace.table, plan.base_snapshot_id)
    )
    judge = Judge(trained.queries, summary.truth, declaration.gate.k)
    tuning = int(trained.tuning[0])
    width, probe = choose_widths(
        index,
        judge.part(0, tuning),
        target=declaration.recall_target,
        partitions=plan.partition_count,
    )
    measure = judge.part(tuning, len(trained.queries)).measure(
        index, width=width, probe_partitions=probe
    )
    elapsed = time.monotonic() - began
    final = staged_index.measured(
        routing,
        width=width,
        probe_partitions=probe,
        recall=Recall(
            k=declaration.gate.k,
            queries=measure.queries,
            recall=measure.recall,
            low=measure.low,
            high=measure.high,
            target=declaration.recall_target,
        ),
        seconds={**seconds, "gate": elapsed},
    )
    return Gated(
        candidate=workspace.stage_bytes(
            "candidate.puffin", staged_index.encode(plan, final, coverage, files)
        ),
        k=declaration.gate.k,
        queries=measure.queries,
        recall=measure.recall,
        low=measure.low,
        high=measure.high,
        target=declaration.recall_target,
        search_width=width,
        probe_partitions=probe,
        seconds=elapsed,
    )


def require_passed(gated: Gated, index: str) -> None:
    """Let a run go on only if it is good enough.

    Raises:
        RecallTooLowError: the measured recall is under the target; says what was measured.
    """
    if gated.recall >= gated.target:
        return
    raise RecallTooLowError(
        f"index {index!r}: recall@{gated.k} is {gated.recall:.4f} (95 % interval {gated.low:.4f} "
        f"to {gated.high:.4f}, {gated.queries} queries, search width {gated.search_width}), under "
        f"the declared recall_target of {gated.target}; nothing was published. Raise what the "
        "algorithm spends (R and alpha of vamana, M and ef_construction of hnsw) or "
        "gate.queries, or lower recall_target"
    )
