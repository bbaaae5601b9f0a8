"""Store and read evaluations: the recall of a published index, as it was measured over time.

The gate measures an index before it is published; from then on rows come, go and drift. What is
measured later is recorded beside the index, in small objects whose names hide them from Iceberg's
orphan removal, and a recall under the target is an error that says what to do.
"""

import logging
import re
import zlib

from pydantic import ValidationError
from pyiceberg.table import Table

from puffin_ann.errors import RecallTooLowError, StagingError
from puffin_ann.lake.store.listing import delete_object, list_objects
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.documents.run import (
    EVALUATED,
    Document,
)
from puffin_ann.lifecycle.evaluate.ground_truth import MAX_DUPLICATES
from puffin_ann.lifecycle.retention.withheld import is_shared
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.wording import counted

log = logging.getLogger("puffin_ann")

RECORD = re.compile(EVALUATED + r"(\d{13})-[0-9a-f]{8}\.json")
KEPT = 200
"""Most evaluations of an index that are kept."""

EVALUATION = "evaluation.json"


class Evaluation(Document):
    """What one evaluation measured.

    Attributes:
        run_id: of the evaluation.
        version_run_id: of the run that made the version measured.
        at_ms: when it ended, milliseconds since 1970.
        snapshot_id: snapshot whose rows were searched and compared.
        base_snapshot_id: snapshot that the version covers.
        k: neighbours asked for.
        queries: rows that served as queries.
        recall: share of the true neighbours that were found, as users search.
        low, high: its 95 % interval.
        target: the declared recall.
        coverage: share of the rows searched that the version covers; the rest is scanned.
        rows: live rows compared.
        seconds: of the Spark application.
    """

    index: str
    table: str
    run_id: str
    version_run_id: str
    at_ms: int
    snapshot_id: int
    base_snapshot_id: int
    k: int
    queries: int
    recall: float
    low: float
    high: float
    target: float
    search_width: int
    probe_partitions: int
    coverage: float
    rows: int
    seconds: float


def record(table: Table, evaluation: Evaluation) -> None:
    """Keep what was measured; the oldest beyond `KEPT` go, where nobody else may need them."""
    place = _place(table, evaluation.index)
    run = zlib.crc32(evaluation.run_id.encode())
    name = f"{EVALUATED}{evaluation.at_ms:013d}-{run:08x}.json"
    place.put_new(name, evaluation.model_dump_json().encode())
    beyond = evaluation_files(table, evaluation.index)[:-KEPT]
    if beyond and not is_shared(table):
        for uri in beyond:
            delete_object(table.io, uri)


def evaluations(table: Table, index: str) -> list[Evaluation]:
    """Return what was measured of an index, the oldest first; what cannot be read is left out."""
    place = _place(table, index)
    found = []
    for uri in evaluation_files(table, index):
        try:
            with place.fetch(uri) as stream:
                found.append(Evaluation.model_validate_json(stream.read()))
        except (StagingError, ValidationError) as error:
            log.warning("evaluate: %s cannot be read: %s", uri, error)
    return found


def measured_at(table: Table, index: str) -> list[int]:
    """Return when an index was measured, milliseconds since 1970; reads no record."""
    names = (RECORD.search(uri) for uri in evaluation_files(table, index))
    return [int(name[1]) for name in names if name]


def recall_report(evaluation: Evaluation) -> str:
    """Return a measured recall as text.

    Raises:
        RecallTooLowError: it is under the target; says what to do.
    """
    index = evaluation.index
    if not evaluation.queries:
        return (
            f"index {index!r}: no recall was measured. Every row drawn as a query has more than "
            f"{MAX_DUPLICATES} others equal to it; measure with queries of your own, by "
            f"'puffin-ann evaluate {index} --vector FILE'"
        )
    text = (
        f"index {index!r}: recall@{evaluation.k} is {evaluation.recall:.4f} (95 % interval "
        f"{evaluation.low:.4f} to {evaluation.high:.4f}, {evaluation.queries} queries) on snapshot "
        f"{evaluation.snapshot_id}, search width {evaluation.search_width}, "
        f"{counted(evaluation.probe_partitions, 'partition')} probed, "
        f"coverage {evaluation.coverage:.2%}"
    )
    if evaluation.recall >= evaluation.target:
        return f"{text}; the target is {evaluation.target}"
    raise RecallTooLowError(
        f"{text}; that is under the declared recall_target of {evaluation.target}. The rows are "
        "not what they were when the index was built: build it again, by 'puffin-ann build "
        f"{index} --force' or its build DAG with 'force', which measures again how wide to search. "
        "If that is refused, let the algorithm spend more (R and alpha of vamana, M and "
        "ef_construction of hnsw), or lower recall_target"
    )


def _place(table: Table, index: str) -> Staging:
    return Staging(table.io, leases.index_folder(table, index))


def evaluation_files(table: Table, index: str) -> list[str]:
    """Return the locations of an index's evaluations, the oldest first, also of former folders."""
    folders = leases.index_folders(table, index)
    stored = [file.uri for folder in folders for file in list_objects(table.io, folder)]
    named = ((uri.rpartition("/")[2], uri) for uri in stored)
    return [uri for name, uri in sorted(named) if RECORD.fullmatch(name)]
