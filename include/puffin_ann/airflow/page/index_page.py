"""The page of one index: what it is made of, what has happened, what is due, what one may start."""

from collections.abc import Sequence
from urllib.parse import quote

import yaml

from puffin_ann.airflow.dag_ids import APPROVE, Kind
from puffin_ann.airflow.page import charts, figures
from puffin_ann.airflow.page.cards import card
from puffin_ann.airflow.page.database import Run, Stage
from puffin_ann.airflow.page.markup import Content, Markup, element, joined, page
from puffin_ann.airflow.page.over_time import figure_cards, table_card
from puffin_ann.airflow.page.overview_page import badge, dag_link, logs, outcome, run_address
from puffin_ann.airflow.page.rows import Row
from puffin_ann.airflow.state.document import StateDocument
from puffin_ann.lifecycle.report.overview import IndexOverview

Runs = Sequence[tuple[Run, tuple[Stage, ...]]]

ACTS: dict[Kind, tuple[str, str]] = {
    "build": ("Build", "The whole index is built again, if the declaration or the table asks for "
              "it, and published. A run waits for other runs on the index."),
    "refresh": ("Refresh", "What has changed in the table is brought into the index. A run ends at "
                "once where too little has changed."),
    "evaluate": ("Evaluate", "The recall of the published index is measured against every row of "
                 "one snapshot. Nothing is changed."),
    "maintain": ("Maintain", "Files are made safe, merges and rebuilds that are due are done, and "
                 "what no version needs any more is removed."),
}  # fmt: skip
FORCED = ("build", "refresh", "maintain")


def index_page(row: Row, runs: Runs, startable: Sequence[Kind], now_ms: int) -> str:
    """Return the page of one index.

    Args:
        row: the index.
        runs: the newest runs of its DAGs.
        startable: kinds of runs that the user may start.
        now_ms: milliseconds since 1970.
    """
    document = row.document
    found = document.overview if document else None
    cards: list[Content] = []
    if document is not None and found is not None:
        cards += [*figure_cards(document, found), table_card(document.trend)]
        cards += [_shards(found, now_ms), _next(found), _health(found)]
    cards.append(_runs(runs, now_ms))
    if found is not None:
        cards += [_versions(found, now_ms), _query(row, found) if startable else None]
        cards.append(_declaration(found))
    links = [dag_link(dag.dag_id, dag.dag_id) for dag in row.dags.values()]
    return page(
        f"{row.index} – vector index",
        element(
            "main",
            element("p", element("a", "← all indexes", href="./"), class_="crumb"),
            element("div", element("h1", row.index), badge(row), class_="head", data_live="head"),
            element(
                "div",
                element("p", f"{row.table} · ", _age(document, now_ms)),
                _why(row),
                _asking(row),
                class_="words",
                data_live="words",
            ),
            _acts(row, startable),
            element("div", *cards, class_="cards"),
            element("p", "DAGs: ", *_listed(links), class_="words") if links else None,
            _dialog(),
            data_at_work=bool(row.running),
        ),
        styles=("uPlot.min.css",),
        scripts=("uPlot.iife.min.js", "charts.js"),
    )


def _age(document: StateDocument | None, now_ms: int) -> str:
    if document is None:
        return "not looked at yet"
    if document.found_ms is None or document.found_ms == document.looked_ms:
        return f"looked at {figures.ago(document.looked_ms, now_ms)}"
    return (
        f"figures of {figures.ago(document.found_ms, now_ms)}, "
        f"looked for {figures.ago(document.looked_ms, now_ms)}"
    )


def _why(row: Row) -> Markup:
    """Say why the index is in its state, with the logs of what failed, which say what to do."""
    is_bad = row.state in ("failing", "unreachable")
    links = [joined(" ", log) for log in logs(row)]
    return element("p", row.words, *links, class_="why" if is_bad else None)


def _listed(parts: Sequence[Markup]) -> list[Content]:
    spaced: list[Content] = []
    for part in parts:
        spaced += [", " if spaced else None, part]
    return spaced


def _asking(row: Row) -> Markup | None:
    if not row.asking:
        return None
    run = row.asking[0]
    at = f"{run_address(run.dag_id, run.run_id)}/tasks/{APPROVE}/required_actions"
    link = element("a", "see why, and decide", href=at, data_airflow=True)
    return element("p", "A build waits for approval: ", link, role="status")


def _acts(row: Row, startable: Sequence[Kind]) -> Markup | None:
    if not startable:
        return None
    buttons = [
        element(
            "button",
            ACTS[kind][0],
            type="button",
            data_dag=row.dags[kind].dag_id,
            data_index=row.index,
            data_words=ACTS[kind][1]
            + (" Its DAG is paused: the run waits until it is not." if paused else ""),
            data_force=kind in FORCED,
        )
        for kind in ACTS
        if kind in startable
        for paused in [row.dags[kind].is_paused]
    ]
    told = element("p", id="told", class_="told", role="status", tabindex=-1)
    return element("div", *buttons, told, class_="acts")


def _dialog() -> Markup:
    force = element(
        "label",
        element("input", type="checkbox", id="force"),
        " even if nothing is due",
    )
    return element(
        "dialog",
        element("h2", id="confirm-title"),
        element("p", id="confirm-words"),
        element("p", force, id="force-line"),
        element(
            "div",
            element("button", "Cancel", type="button", id="cancel"),
            element("button", "Start the run", type="button", id="go", class_="go"),
            class_="buttons",
        ),
        id="confirm",
        aria_labelledby="confirm-title",
        aria_describedby="confirm-words",
    )


