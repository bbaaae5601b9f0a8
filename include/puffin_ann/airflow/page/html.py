"""The HTML of the page of indexes; every text in it is escaped."""

from collections.abc import Iterable
from html import escape

from puffin_ann.airflow.page.rows import Row

STYLE = """
:root { color-scheme: light dark; font: 14px/1.5 system-ui, sans-serif; }
table { border-collapse: collapse; }
caption { text-align: left; padding: 0 0 .8em; font-size: 1.3em; }
th, td { text-align: left; vertical-align: top; padding: .4em 1.2em .4em 0; }
tr { border-bottom: 1px solid #8884; }
.number { text-align: right; white-space: nowrap; }
"""
COLUMNS = (
    "index",
    "table",
    "state",
    "vectors",
    "in deltas",
    "tombstones",
    "coverage",
    "recall",
    "MB",
    "published",
    "DAG",
)
NUMBERS = {"vectors", "in deltas", "tombstones", "coverage", "recall", "MB"}


def page_of(rows: Iterable[Row], nothing: str = "No index that you may see is declared.") -> str:
    """Return the page that shows rows; where there are none, it says `nothing`."""
    head = "".join(f"<th{_class(name)}>{escape(name)}</th>" for name in COLUMNS)
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{_class(name)}>{escape(row.cells.get(name, ''))}</td>" for name in COLUMNS)
        + "</tr>"
        for row in rows
    )
    instead = "" if body else f"<p>{escape(nothing)}</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Vector indexes</title><style>{STYLE}</style></head>\n<body>"
        f"<table><caption>Vector indexes</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table>{instead}</body></html>\n"
    )


def _class(column: str) -> str:
    return ' class="number"' if column in NUMBERS else ""
