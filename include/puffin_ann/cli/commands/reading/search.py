"""`puffin-ann search`: the nearest rows of a vector."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.output import AsJson, TableName, print_json, say
from puffin_ann.cli.paths import named_path
from puffin_ann.cli.queries import vectors_of_file
from puffin_ann.cli.search_answers import (
    answers_in_json,
    show_answers,
    show_explanation,
    warn_of_answers,
    why_nothing,
)
from puffin_ann.errors import QueryError
from puffin_ann.settings import CacheMode, StalePolicy
from puffin_ann.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from puffin_ann.search.explain.explanation import Explanation
    from puffin_ann.search.explain.stages import Stage
    from puffin_ann.search.index import Index
    from puffin_ann.search.row_by_key import KeyedRow


def search(
    table: TableName,
    index: Annotated[str, typer.Argument(help="The index's name.")],
    vector: Annotated[
        Path | None,
        typer.Option(
            parser=named_path,
            metavar="FILE",
            help="File of one or more query vectors: .npy, or .json (list of numbers).",
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Take the vector of this row of the table, and leave the row itself out. "
            "May be given several times.",
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", help="Neighbours per query.  [default: 10]")
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            help="Instead of the k nearest, show every row at less than this distance "
            "(l2: Euclidean, cosine: 1 - cos, ip: negated inner product)."
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Show only rows that satisfy this: comparisons of columns with values, joined by "
            "and, or and not, such as \"price < 20 and category in ('tea', 'coffee')\".",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Columns of the table to show, separated by commas; may be given several times. "
            "[default: the key's, or the declared one; with --json none]",
        ),
    ] = None,
    snapshot: Annotated[
        int | None, typer.Option(help="Search the rows of this snapshot; default: the current.")
    ] = None,
    ref: Annotated[
        str | None,
        typer.Option(
            metavar="BRANCH_OR_TAG",
            help="Search the rows of the snapshot that this branch or tag names.",
        ),
    ] = None,
    exhaustive: Annotated[
        bool, typer.Option(help="Compare with every row instead of using the graph.")
    ] = False,
    width: Annotated[
        int | None,
        typer.Option(
            metavar="CANDIDATES",
            help="Candidates kept in the shard of a query's nearest partition, 1 to 1048576: more "
            "find more of the true neighbours, and take longer.  [default: what the build "
            "measured]",
        ),
    ] = None,
    probe_partitions: Annotated[
        int | None,
        typer.Option(
            metavar="PARTITIONS",
            help="Nearest partitions whose shards are searched, 1 or more, all if there are fewer; "
            "of an index of "
            "centroids, nearest data files compared.  [default: what the build measured; all that "
            "can matter]",
        ),
    ] = None,
    cache: Annotated[
        CacheMode | None,
        typer.Option(
            help="When shards are brought to local disk: full, before they answer; lazy, once they "
            "are asked often; none, never, if ranges of them can answer.  [default: "
            "PUFFIN_ANN_CACHE_MODE, lazy]",
        ),
    ] = None,
    allow_fewer: Annotated[
        bool,
        typer.Option(
            "--allow-fewer", help="Show the rows there are where they are fewer than asked for."
        ),
    ] = False,
    stale_policy: Annotated[
        StalePolicy,
        typer.Option(
            help="Whether rows that the index does not cover are compared one by one: scan, they "
            "are; warn, they are and it is told; fail, the search ends with an error instead.",
        ),
    ] = "scan",
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Tell how the search was answered, too: the version and why, what was read, how "
            "each shard was searched, and the time.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find the nearest rows of a vector from a file, or of a row of the table.

    Example: puffin-ann search demo.glove.words glove_words --key word=coffee --columns word

    Example: puffin-ann search demo.glove.words glove_words --key word=coffee --within 0.4

    Example: puffin-ann search demo.glove.words glove_words --key word=coffee --width 200

    Example: puffin-ann search demo.glove.words glove_words --key word=coffee --where "id < 9000"
    """
    from puffin_ann.search.explain.stages import Stages

    stages = Stages("load the program")
    from puffin_ann.search.open_index import open_index
    from puffin_ann.search.questions.checks import require_no_effort
    from puffin_ann.search.row_by_key import vector_of_row

    stages.enter("open the index")
    if (vector is None) == (not key):
        raise QueryError("give either --vector FILE or --key COLUMN=VALUE")
    if snapshot is not None and ref is not None:
        raise QueryError("give either --snapshot ID or --ref BRANCH_OR_TAG, not both")
    if exhaustive:
        require_no_effort(width, probe_partitions)
    _check_within(
        within,
        k=k,
        width=width,
        probe_partitions=probe_partitions,
        exhaustive=exhaustive,
        allow_fewer=allow_fewer,
    )
    k = 10 if k is None else k
    opened = open_index(table, index, snapshot, ref=ref, cache=cache, stale_policy=stale_policy)
    wanted = _names(columns or [])
    if not wanted and not as_json:
        wanted = _naming_rows(opened, key or [])
    stages.enter("read the queries")
    nearest = partial(
        opened.search,
        columns=wanted,
        exhaustive=exhaustive,
        width=width,
        probe_partitions=probe_partitions,
        where=where,
        explain=explain,
    )
    near = partial(
        opened.within, distance=within or 0.0, columns=wanted, where=where, explain=explain
    )
    looked_up = 0
    if vector is not None:
        queries = vectors_of_file(vector)
        labels = [str(number) for number in range(len(queries))]
        answers = nearest(queries, k, allow_fewer=allow_fewer) if within is None else near(queries)
    else:
        rows = [vector_of_row(opened, *_key(text)) for text in key or []]
        labels, looked_up = [row.label for row in rows], sum(row.bytes_read for row in rows)
        if within is None:
            answers = _search_keys(rows, k, nearest, where, allow_fewer=allow_fewer)
        else:
            answers = _keys_within(rows, near)
    told = _explanation(answers, stages.stages(), looked_up) if explain else None
    warn_of_answers(answers, table, index, stale_policy)
    if as_json:
        print_json(answers_in_json(answers, labels, told))
    elif len(answers):
        show_answers(answers, labels, wanted)
    else:
        say(why_nothing(answers, within, others=vector is None))
    if told is not None and not as_json:
        show_explanation(told)


