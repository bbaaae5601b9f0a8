"""Upserts as Flink writes them: an index over a table with equality deletes, refreshed and not."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.files.live_files import live_files
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.row_by_key import vector_of_row
from tests.support.lake.tables import delete_equal, delete_positions
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import QUERIES, declared, roll_back
from tests.support.params import long_but_first


class Upserted:
    """A table of words, and which vectors its rows have by id: what every search is held to."""

    def __init__(self, table):
        self.table = table
        self.live = {number: self._vector(number, 0) for number in range(60)}
        self.at = {table.current_snapshot().snapshot_id: dict(self.live)}

    @staticmethod
    def _vector(number, seed):
        return np.array(builds.rows([number], seed)["embedding"].to_pylist()[0], np.float32)

    def upsert(self, ids, seed):
        """New vectors for rows, old and new ones, in one commit."""
        added = builds.rows(ids, seed)
        delete_equal(self.table, added.select(["id"]), added=added)
        self._now({number: self._vector(number, seed) for number in ids})

    def delete(self, ids, column):
        keys = builds.rows(ids).select([column, "id"] if column == "word" else ["id"])
        delete_equal(self.table, keys)
        self._now(dict.fromkeys(ids))

    def delete_nothing(self):
        """Keys that no row has, since one of their columns differs."""
        keys = pa.table({"id": pa.array([1, 2, None]), "word": pa.array(["w2", None, "w5"])})
        delete_equal(self.table, keys)
        self._now({})

    def delete_by_position(self, random):
        """The first live row of some files."""
        files = live_files(self.table)
        deleted = deleted_positions(self.table, files)
        chosen, gone = {}, {}
        for file in files:
            with self.table.io.new_input(file.path).open() as stream:
                ids = pa.parquet.read_table(stream, columns=["id"])["id"].to_pylist()
            live = [at for at in range(file.rows) if at not in deleted.get(file.path, ())]
            if live and random.random() < 0.5:
                chosen[file.path] = [live[0]]
                gone[ids[live[0]]] = None
        if chosen:
            delete_positions(self.table, chosen)
            self._now(gone)

    def append(self, ids, seed):
        self.table.append(builds.rows(ids, seed))
        self._now({number: self._vector(number, seed) for number in ids})

    def roll_back(self, random):
        chosen = random.choice(sorted(self.at))
        roll_back(self.table, chosen)
        self.live = dict(self.at[chosen])

    def _now(self, changed):
        self.live |= changed
        self.live = {number: vector for number, vector in self.live.items() if vector is not None}
        self.table.refresh()
        self.at[self.table.current_snapshot().snapshot_id] = dict(self.live)

    def hold(self, snapshot_id=None):
        live = self.live if snapshot_id is None else self.at[snapshot_id]
        rows = (
            np.array(list(live), np.int64),
            np.array(list(live.values())).reshape(len(live), -1),
        )
        index = open_index(self.table.refresh(), builds.INDEX, snapshot_id)
        builds.assert_answers_are(index, rows, QUERIES, 4)
        builds.assert_answers_are(index, rows, QUERIES, len(live) + 3)
        builds.assert_within(index, rows, QUERIES, (0.2,))
        return index


def step(upserted, random, at):
    some = random.sample(range(70), random.randint(1, 9))
    known = [number for number in some if number in upserted.live]
    kind = random.choice(["upsert", "upsert", "delete", "nothing", "position", "append", "back"])
    if kind == "upsert":
        upserted.upsert(some, at)
    elif kind == "delete":
        upserted.delete(known or some, random.choice(["id", "word"]))
    elif kind == "nothing":
        upserted.delete_nothing()
    elif kind == "position":
        upserted.delete_by_position(random)
    elif kind == "append":
        upserted.append(range(100 + 10 * at, 103 + 10 * at), at)
    else:
        upserted.roll_back(random)


@pytest.mark.parametrize("algorithm", ["exact", "vamana", "centroid"])
@pytest.mark.parametrize("seed", long_but_first(range(4)))
def test_random_upserts_are_answered_right_before_and_after_refreshes(words, algorithm, seed):
    random = Random(seed)
    declaration = declared(algorithm, refresh={"delta_ratio": 0.5})
    upserted = Upserted(words)
    if seed % 2:  # what a build finds
        upserted.upsert(range(5, 25), 7)
    builds.build(declaration, "build")
    for at in range(1, 9):
        step(upserted, random, at)
        upserted.hold()
        if random.random() < 0.4:
            refresh_in_process(declaration, run_id=f"refresh-{at}", force=True)
            view = upserted.hold().view
            assert (view.rows_masked, view.rows_to_scan) == (0, 0)
            upserted.hold(random.choice(sorted(upserted.at)))


def test_a_key_finds_the_row_that_is_live_now(build, words):
    build(declared())
    upserted = Upserted(words)
    upserted.upsert([17], 3)
    found = vector_of_row(open_index(words.refresh(), builds.INDEX), "id", "17")
    np.testing.assert_array_equal(found.vector, upserted.live[17])
