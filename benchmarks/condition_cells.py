"""What is told of searches with a condition: a line for each cell, and the worst of all of them."""

from dataclasses import dataclass

from benchmarks.condition_peers import RECALL, Answered
from benchmarks.data import DataSet
from benchmarks.results import Row

DRIFT = 1.05
"""What two runs of the same may differ by."""


@dataclass(frozen=True)
class Timed:
    """Seconds of a query, of each way that is compared: in a batch, or one a call."""

    ours: float
    exact: float
    unfiltered: float

    @property
    def ratio(self) -> float:
        """Of ours to the better of the others."""
        return self.ours / min(self.exact, self.unfiltered)


@dataclass(frozen=True)
class Cell:
    """What was measured of a kind of condition and a share.

    Attributes:
        kind: of the condition.
        share: of the rows, in percent.
        recall: by the defaults of the build, the lesser of a batch and of one query a call.
        batch: by these, as the next.
        single: see above.
        least_batch: at the least width that reaches the recall, as peers are asked, as the next.
        least_single: see above.
        lance: one query a call.
        faiss: in a batch.
    """

    kind: str
    share: float
    recall: float
    batch: Timed
    single: Timed
    least_batch: Answered
    least_single: Answered
    lance: Answered
    faiss: Answered

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind} {self.share:g} %"


def row(data: DataSet, cell: Cell) -> Row:
    """Return the line of a cell: its time, by the better of what it is compared with."""
    is_close = cell.share <= 1 or (cell.kind == "independent" and cell.share == 50)
    worse = max((cell.batch, cell.single), key=lambda timed: timed.ratio)
    return Row(
        key=f"conditions-{data.name}-{cell.kind}-{cell.share:g}",
        what=f"a condition that allows {cell.share:g} %, {cell.kind}, {data.title}: time ÷ the "
        "better of exact search of the rows allowed and search without a condition",
        ours=f"{worse.ours * 1e6:.0f} us",
        theirs=f"{min(worse.exact, worse.unfiltered) * 1e6:.0f} us",
        measured=worse.ratio,
        least=1.2 if is_close else 3.0,
        aim=1.0,
        below=True,
        note=f"recall@10 {cell.recall:.4f}; {cell.batch.ratio:.2f} in a batch and "
        f"{cell.single.ratio:.2f} one query a call, the greater of which counts",
    )


def over_cells(data: DataSet, cells: list[Cell]) -> list[Row]:
    """Return what holds of all cells: the worst of each."""
    lowest = min(cells, key=lambda cell: cell.recall)
    slowest = max(cells, key=lambda cell: _to_exact(cell))
    lance = min(cells, key=lambda cell: cell.lance.seconds / cell.least_single.seconds)
    faiss = min(cells, key=lambda cell: cell.faiss.seconds / cell.least_batch.seconds)
    slower = max((slowest.batch, slowest.single), key=lambda timed: timed.ours / timed.exact)
    whole = f"a condition, {data.title}, the worst of {len(cells)} cells"
    return [
        Row(
            key=f"conditions-{data.name}-recall",
            what=f"{whole}: recall@10",
            ours=f"{lowest.recall:.4f}",
            theirs="–",
            measured=lowest.recall,
            least=RECALL,
            aim=RECALL,
            unit="",
            note=lowest.name,
        ),
        Row(
            key=f"conditions-{data.name}-exact",
            what=f"{whole}: time ÷ exact search of the rows allowed",
            ours=f"{slower.ours * 1e6:.0f} us",
            theirs=f"{slower.exact * 1e6:.0f} us",
            measured=_to_exact(slowest),
            least=DRIFT,
            aim=1.0,
            below=True,
            note=f"{slowest.name}; two runs of the same differ by a twentieth",
        ),
        Row(
            key=f"conditions-{data.name}-lance",
            what=f"{whole}: one query a call ÷ LanceDB (prefilter, scalar index)",
            ours=f"{1 / lance.least_single.seconds:,.0f}/s",
            theirs=f"{1 / lance.lance.seconds:,.0f}/s",
            measured=lance.lance.seconds / lance.least_single.seconds,
            least=10,
            aim=30,
            note=f"{lance.name}; each at its least setting in the cell: recall@10 "
            f"{lance.least_single.recall:.3f} ({lance.least_single.setting}) and "
            f"{lance.lance.recall:.3f} ({lance.lance.setting})",
        ),
        Row(
            key=f"conditions-{data.name}-faiss",
            what=f"{whole}: a batch ÷ faiss (IDSelectorBitmap)",
            ours=f"{1 / faiss.least_batch.seconds:,.0f}/s",
            theirs=f"{1 / faiss.faiss.seconds:,.0f}/s",
            measured=faiss.faiss.seconds / faiss.least_batch.seconds,
            least=1.0,
            aim=2.0,
            note=f"{faiss.name}; each at its least setting in the cell: recall@10 "
            f"{faiss.least_batch.recall:.3f} ({faiss.least_batch.setting}) and "
            f"{faiss.faiss.recall:.3f} ({faiss.faiss.setting})",
        ),
    ]


def _to_exact(cell: Cell) -> float:
    return max(timed.ours / timed.exact for timed in (cell.batch, cell.single))


def told(cell: Cell) -> str:
    """Tell all that was measured of a cell."""
    batch, single = (
        f"{timed.ours * 1e6:.0f} us (exact {timed.exact * 1e6:.0f}, unfiltered "
        f"{timed.unfiltered * 1e6:.0f})"
        for timed in (cell.batch, cell.single)
    )
    least = cell.least_batch
    return (
        f"{cell.name}: recall@10 {cell.recall:.4f}; in a batch {batch}, at the least width "
        f"{least.seconds * 1e6:.0f} us ({least.setting}, {least.recall:.3f}), faiss "
        f"{cell.faiss.seconds * 1e6:.0f} us ({cell.faiss.setting}, {cell.faiss.recall:.3f}); one "
        f"query a call {single}, at the least width {cell.least_single.seconds * 1e6:.0f} us, "
        f"LanceDB {cell.lance.seconds * 1e6:.0f} us ({cell.lance.setting}, "
        f"{cell.lance.recall:.3f})"
    )
