"""Put together what was noted of a search, once it was answered."""

import json
from collections.abc import Sequence

import pyarrow as pa

from puffin_ann.declaration import CENTROID
from puffin_ann.search.explain.explanation import (
    METADATA,
    Explanation,
    Opening,
    with_explanation,
)
from puffin_ann.search.explain.recorder import Recorder
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import SnapshotView


def explained(
    answers: pa.Table,
    recorder: Recorder,
    version: IndexVersion,
    view: SnapshotView,
    opening: Opening,
    *,
    columns: Sequence[str],
    rows_left_out: int,
    bytes_brought: int,
    bytes_included: int,
) -> pa.Table:
    """Return answers whose report explains them.

    Args:
        answers: to explain.
        recorder: that noted the search; it ends here.
        version: of the index that answered.
        view: of it.
        opening: how it was chosen.
        columns: that were fetched.
        rows_left_out: rows outside the index that were not.
        bytes_brought: of shards brought to local disk for this search.
        bytes_included: that were read of columns in the index.
    """
    recorder.enter("tell of it")
    report = json.loads(answers.schema.metadata[METADATA])
    is_of_files = version.routing.algorithm == CENTROID
    shards, condition = recorder.shards, recorder.condition
    ids = {way.shard_id for way in shards}
    left_out = 0 if None in ids else len(version.routing.shards) - len(ids)
    why = (
        f"the version, made of snapshot {report['base_snapshot']}, does not have them; "
        f"'puffin-ann refresh {version.index}' takes in those of the current snapshot"
    )
    told = Explanation(
        version=version.path,
        why_version=opening.why,
        opening_seconds=opening.seconds,
        base_snapshot=report["base_snapshot"],
        snapshot=report["snapshot"],
        coverage=report["coverage"],
        rows_covered=view.rows_answered,
        rows_masked=view.rows_masked,
        algorithm=version.routing.algorithm,
        condition=condition,
        ways_expected=recorder.ways_expected,
        queries_sharing=recorder.queries_sharing,
        shards=shards,
        shards_left_out=left_out,
        files_compared=report["shards_probed"] if is_of_files else None,
        rows_scanned=report["rows_scanned"],
        files_scanned=recorder.files_scanned,
        why_scanned=why if report["rows_scanned"] else "",
        rows_left_out=rows_left_out,
        columns=tuple(columns),
        rows_with_columns=report["rows_with_columns"],
        bytes_read={
            "the condition's columns, of the table": 0
            if condition is None
            else condition.bytes_read,
            "ranges of shards": report["bytes_by_ranges"],
            "shards brought to local disk": bytes_brought,
            "vectors of indexed rows, from the table": report["bytes_of_table"],
            "vectors of data files compared": recorder.vector_bytes_scanned,
            "columns in the index": bytes_included,
            "columns of the table": report["bytes_of_columns"],
        },
        damaged=tuple(report["damaged"]),
    )
    return with_explanation(answers, told, recorder.stages)
