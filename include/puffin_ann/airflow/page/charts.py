"""Small pictures, as SVG without styles of their own: the style sheet colours them.

The lines in a list of 200 indexes are SVG, too: a browser draws them ten times as fast as uPlot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from puffin_ann.airflow.page.figures import count, share, size
from puffin_ann.airflow.page.markup import Markup, element
from puffin_ann.lifecycle.report.overview import ShardOverview, VersionOverview

SPARK_WIDTH, SPARK_HEIGHT, EDGE = 72, 20, 3
BARS_WIDTH, THICKNESS, GAP = 640, 14, 6


def sparkline(values: Sequence[float | None], label: str, limit: float | None = None) -> Markup:
    """Return a small line of values over time, with a limit as a dashed one."""
    known = [value for value in values if value is not None]
    if not known:
        return element("span", "–", class_="nothing")
    shown = [*known, *([limit] if limit is not None else [])]
    low, high = min(shown), max(shown)
    spread = (high - low) or max(abs(high), 1e-9)
    middle = (high + low) / 2
    scale = (SPARK_HEIGHT - 2 * EDGE) / spread
    zero = SPARK_HEIGHT / 2 + middle * scale
    places = [
        f"{x},{zero - value * scale:.1f}"
        for x, value in zip(_steps(len(values)), values, strict=True)
        if value is not None
    ]
    parts = []
    if limit is not None:
        at = f"{zero - limit * scale:.1f}"
        parts.append(element("line", x1=EDGE, x2=SPARK_WIDTH - EDGE, y1=at, y2=at, class_="limit"))
    if len(places) > 1:
        parts.append(element("polyline", points=" ".join(places), class_="line"))
    last_x, last_y = places[-1].split(",")
    parts.append(element("circle", cx=last_x, cy=last_y, r=2.2, class_="last"))
    return element(
        "svg",
        element("title", label),
        *parts,
        class_="spark",
        role="img",
        viewBox=f"0 0 {SPARK_WIDTH} {SPARK_HEIGHT}",
        width=SPARK_WIDTH,
        height=SPARK_HEIGHT,
        aria_label=label,
    )


@lru_cache(maxsize=128)
def _steps(count: int) -> tuple[str, ...]:
    """Return the places of so many values from left to right."""
    step = (SPARK_WIDTH - 2 * EDGE) / max(count - 1, 1)
    return tuple(f"{EDGE + step * number:.1f}" for number in range(count))


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
