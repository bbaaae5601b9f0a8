"""Read one task's parts of a table: row groups of data files, in several threads."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from pyroaring import BitMap

from puffin_ann.lifecycle.documents.run import (
    AssignTask,
    PlannedFile,
)
from puffin_ann.lifecycle.ingest.row_groups import (
    IdentifiedRows,
    ReadRowGroup,
    RowFilter,
    RowLookup,
    open_row_groups,
)
from puffin_ann.lifecycle.ingest.segments import VectorRows, concatenate
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
)

PIECES_A_THREAD = 2
"""Parts that a thread reads at least, so that none waits long for the last one of another."""


PIECE_ROWS = 8192
"""Rows of a file that are worth opening it once more."""


@dataclass(frozen=True)
class Parts:
    """What a task read of the table.

    Attributes:
        reads: its row groups, in order.
        row_groups: file id, row group and its rows, of each.
    """

    reads: list[ReadRowGroup]
    row_groups: list[tuple[int, int, int]]

    def rows(self, dimension: int) -> VectorRows:
        """Return the rows of all row groups."""
        return concatenate([read.rows for read in self.reads], dimension)

    @property
    def filtered_out(self) -> IdentifiedRows:
        """The rows filtered out of all row groups."""
        return IdentifiedRows.joined([read.filtered_out for read in self.reads])

    @property
    def reasons(self) -> dict[str, int]:
        """Rows without a usable vector, by reason."""
        return dict(sum((read.reasons for read in self.reads), Counter()))


def read_parts(
    workspace: Workspace,
    files: Sequence[PlannedFile],
    task: AssignTask,
    only: Mapping[int, BitMap] | None = None,
    *,
    row_filter: RowFilter | None = None,
    row_lookup: RowLookup | None = None,
    threads: int = 1,
) -> Parts:
    """Read one task's parts of the table.

    Args:
        workspace: of the run.
        files: what the task's numbers are places in.
        task: names the parts.
        only: by file id, the positions that are wanted; of files it does not name, all live ones.
        row_filter: by identity, rows whose vectors are not kept; called in several threads.
        row_lookup: by row id, rows whose vectors need not be read; called in several threads.
        threads: threads to use.
    """

    def read(part: tuple[int, int, int]) -> Parts:
        file_number, part_number, parts = part
        found = Parts([], [])
        # Opened in the thread that reads it: a reader of Parquet is not for several at a time.
        opened = open_row_groups(workspace, files[file_number], part_number, parts)
        wanted = (only or {}).get(opened.file.file_id)
        for row_group, size in zip(opened.row_groups, opened.row_group_rows, strict=True):
            rows = opened.read(
                row_group,
                identities=True,
                only=wanted,
                row_filter=row_filter,
                row_lookup=row_lookup,
            )
            found.reads.append(rows)
            found.row_groups.append((opened.file.file_id, row_group, size))
        return found

    pieces = _pieces(files, task, threads)
    threads = min(threads, len(pieces))
    if threads < 2:
        found = [read(piece) for piece in pieces]
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="read") as pool:
            found = list(pool.map(read, pieces))
    return Parts(
        list(chain.from_iterable(part.reads for part in found)),
        list(chain.from_iterable(part.row_groups for part in found)),
    )


def _pieces(
    files: Sequence[PlannedFile], task: AssignTask, threads: int
) -> list[tuple[int, int, int]]:
    """Return a task's parts, each in several where there are few for so many threads.

    The k-th of s pieces of part p of n is part p * s + k of n * s: the same row groups.
    """
    most = math.ceil(PIECES_A_THREAD * threads / max(1, len(task.parts))) if threads > 1 else 1
    pieces = []
    for file, part, parts in task.parts:
        split = max(1, min(most, files[file].rows // parts // PIECE_ROWS))
        pieces += [(file, part * split + piece, parts * split) for piece in range(split)]
    return pieces
