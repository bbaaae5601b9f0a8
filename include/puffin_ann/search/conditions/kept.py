"""Conditions that were searched by, kept for the next search by the same."""

import threading
from collections import OrderedDict

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from puffin_ann.lake.catalog.scope import scope_of
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.read.conditions.condition import Condition, read_condition
from puffin_ann.lake.read.conditions.matching_rows import MatchingRows, matching_rows
from puffin_ann.lake.read.conditions.snapshot_entries import data_entries
from puffin_ann.lake.read.data.column_chunks import Kept
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.explain.explanation import ConditionFacts
from puffin_ann.search.explain.recorder import current
from puffin_ann.search.included.kept_columns import KeptColumns
from puffin_ann.search.included.lookups import Lookups
from puffin_ann.search.included.matching import MatchingByIndex
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import SnapshotView
from puffin_ann.settings import MIB

MOST_CONDITIONS = 8
"""Conditions of which an open index keeps what it knows of its shards."""

MATCHING = Kept(lambda: 64 * MIB)
"""Rows that satisfy conditions, by table, snapshot and condition, as far as they fit: what took
reading the table to know."""


class KeptConditions:
    """The conditions that an open index was searched by last; any number of threads use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: OrderedDict[str, AllowedRows] = OrderedDict()
        self._key_of_text: OrderedDict[tuple[int, str], str] = OrderedDict()
        self._lookups: Lookups | None = None

    def rows(
        self,
        table: Table,
        version: IndexVersion,
        view: SnapshotView,
        where: str | BooleanExpression,
        included: KeptColumns | None = None,
    ) -> AllowedRows:
        """Return the rows that a condition lets be answered.

        Args:
            table: that is indexed.
            version: of the index.
            view: of the version, from the snapshot asked for.
            where: the condition.
            included: values that the version keeps of its rows.

        Raises:
            QueryError: it cannot be read, or compares a column with what is of another type.
            ColumnNotFoundError: it names a column that the snapshot does not have.
            FormatError, EnvironmentProblemError: as `matching_rows`.
        """
        schema = view.schema(table)
        # To read a text again takes longer than many a search; a schema never changes under its id.
        text = (schema.schema_id, where) if isinstance(where, str) else None
        known = None if text is None else self._known(text)
        if known is not None:
            _note(known, is_kept=True)
            return known
        condition = read_condition(where, schema, name_of(table))
        with self._lock:
            if text is not None:
                self._key_of_text[text] = condition.key
                while len(self._key_of_text) > MOST_CONDITIONS:
                    self._key_of_text.popitem(last=False)
            found = self._by_key.get(condition.key)
            if found is not None:
                self._by_key.move_to_end(condition.key)
                _note(found, is_kept=True)
                return found
        matching, is_kept = self._matching(table, version, view, condition, included)
        made = AllowedRows(version, view, condition, matching)
        _note(made, is_kept=is_kept)
        with self._lock:
            self._by_key[condition.key] = made
            while len(self._by_key) > MOST_CONDITIONS:
                self._by_key.popitem(last=False)
        return made

    def _known(self, text: tuple[int, str]) -> AllowedRows | None:
        """Return the rows of a condition that was given as this text, by this schema, if kept."""
        with self._lock:
            key = self._key_of_text.get(text)
            found = None if key is None else self._by_key.get(key)
            if key is not None and found is not None:
                self._key_of_text.move_to_end(text)
                self._by_key.move_to_end(key)
            return found

    def lookups(
        self, scope: str, version: IndexVersion, view: SnapshotView, included: KeptColumns
    ) -> Lookups:
        """Return the lookups of what a version includes; arguments are those of `rows`.

        Args:
            scope: names the table, see `scope_of`.
            version: see `rows`, as the others.
            view: see above.
            included: see above.
        """
        with self._lock:
            if self._lookups is None:
                self._lookups = Lookups(scope, included, version, view)
            return self._lookups

    def warm(
        self, table: Table, version: IndexVersion, view: SnapshotView, included: KeptColumns
    ) -> None:
        """Read what new conditions need, and make lookups of all columns that a version includes.

        Arguments are those of `rows`.

        Raises:
            FormatError, EnvironmentProblemError: as `matching_rows`.
        """
        blobs = [blob for blobs in included.blobs.values() for blob in blobs]
        fields = [
            field
            for field in view.schema(table).fields
            if blobs and all(blob.column_of(field) is not None for blob in blobs)
        ]
        if fields:
            self.lookups(scope_of(table), version, view, included).make(fields)
            data_entries(table, view.snapshot_id)

    def _matching(
        self,
        table: Table,
        version: IndexVersion,
        view: SnapshotView,
        condition: Condition,
        included: KeptColumns | None,
    ) -> tuple[MatchingRows, bool]:
        """Return the rows that satisfy a condition, and whether they were kept from before."""
        # A snapshot never changes, and neither does a schema under its id.
        scope = scope_of(table)
        key: tuple[object, ...] = (scope, view.snapshot_id, condition.key)
        has_included = included is not None and bool(included.blobs)
        if has_included:
            # Of rows that this version has no vector of, another one may have: it is not told of
            # them.
            key += (version.index, version.run_id)
        found: MatchingRows | None = MATCHING.get(key)
        if found is not None:
            return found, True
        ask, looked_up = None, None
        if included is not None and has_included:
            ask = MatchingByIndex(included, version, view, condition).positions
            looked_up = self.lookups(scope, version, view, included).looked_up(condition)
        made = matching_rows(table, view.snapshot_id, condition, ask, looked_up)
        MATCHING.put(key, made, made.size + len(condition.key))
        return made, False


def _note(allowed: AllowedRows, *, is_kept: bool) -> None:
    """Note how rows were found, for a search that is explained."""
    recorder = current()
    if recorder is None:
        return
    found = allowed.matching
    recorder.condition = ConditionFacts(
        text=allowed.condition.text,
        is_kept=is_kept,
        files=found.files,
        files_out=found.files_out,
        files_in=found.files_in,
        files_included=found.files_asked,
        row_groups=found.row_groups,
        row_groups_read=found.row_groups_read,
        bytes_read=0 if is_kept else found.bytes_read,
        rows_allowed=allowed.rows,
    )
