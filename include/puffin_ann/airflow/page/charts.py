"""Pictures of figures, as SVG without styles of their own: the style sheet colours them."""

from collections.abc import Sequence
from dataclasses import dataclass

from puffin_ann.airflow.page.figures import count, share, size
from puffin_ann.airflow.page.markup import Markup, element
from puffin_ann.lifecycle.report.overview import ShardOverview, VersionOverview

SPARK_WIDTH, SPARK_HEIGHT = 72, 20
CHART_WIDTH, CHART_HEIGHT = 320, 96
BARS_WIDTH, THICKNESS, GAP = 640, 14, 6


def sparkline(values: Sequence[float | None], label: str, limit: float | None = None) -> Markup:
    """Return a small line of values over time, with a limit as a dashed one."""
    return _line(values, label, limit, SPARK_WIDTH, SPARK_HEIGHT, "spark")


def chart(values: Sequence[float | None], label: str, limit: float | None = None) -> Markup:
    """Return a line of values over time, as wide as a card."""
    return _line(values, label, limit, CHART_WIDTH, CHART_HEIGHT, "chart")


def _line(
    values: Sequence[float | None],
    label: str,
    limit: float | None,
    width: int,
    height: int,
    name: str,
) -> Markup:
    known = [value for value in values if value is not None]
    if not known:
        return element("span", "–", class_="nothing")
    shown = [*known, *([limit] if limit is not None else [])]
    low, high = min(shown), max(shown)
    spread = (high - low) or max(abs(high), 1e-9)
    middle = (high + low) / 2
    edge = 3.0
    scale = (height - 2 * edge) / spread

    def y(value: float) -> float:
        return round(height / 2 - (value - middle) * scale, 1)

    step = (width - 2 * edge) / max(len(values) - 1, 1)
    places = [
        (round(edge + step * number, 1), y(value))
        for number, value in enumerate(values)
        if value is not None
    ]
    parts = []
    if limit is not None:
        at = y(limit)
        parts.append(element("line", x1=edge, x2=width - edge, y1=at, y2=at, class_="limit"))
    if len(places) > 1:
        path = " ".join(f"{x},{at}" for x, at in places)
        parts.append(element("polyline", points=path, class_="line"))
    last_x, last_y = places[-1]
    parts.append(element("circle", cx=last_x, cy=last_y, r=2.2, class_="last"))
    return element(
        "svg",
        element("title", label),
        *parts,
        class_=name,
        role="img",
        viewBox=f"0 0 {width} {height}",
        width=width if name == "spark" else None,
        height=height if name == "spark" else None,
        aria_label=label,
    )


@dataclass(frozen=True)
class Bar:
    """A bar with words at its end.

    Attributes:
        name: before it.
        rows: it is as long as they are many.
        told: behind it.
        kind: class that the style sheet colours.
        dead: rows at its end that no search answers.
        more: what is told besides where one points at it.
    """

    name: str
    rows: int
    told: str
    kind: str = "graph"
    dead: int = 0
    more: str = ""


def shard_picture(shards: Sequence[ShardOverview], ages: Sequence[str]) -> Markup:
    """Return a bar for each shard and delta: as long as it has rows, its dead rows at the end.

    Args:
        shards: the largest first.
        ages: how old each is, in words.
    """
    bars = [
        Bar(
            name=f"{'delta' if shard.kind == 'delta' else 'shard'} {shard.shard_id}",
            rows=shard.rows,
            told=f"{count(shard.rows)} rows, {size(shard.bytes)}"
            + (f", {count(shard.tombstones)} dead" if shard.tombstones else "")
            + f" · {age}",
            kind="delta" if shard.kind == "delta" else "graph",
            dead=shard.tombstones,
        )
        for shard, age in zip(shards, ages, strict=True)
    ]
    return _bars(bars, "Rows of each shard and delta, dead rows among them")


def version_picture(versions: Sequence[VersionOverview], ages: Sequence[str]) -> Markup:
    """Return a bar for each version that can be searched: as long as it has rows.

    Args:
        versions: the newest first.
        ages: how old each is, in words.
    """
    bars = [
        Bar(
            name=age,
            rows=version.rows,
            told=f"{count(version.rows)} rows, covers {share(version.coverage)}"
            + (f", {size(version.bytes_written)} new" if version.bytes_written else ""),
            more=f" by run {version.run_id}",
        )
        for version, age in zip(versions, ages, strict=True)
    ]
    return _bars(bars, "Rows of each version that can be searched")


def _bars(bars: Sequence[Bar], label: str) -> Markup:
    most = max((bar.rows for bar in bars), default=0) or 1
    start, room = 92, BARS_WIDTH - 92 - 290
    parts = []
    for number, bar in enumerate(bars):
        top = number * (THICKNESS + GAP)
        long = max(2.0, bar.rows / most * room)
        dead = bar.dead / bar.rows * long if bar.rows else 0.0
        end = start + long
        parts.append(
            element(
                "g",
                element("title", f"{bar.name}: {bar.told}{bar.more}"),
                element("text", bar.name, x=0, y=top + 11, class_="name"),
                _rect(start, top, long, bar.kind, rx=3),
                _rect(end - dead, top, dead, "dead") if dead else None,
                element("text", bar.told, x=round(end + 8, 1), y=top + 11, class_="told"),
            )
        )
    return element(
        "svg",
        *parts,
        class_="bars",
        role="img",
        aria_label=label,
        viewBox=f"0 0 {BARS_WIDTH} {len(bars) * (THICKNESS + GAP)}",
    )


def _rect(x: float, y: int, width: float, kind: str, rx: int | None = None) -> Markup:
    return element(
        "rect", x=round(x, 1), y=y, width=round(width, 1), height=THICKNESS, rx=rx, class_=kind
    )