def _shards(found: IndexOverview, now_ms: int) -> Markup:
    ages = [figures.ago(shard.at_ms, now_ms) for shard in found.shards]
    told = f"{found.algorithm}, {found.metric}, {found.dimension} dimensions; "
    told += f"{figures.count(found.figures.rows)} rows answer, "
    told += f"{figures.count(found.tombstones)} are dead"
    if found.shard_count > len(found.shards):
        told += f"; the largest {len(found.shards)} of {found.shard_count}"
    skipped = [f"{figures.count(number)} {why}" for why, number in sorted(found.skipped.items())]
    return card(
        "Shards and deltas",
        element("p", told),
        element("p", f"skipped vectors: {', '.join(skipped) or 'none'}"),
        element("div", charts.shard_picture(found.shards, ages)) if found.shards else None,
        width="wide",
    )


def _next(found: IndexOverview) -> Markup:
    due = found.next_run
    if due is None:
        return card("The next refresh", element("p", "What it would do could not be told."))
    costs = element(
        "dl",
        *_pairs(
            ("does", due.action),
            ("writes", figures.size(due.bytes_written)),
            ("carries over", figures.size(due.bytes_copied)),
            ("works for", figures.duration(due.seconds)),
        ),
    )
    return card("The next refresh", element("p", due.reason), costs)


def _health(found: IndexOverview) -> Markup:
    problems = [
        element(
            "li",
            element("b", finding.kind),
            f": {finding.what} ",
            element("small", finding.remedy) if finding.remedy else None,
        )
        for finding in found.findings
    ]
    removable = (
        f"A clean-up of the table would remove {figures.count(found.removable)} things and free "
        f"{figures.size(found.removable_bytes)}."
        if found.removable
        else "A clean-up of the table would free nothing now."
    )
    return card(
        "Health",
        element("ul", *problems) if problems else element("p", "The doctor finds nothing."),
        element("p", removable),
        *(element("p", note) for note in found.notes),
    )


def _runs(runs: Runs, now_ms: int) -> Markup:
    if not runs:
        return card("Runs", element("p", "None yet.", class_="nothing"), width="wide")
    lines = [
        element(
            "tr",
            element("th", run.dag_id.removeprefix("ann_").split("_")[0], scope="row"),
            element(
                "td", outcome(run, now_ms), element("small", run.reason) if run.reason else None
            ),
            element("td", _took(run), class_="number"),
            element("td", *_listed([_stage(run, stage) for stage in stages]), class_="stages"),
        )
        for run, stages in runs
    ]
    heads = [
        element("th", name, scope="col", class_="number" if name == "took" else None)
        for name in ("run", "outcome", "took", "stages")
    ]
    table = element(
        "table",
        element("caption", "The newest runs", class_="unseen"),
        element("thead", element("tr", *heads)),
        element("tbody", *lines),
    )
    region = element("div", table, class_="scroll", role="region", tabindex=0, aria_label="Runs")
    return card("Runs", element("div", region, data_live="runs"), width="wide")


def _stage(run: Run, stage: Stage) -> Markup:
    """Return a link to a task of a run, where its log is."""
    words = f"{stage.task_id} {figures.duration(stage.seconds)}"
    if stage.state not in ("success", "none"):
        words = f"{words} ({stage.state})"
    at = f"{run_address(run.dag_id, run.run_id)}/tasks/{quote(stage.task_id)}"
    return element("a", words, href=at, data_airflow=True)


def _took(run: Run) -> str:
    if run.began_ms is None or run.ended_ms is None:
        return figures.NOTHING
    return figures.duration((run.ended_ms - run.began_ms) / 1000)


def _versions(found: IndexOverview, now_ms: int) -> Markup:
    ages = [figures.ago(version.at_ms, now_ms) for version in found.versions]
    shown = charts.version_picture(found.versions, ages) if ages else element("p", "None.")
    return card("Versions that can be searched", shown)


def _query(row: Row, found: IndexOverview) -> Markup | None:
    if found.key is None:
        return None
    form = element(
        "form",
        element("input", type="hidden", name="of", value=row.reference),
        element(
            "label",
            element("span", f"Value of {found.key}", class_="unseen"),
            element("input", type="text", name="key", required=True, placeholder=found.key),
        ),
        element(
            "label",
            element("span", "Condition that answers satisfy", class_="unseen"),
            element("input", type="text", name="where", placeholder="among rows where …"),
        ),
        element("button", "Nearest rows", type="submit"),
        id="query",
    )
    result = element("div", id="neighbours", role="status", aria_live="polite")
    return card("Search by a row's key", form, result)


def _declaration(found: IndexOverview) -> Markup:
    text = yaml.safe_dump(found.declaration, sort_keys=False, allow_unicode=True)
    shown = element("pre", text, tabindex=0) if found.declaration else element("p", "not kept")
    return card("The declaration it was built by", shown, width="wide")


def _pairs(*pairs: tuple[str, str]) -> list[Content]:
    return [joined(element("dt", name), element("dd", value)) for name, value in pairs]
