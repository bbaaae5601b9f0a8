"""What must hold after each step: for every retained snapshot, branch and tag, and every file."""

import random

import numpy as np
from hypothesis.stateful import invariant, rule

from puffin_ann import open_index
from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.catalog.index_snapshots import tag_of
from puffin_ann.lake.commit.tagged_snapshot import is_own_manifest_list
from puffin_ann.lake.metadata.log import manifest_lists_of
from puffin_ann.lake.store.listing import canonical, list_objects
from puffin_ann.lifecycle.retention.rules import apply_retention, names_of_snapshots, policies
from puffin_ann.lifecycle.versions.inventory import take_inventory
from tests.property.others_rules import registered_paths
from tests.support import words
from tests.support.lake import table_events
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(11).normal(size=(2, builds.DIMENSION)).astype(np.float32)
LOOKED_AT = 4
"""Snapshots looked at after a step beside the head and the newest; the rule `look_at_everything`,
and so every history in time, misses none."""


class Invariants:
    """Answers, and columns beside them, are what PyIceberg reads; no file is leaked or lost."""

    @invariant()
    def snapshots_are_answered_right(self):
        self._assert_answers(self._looked_at())

    @rule()
    def look_at_everything(self):
        """Every retained snapshot, and every branch and tag by its name."""
        self._assert_answers({snapshot.snapshot_id for snapshot in self.table.snapshots()})
        self._assert_answers(sorted(self.table.refs()))

    def _assert_answers(self, places):
        """Hold both indexes to the oracle, at snapshots by id or at branches and tags by name."""
        for name in sorted(self.declared):
            for place in places:
                at = {"ref" if isinstance(place, str) else "snapshot_id": place}
                try:
                    index = open_index(self.table, name, **at)
                except IndexNotFoundError:
                    assert name not in self.visible, f"index {name!r} is lost"
                    break
                rows = self._live(index.view.snapshot_id)
                if isinstance(place, str):
                    assert index.view.snapshot_id == self.table.refs()[place].snapshot_id
                if not len(rows[0]):
                    continue
                builds.assert_answers_are(index, rows, QUERIES, 3)
                builds.assert_answers_are(index, rows, QUERIES[:1], len(rows[0]) + 3)
                self._assert_answers_by_a_condition(index, rows)
                drawn = random.Random(f"{self.looks} {name}")
                words.assert_words(index, self._words(index.view.snapshot_id), drawn)

    def _assert_answers_by_a_condition(self, index, rows):
        """Hold answers to the oracle's rows that satisfy a condition, another at each look."""
        ids, vectors = rows
        known = self._words(index.view.snapshot_id)
        where, says = words.a_condition_on(known, random.Random(self.looks))
        chosen = [says(number) for number in ids.tolist()]
        builds.assert_answers_are(index, (ids[chosen], vectors[chosen]), QUERIES, 3, where=where)

    @invariant()
    def every_registered_file_is_there(self):
        for path in registered_paths(self.table):
            assert self.table.io.new_input(path).exists(), f"{path} is registered and gone"

    @invariant()
    def no_number_is_given_twice(self):
        """Of two commits with one sequence number, the deletes of one would miss rows."""
        numbers = [snapshot.sequence_number for snapshot in self.table.snapshots()]
        assert self.table.metadata.last_sequence_number >= max(numbers)
        of_rows = [
            snapshot.sequence_number
            for snapshot in self.table.snapshots()
            if tag_of(snapshot) is None
        ]
        assert len(set(of_rows)) == len(of_rows)

    def _live(self, snapshot_id):
        """What the oracle says of a snapshot; snapshots never change."""
        if snapshot_id not in self.oracle:
            self.oracle[snapshot_id] = builds.live(self.table, snapshot_id)
        return self.oracle[snapshot_id]

    def _words(self, snapshot_id):
        """The word of each id, which updates change; no two rows have one id."""
        if snapshot_id not in self.words:
            ids = self._live(snapshot_id)[0].tolist()
            self.words[snapshot_id] = words.words_of(self.table, ids, snapshot_id)
        return self.words[snapshot_id]

    def _looked_at(self) -> set[int]:
        """The head, the newest, and some of all others, differently at each step."""
        everything = [snapshot.snapshot_id for snapshot in self.table.snapshots()]
        self.looks += 1
        chosen = random.Random(self.looks).sample(everything, min(LOOKED_AT, len(everything)))
        return {self.table.current_snapshot().snapshot_id, everything[-1], *chosen}

    def _all_files(self) -> set[str]:
        files = list_objects(self.table.io, self.table.location(), recursive=True)
        return {file.uri for file in files}

    def _assert_nothing_leaks(self):
        """All grace being over, only what is needed is there."""
        inventory = take_inventory(self.table)
        files = inventory.published
        kept = apply_retention(
            inventory.with_needed(files),
            policies(self.declared.values(), files),
            names_of_snapshots(inventory.table),
        )
        needed = {canonical(verdict.file.path) for verdict in kept if verdict.is_kept}
        here = {canonical(path) for path in table_events.index_files(self.table)}
        # They have others' statistics alone, and lost their registration: they go when the log of
        # metadata forgets who named them.
        others = {
            canonical(file.path)
            for file in inventory.files
            if file.former and not (file.holds or file.dropped or file.problem)
        }
        assert here <= needed | others, "index files are left that nothing needs"
        held = {held.index for file in files for held in file.holds}
        versions = [
            verdict for verdict in kept if any("needs it" not in why for why in verdict.reasons)
        ]
        assert len(versions) <= 2 * len(held) + len(self.table.refs()) * len(held)
        everything = self._all_files()
        staged = [path for path in everything if "/_ann-staging/" in path]
        assert [path for path in staged if "/_lease-" not in path] == []
        lists = {canonical(snapshot.manifest_list) for snapshot in self.table.snapshots()}
        stray = {
            path
            for path in everything
            if is_own_manifest_list(path.rpartition("/")[2]) and canonical(path) not in lists
        }
        assert stray <= manifest_lists_of(self.table), "manifest lists of ours are left"
