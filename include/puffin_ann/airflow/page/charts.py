"""Pictures of figures, as SVG without styles of their own: the style sheet colours them."""

from collections.abc import Sequence

from puffin_ann.airflow.page.figures import count, size
from puffin_ann.airflow.page.markup import Markup, element
from puffin_ann.lifecycle.report.overview import ShardOverview

SPARK_WIDTH, SPARK_HEIGHT = 72, 20
CHART_WIDTH, CHART_HEIGHT = 320, 96
SHARD_WIDTH, BAR, GAP = 640, 14, 6


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

    def y(value: float) -> float:
        return round(height / 2 - (value - middle) / spread * (height - 2 * edge), 1)

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


def shard_picture(shards: Sequence[ShardOverview], ages: Sequence[str]) -> Markup:
    """Return a bar for each shard and delta: as long as it has rows, its dead rows at the end.

    Args:
        shards: the largest first.
        ages: how old each is, in words.
    """
    most = max((shard.rows for shard in shards), default=0) or 1
    label, room = 92, SHARD_WIDTH - 92 - 290
    parts = []
    for number, (shard, age) in enumerate(zip(shards, ages, strict=True)):
        top = number * (BAR + GAP)
        long = max(2.0, shard.rows / most * room)
        dead = shard.tombstones / shard.rows * long if shard.rows else 0.0
        name = f"{'delta' if shard.kind == 'delta' else 'shard'} {shard.shard_id}"
        told = f"{count(shard.rows)} rows, {size(shard.bytes)}"
        more = f", {count(shard.tombstones)} dead" if shard.tombstones else ""
        parts.append(
            element(
                "g",
                element("title", f"{name}: {told}{more}, {age}"),
                element("text", name, x=0, y=top + 11, class_="name"),
                element(
                    "rect",
                    x=label,
                    y=top,
                    width=round(long, 1),
                    height=BAR,
                    rx=3,
                    class_="delta" if shard.kind == "delta" else "graph",
                ),
                element(
                    "rect",
                    x=round(label + long - dead, 1),
                    y=top,
                    width=round(dead, 1),
                    height=BAR,
                    class_="dead",
                )
                if dead
                else None,
                element(
                    "text",
                    f"{told}{more} · {age}",
                    x=round(label + long + 8, 1),
                    y=top + 11,
                    class_="told",
                ),
            )
        )
    height = len(shards) * (BAR + GAP)
    return element(
        "svg",
        *parts,
        class_="shards",
        role="img",
        aria_label="Rows of each shard and delta, dead rows among them",
        viewBox=f"0 0 {SHARD_WIDTH} {height}",
    )
