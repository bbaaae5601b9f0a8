"""What is kept of an index between two looks at it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from puffin_ann.declaration import IndexDeclaration, seconds_of
from puffin_ann.lifecycle.report.overview import IndexOverview

SCHEMA = 1
"""A document of another schema is not read; the next look writes a new one."""

MOST_BYTES = 32 << 10
"""Of a document. Airflow's databases take more; a page of 200 indexes reads all of them."""

MOST_POINTS = 96
POINT_MS = 15 * 60 * 1000
"""Between two points of a trend, unless another version was published: the ring holds a day."""

Outcome = Literal["found", "not_built", "problem", "unreachable", "orphaned"]


class Point(BaseModel):
    """An index at one moment: a point of its trend."""

    model_config = ConfigDict(frozen=True)

    at_ms: int
    run_id: str
    recall: float | None
    lag_seconds: float
    coverage: float
    bytes: int


class Limits(BaseModel):
    """What the declaration asks for."""

    model_config = ConfigDict(frozen=True)

    recall_target: float
    max_lag_seconds: int
    min_coverage: float

    @classmethod
    def of(cls, declaration: IndexDeclaration) -> "Limits":
        """Return what a declaration asks for."""
        return cls(
            recall_target=declaration.recall_target,
            max_lag_seconds=seconds_of(declaration.refresh.max_lag),
            min_coverage=declaration.refresh.min_coverage,
        )


class StateDocument(BaseModel):
    """How an index stands.

    Attributes:
        index: its name.
        table: `catalog.namespace.table`.
        outcome: of the last look: `problem` is one that the table or the index has, `unreachable`
            one of the catalog or the store, `orphaned` an index that nothing declares.
        looked_ms: when it was last looked at, milliseconds since 1970.
        problem: what the last look failed by.
        overview: as it was last found.
        found_ms: when that was.
        trend: the last points, the newest at the end.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: int = SCHEMA
    index: str
    table: str
    outcome: Outcome
    looked_ms: int
    problem: str = ""
    limits: Limits | None = None
    overview: IndexOverview | None = None
    found_ms: int | None = None
    trend: tuple[Point, ...] = ()

    def after(self, earlier: "StateDocument | None") -> "StateDocument":
        """Return this document with what an earlier one knows of the time before."""
        if earlier is None or earlier.table != self.table:
            return self.model_copy(update={"trend": _with(self, ())})
        known = {}
        if self.overview is None and self.outcome == "unreachable":
            known = {"overview": earlier.overview, "found_ms": earlier.found_ms}
        return self.model_copy(update={**known, "trend": _with(self, earlier.trend)})

    def as_text(self) -> str:
        """Return it as JSON of at most `MOST_BYTES`; details go first."""
        document = self
        for leave_out in _LEFT_OUT:
            text = document.model_dump_json()
            if len(text.encode()) <= MOST_BYTES:
                return text
            if document.overview is not None:
                smaller = document.overview.model_copy(update=leave_out)
                document = document.model_copy(update={"overview": smaller})
        return document.model_copy(update={"overview": None, "trend": ()}).model_dump_json()


_LEFT_OUT: tuple[dict[str, object], ...] = (
    {"declaration": {}},
    {"findings": (), "runs": ()},
    {"shards": (), "versions": ()},
    {},
)


def _with(document: StateDocument, earlier: tuple[Point, ...]) -> tuple[Point, ...]:
    found = document.overview
    if found is None:
        return earlier
    figures = found.figures
    last = earlier[-1] if earlier else None
    if (
        last is not None
        and last.run_id == figures.run_id
        and document.looked_ms - last.at_ms < POINT_MS
    ):
        return earlier
    point = Point(
        at_ms=document.looked_ms,
        run_id=figures.run_id,
        recall=found.evaluated_recall if found.evaluated_recall is not None else figures.recall,
        lag_seconds=figures.lag_seconds,
        coverage=figures.coverage,
        bytes=found.all_bytes,
    )
    return (*earlier, point)[-MOST_POINTS:]
