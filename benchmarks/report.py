"""docs/benchmarks.md and its pictures, from the results that were kept."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.data import FILES, ROOT, TITLES
from benchmarks.results import Plot, Result, Row

DOCUMENT = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
HERE = Path(__file__).parent
COLORS = ("#d1495b", "#30638e", "#edae49", "#66a182")


def write(
    results: Sequence[Result], document: Path = DOCUMENT, families: Iterable[str] = ()
) -> None:
    """Write a document; `DOCUMENT` has pictures, those of other machines have none.

    Args:
        results: of the families that were measured.
        document: to write.
        families: all there are: those without a result are named, too.
    """
    has_curves = document.resolve() == DOCUMENT
    if has_curves:
        IMAGES.mkdir(parents=True, exist_ok=True)
        for result in results:
            # Curves of pictures that are there are not kept with the figures.
            for plot in (plot for plot in result.plots if plot.curves):
                draw(plot, IMAGES / f"{plot.key}.svg")
    document.write_text(render(results, families, has_curves=has_curves))


def render(
    results: Sequence[Result], families: Iterable[str] = (), *, has_curves: bool = True
) -> str:
    """Return the document's text; see `write`."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, of our own figures and texts
    )
    environment.filters["figure"] = figure
    environment.filters["bound"] = bound
    reasons = yaml.safe_load((HERE / "shortfalls.yaml").read_text()) or {}
    return environment.get_template("benchmarks.md.jinja").render(
        results=results,
        has_curves=has_curves,
        files=FILES,
        titles=TITLES,
        families=", ".join(result.family for result in results),
        machine=next((result.machine for result in results if result.machine), {}),
        tuned=yaml.safe_load((HERE / "tuned.yaml").read_text()),
        short=[(row, reason(row, reasons)) for row in _short(results)],
        reached=sum(row.reached for result in results for row in result.rows),
        rows=sum(len(result.rows) for result in results),
        days=_days(results),
        unmeasured=[name for name in families if name not in {one.family for one in results}],
        minutes=round(sum(result.seconds for result in results) / 60),
    )


def _days(results: Iterable[Result]) -> dict[str, list[str]]:
    """Return by day and processor the families that were measured then and there, latest first."""
    days: dict[str, list[str]] = {}
    for result in sorted(results, key=lambda result: result.measured_on, reverse=True):
        processor = result.machine.get("processor", "a processor that is not known")
        days.setdefault(f"{result.measured_on}, {processor}", []).append(result.family)
    return days


def _short(results: Iterable[Result]) -> list[Row]:
    return [row for result in results for row in result.rows if not row.reached]


def reason(row: Row, reasons: dict[str, str]) -> str:
    """Return why a line falls short: by the longest key that its own begins with."""
    keys = [key for key in reasons if row.key.startswith(key)]
    return reasons[max(keys, key=len)].strip() if keys else "Not looked into yet."


def figure(row: Row) -> str:
    """Return what was measured, with its unit."""
    if row.measured is None:
        return "–"
    text = f"{row.measured:.3f}" if abs(row.measured) < 0.1 else f"{row.measured:.2f}"
    return text if row.unit == "×" else f"{text} {row.unit}"


def bound(row: Row, name: str) -> str:
    """Return a bound, with the side that is good."""
    value = row.least if name == "least" else row.aim
    return f"{'≤' if row.below else '≥'} {value:g}"


def draw(plot: Plot, path: Path) -> None:
    """Draw recall against queries per second; the same curves give the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    settings = {"svg.hashsalt": plot.key, "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        canvas, axes = pyplot.subplots(figsize=(5.6, 3.4))
        for (name, points), color in zip(plot.curves.items(), COLORS, strict=False):
            shown = [(recall, rate) for recall, rate in points if recall >= 0.8]
            axes.plot(*zip(*shown, strict=True), marker=".", label=name, color=color)
        axes.set(title=plot.title, xlabel="recall@10", ylabel="queries per second, one thread")
        axes.set_yscale("log")
        axes.grid(which="both", alpha=0.25)
        axes.legend()
        canvas.tight_layout()
        canvas.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(canvas)
