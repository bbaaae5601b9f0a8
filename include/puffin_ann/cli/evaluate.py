"""`puffin-ann evaluate`: the recall of a published index, measured by brute force."""

from typing import Annotated

import typer

from puffin_ann.cli.declared import DeclaredIndex, find_declared
from puffin_ann.cli.output import AsJson, console, print_json
from puffin_ann.cli.spark import Master, on_spark, require_pyspark
from puffin_ann.cli.waiting import own_run_id


def evaluate(
    index: DeclaredIndex,
    master: Master = "local[*]",
    queries: Annotated[
        int | None,
        typer.Option(min=10, max=10_000, help="Rows that serve as queries; default: as declared."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the recall of a published index on the table as it is, and record it.

    Leaves with exit code 5 if it is under the declared target.

    Example: puffin-ann evaluate glove_words
    """
    from puffin_ann.lifecycle import evaluate as evaluations
    from puffin_ann.lifecycle.evaluate_stages import evaluate as measure

    declaration = find_declared(index)
    require_pyspark()
    planned = evaluations.plan_evaluation(declaration, run_id=own_run_id(), queries=queries)
    with on_spark(declaration, master) as runner:
        found = measure(runner, planned["table"], planned["plan"])
    if as_json:
        print_json(found.model_dump())
    evaluations.clear(planned["table"], planned["plan"])
    text = evaluations.judged(found)
    if not as_json:
        console.print(text, highlight=False)
