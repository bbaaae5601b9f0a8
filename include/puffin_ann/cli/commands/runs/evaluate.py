"""`puffin-ann evaluate`: the recall of a published index, measured by brute force."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as Grid

from puffin_ann.cli.declarations import DeclaredIndex, find_declared
from puffin_ann.cli.lease_options import own_run_id
from puffin_ann.cli.output import AsJson, console, print_json
from puffin_ann.cli.paths import named_path
from puffin_ann.cli.queries import vectors_of_file
from puffin_ann.cli.spark_session import Master, on_spark, require_pyspark
from puffin_ann.errors import QueryError

if TYPE_CHECKING:
    from puffin_ann.declaration import IndexDeclaration


def evaluate(
    index: DeclaredIndex,
    master: Master = "local[*]",
    queries: Annotated[
        int | None,
        typer.Option(min=10, max=10_000, help="Rows that serve as queries; default: as declared."),
    ] = None,
    vector: Annotated[
        Path | None,
        typer.Option(
            parser=named_path,
            metavar="FILE",
            help="Measure with query vectors of your own, .npy or .json, instead of rows: in this "
            "process, without Spark, and not recorded.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the recall of a published index on the table as it is, and record it.

    Exits with code 5 if it is under the declared target.

    Example: puffin-ann evaluate glove_words

    Example: puffin-ann evaluate glove_words --queries 1000
    """
    declaration = find_declared(index)
    if vector is not None:
        if queries is not None:
            raise QueryError("give either --queries N, rows of the table, or --vector FILE")
        _evaluate_own(declaration, vector, as_json)
        return
    _evaluate_rows(declaration, master, queries, as_json)


def _evaluate_rows(
    declaration: "IndexDeclaration", master: str, queries: int | None, as_json: bool
) -> None:
    from puffin_ann.lifecycle.evaluate import records as evaluations
    from puffin_ann.lifecycle.evaluate.stages import evaluate as measure
    from puffin_ann.lifecycle.runs import evaluate

    require_pyspark()
    run = evaluate.plan_evaluation(declaration, run_id=own_run_id(), queries=queries)
    with on_spark(declaration, master) as runner:
        found = measure(runner, run)
    if as_json:
        print_json(found.model_dump())
    evaluate.clear_staging(run)
    text = evaluations.recall_report(found)
    if not as_json:
        console.print(text, highlight=False)


def _evaluate_own(declaration: "IndexDeclaration", vector: Path, as_json: bool) -> None:
    from puffin_ann.lifecycle.evaluate.user_queries import describe_searches, try_searches
    from puffin_ann.search.open_index import open_index

    opened = open_index(declaration.table, declaration.name, cache="full")
    k, target = declaration.gate.k, declaration.recall_target
    tried = try_searches(opened, vectors_of_file(vector), k, target=target)
    if as_json:
        searches = [{**vars(attempt), "measure": vars(attempt.measure)} for attempt in tried]
        print_json({"index": declaration.name, "k": k, "target": target, "searches": searches})
    elif len(tried) > 1:
        grid = Grid()
        for name in ("width", "partitions", f"recall@{k}", "95 % interval"):
            grid.add_column(name, justify="right")
        for attempt in tried:
            measure = attempt.measure
            interval = f"{measure.low:.4f} – {measure.high:.4f}"
            grid.add_row(
                f"{attempt.width:,}",
                f"{attempt.probe_partitions:,}",
                f"{measure.recall:.4f}",
                interval,
            )
        console.print(grid)
    text = describe_searches(opened, k, target, tried)
    if not as_json:
        console.print(text, highlight=False)
