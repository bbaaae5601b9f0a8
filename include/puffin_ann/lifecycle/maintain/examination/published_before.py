"""Whether an index was published before, where no file and no snapshot of it is left.

Other engines expire snapshots, and with them the statistics registered under them and the files of
those. What they leave is the log of earlier metadata files, as long as the table keeps them, and
what was measured of the index.
"""

import re
from typing import Any

from pyiceberg.table import Table

from puffin_ann.lake.catalog.index_snapshots import UNDER_TAG
from puffin_ann.lake.metadata.dropped import NEVER, Dropped, find_dropped
from puffin_ann.lake.metadata.log import metadata_document
from puffin_ann.lifecycle.evaluate.records import measured_at


def why_published_before(table: Table, index: str) -> str:
    """Return by what it is known that an index was published, and not dropped since; else empty.

    Args:
        table: the table, as loaded.
        index: of which nothing is published now.
    """
    mark = find_dropped(table).get(index, NEVER)
    if any(at_ms > mark.at_ms for at_ms in measured_at(table, index)):
        return "its recall was measured"
    for log in reversed(table.metadata.metadata_log):
        document = metadata_document(table.io, log.metadata_file)
        if document is not None and _names(document, index, mark):
            return f"earlier metadata names its publication: {log.metadata_file}"
    return ""


def _names(document: dict[str, Any], index: str, mark: Dropped) -> bool:
    """Tell whether a metadata file names a publication later than the last drop of the index."""
    later = {
        snapshot.get("snapshot-id"): snapshot.get("summary")
        for snapshot in _mappings(document, "snapshots")
        if _is_later(snapshot, index, mark)
    }
    if any(f"ann.{index}.run-id" in (summary or {}) for summary in later.values()):
        return True
    ours = re.compile(rf"/ann-{re.escape(index)}-[^/]+\.puffin$")
    return any(
        entry.get("snapshot-id") in later and ours.search(str(entry.get("statistics-path")))
        for entry in _mappings(document, "statistics")
    )


def _is_later(snapshot: dict[str, Any], index: str, mark: Dropped) -> bool:
    """Tell whether a snapshot came after the last drop; a tagged one has no number of its own."""
    if _number(snapshot.get("sequence-number")) > mark.sequence_number:
        return True
    summary = snapshot.get("summary")
    if not isinstance(summary, dict) or UNDER_TAG not in summary:
        return False
    return not {summary.get(f"ann.{index}.{key}") for key in ("run-id", "version")} & mark.versions


def _mappings(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the entries of a list in a metadata file; nobody has validated it."""
    found = document.get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0  # as the first version of the format has none