def _check_within(within: float | None, **options: float | None) -> None:
    """Refuse what says how many rows to find, or how hard to look, where every row is asked for."""
    if within is None:
        return
    meant = {
        "k": "the nearest rows",
        "width": "how wide to search",
        "probe_partitions": "how far to search",
        "exhaustive": "how to find the nearest rows",
        "allow_fewer": "fewer rows than --k says",
    }
    for name, value in options.items():
        if value is not None and value is not False:
            raise QueryError(
                f"give either --{name.replace('_', '-')}, {meant[name]}, or --within, every row, "
                "not both"
            )


def _names(columns: list[str]) -> list[str]:
    return [name.strip() for name in ",".join(columns).split(",") if name.strip()]


def _naming_rows(opened: "Index", keys: list[str]) -> list[str]:
    """Return columns that tell people which rows are answered: those of keys, or the declared key.

    Empty if there is none: rows are told by where they are then.
    """
    from puffin_ann.declaration import known_declarations
    from puffin_ann.lake.catalog.tables import name_of

    if keys:
        return list(dict.fromkeys(_key(text)[0] for text in keys))
    known = known_declarations()
    declared = known.on(name_of(opened.table)) if known else []
    there = {field.name for field in opened.view.schema(opened.table).fields}
    return [
        found.key
        for found in declared
        if found.name == opened.name and found.key is not None and found.key in there
    ]


def _search_keys(
    rows: list["KeyedRow"],
    k: int,
    nearest: Callable[..., "pa.Table"],
    where: str | None,
    *,
    allow_fewer: bool,
) -> "pa.Table":
    """Search for rows of the table, each row itself left out of its answers."""
    import numpy as np

    from puffin_ann.lake.read.conditions.text import quoted
    from puffin_ann.search.row_by_key import without_themselves

    vectors = np.stack([row.vector for row in rows])
    answers = nearest(vectors, k if k < 1 else k + 1, allow_fewer=True)
    others, taken = without_themselves(rows, answers, k)
    if min(taken) < k and not allow_fewer:
        least = min(taken)
        there = f"only {counted(least, 'other live row')}" if least else "no other live rows"
        raise QueryError(
            f"k is {k}, but {there} can be answered"
            + (f" under the condition {quoted(where)}" if where else "")
            + ("; --allow-fewer shows those there are" if any(taken) else "")
        )
    return others


def _keys_within(rows: list["KeyedRow"], near: Callable[..., "pa.Table"]) -> "pa.Table":
    """Find every row nearer than a distance to rows of the table, each row itself left out."""
    import numpy as np

    from puffin_ann.search.row_by_key import without_themselves

    others, _ = without_themselves(rows, near(np.stack([row.vector for row in rows])))
    return others


def _key(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise QueryError(f"--key {text!r}: expected COLUMN=VALUE, for example word=coffee")
    return name, value


def _explanation(answers: "pa.Table", stages: Sequence["Stage"], looked_up: int) -> "Explanation":
    """Return how answers were found, with all that the command did until then.

    Args:
        answers: that were found.
        stages: of the command.
        looked_up: bytes that were read to find the rows that keys name.
    """
    from puffin_ann.search.explain.explanation import explanation_of

    told = explanation_of(answers)
    *before, last = stages  # the search itself was made in the last
    before.append(replace(last, seconds=last.seconds - told.seconds))
    seconds = sum(stage.seconds for stage in stages)
    return replace(
        told,
        opening_seconds=None,
        bytes_read={"rows that keys name, of the table": looked_up, **told.bytes_read},
        stages=(*before, *told.stages),
        seconds=seconds,
    )
