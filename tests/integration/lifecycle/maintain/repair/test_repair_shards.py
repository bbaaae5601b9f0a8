"""Shards that cannot be read are made again of rows of the table, and nothing else is."""

import os

import pytest

from puffin_ann import open_index
from puffin_ann.lifecycle.refresh.apply_changes import added_tombstones
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.version.versions import find_versions
from tests.support.falsified.damage import corrupt, damaged, forget_cache, report
from tests.support.indexes.tagged_versions import published
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, refreshes

pytestmark = pytest.mark.usefixtures("layered")

SHARDS = 4


def declared(algorithm="exact", **changes):
    return refreshes.declared(
        algorithm,
        **{"publish": "tag", "shards": SHARDS, "refresh": {"delta_ratio": 1.0}, **changes},
    )


DECLARED = declared()


def largest(table):
    return max(
        (task.file for task in table.scan().plan_files()), key=lambda file: file.record_count
    )


def repaired(table, declaration=DECLARED, **options):
    """Have everything repaired; returns what was done."""
    done = doctor(table.refresh(), [declaration], fix=True, **options)
    left = [finding for finding in done.findings if finding.is_problem and not finding.repaired]
    assert left == [], done.actions
    return done.actions


def newest(table):
    return find_versions(table.refresh(), builds.INDEX).versions[0]


def place(version, kind, shard):
    """Return the file that has a blob of a version."""
    for blob in version.directory.blobs if version.directory else ():
        if kind in blob.type and blob.shard == shard:
            folder = version.path.rpartition("/")[0]
            return f"{folder}/{version.directory.files[blob.file].name}".removeprefix("file://")
    return version.path.removeprefix("file://")


@pytest.fixture
def layers(words, monkeypatch):
    """A build, a delta and tombstones: three files; the table is as the index has it."""
    monkeypatch.setattr(added_tombstones, "LEAST_BYTES", 0)
    monkeypatch.setattr(added_tombstones, "MOST_BYTES", 0)
    published(words, shards=SHARDS)
    words.append(builds.rows(range(100, 112)))
    refreshes.refresh(words, DECLARED, "delta")
    file = largest(words)
    delete_positions(words, {file.file_path: [1, 4, 9, 16, 25, 36]})
    words.refresh()
    refreshes.refresh(words, DECLARED, "tombstones")
    return words


def shards_of(version, kind):
    return [shard for shard in version.routing.shards if shard.kind == kind]


def assert_repaired(table, before, lost, declaration=DECLARED):
    """Everything is right, and of the other shards nothing was written anew."""
    forget_cache()
    after = newest(table)
    assert after.run_id != before.run_id
    assert after.coverage.columns.indexed_rows == before.coverage.columns.indexed_rows
    assert [
        finding for finding in doctor(table, [declaration]).findings if finding.is_problem
    ] == []
    refreshes.assert_right(table, declaration)
    index = open_index(table, builds.INDEX)
    told = report(index.search(refreshes.QUERIES, 3))
    assert (told["damaged"], told["rows_scanned"]) == ([], 0)
    own = {shard.shard_id for shard in before.routing.shards} - set(lost)
    for shard in after.routing.shards:
        for kind in ("graph", "hnsw", "rows", "tombstones"):
            if shard.shard_id in own and place(after, kind, shard.shard_id) == after.path:
                raise AssertionError(f"{kind} of shard {shard.shard_id} was written anew")


@pytest.mark.parametrize("left", [0.4, 0.7])
def test_all_shards_in_a_file_that_was_cut_are_made_again_at_once(layers, left):
    """Those before the cut are whole, and yet nobody could tell that of the file."""
    before = newest(layers)
    (path,) = {place(before, "graph", each.shard_id) for each in shards_of(before, "graph")}
    os.truncate(path, int(os.path.getsize(path) * left))
    forget_cache()
    repaired(layers)
    lost = [shard.shard_id for shard in shards_of(before, "graph")]
    assert_repaired(layers, before, lost)
    after = newest(layers)
    assert {place(after, "graph", shard) for shard in lost} == {after.path.removeprefix("file://")}


def test_a_version_that_a_users_tag_needs_stays_for_what_is_whole_of_it(layers):
    """It shares the damaged shard with the newest, in which that is made again."""
    before = newest(layers)
    layers.manage_snapshots().create_tag(before.coverage.base_snapshot_id, "mine").commit()
    file = largest(layers.refresh())
    delete_positions(layers, {file.file_path: [place for place in range(50) if place % 3]})
    refreshes.refresh(layers.refresh(), DECLARED, "after")
    assert not {place(newest(layers), "tombstones", shard) for shard in range(SHARDS)} & {
        before.path.removeprefix("file://")
    }
    shard = shards_of(newest(layers), "graph")[0].shard_id
    corrupt(place(newest(layers), "graph", shard), "graph", shard)
    forget_cache()
    repaired(layers)
    assert os.path.exists(before.path.removeprefix("file://"))
    told = doctor(layers.refresh(), [DECLARED])
    assert told.problems_left == 0
    remedies = [each.remedy for each in damaged(told) if each.file == before.path]
    assert any("tag 'mine' points to snapshot" in remedy for remedy in remedies)
    index = open_index(layers, builds.INDEX, snapshot_id=before.coverage.base_snapshot_id)
    assert index.version.path == before.path
    refreshes.assert_right(layers, DECLARED)


@pytest.mark.parametrize("kind", ["graph", "rows", "tombstones"])
def test_only_the_damaged_shard_is_made_again(layers, kind):
    before = newest(layers)
    shard = next(shard for shard in shards_of(before, "graph") if shard.tombstones)
    corrupt(place(before, kind, shard.shard_id), kind, shard.shard_id)
    forget_cache()
    (finding,) = [finding for finding in damaged(doctor(layers, [DECLARED])) if finding.is_problem]
    live = shard.rows - shard.tombstones
    assert f"--fix' makes shard {shard.shard_id} again of {live} rows" in finding.remedy
    assert "bytes written" in finding.remedy
    actions = repaired(layers)
    assert any(f"make shard {shard.shard_id} again of {live} rows" in action for action in actions)
    assert_repaired(layers, before, [shard.shard_id])
    run = history(layers, builds.INDEX).entries[0].record
    assert (run.rows_added, run.rows_gone) == (0, 0)


def test_tombstones_that_are_named_apart_go_with_the_shard(words):
    published(words, shards=SHARDS)
    delete_positions(words, {largest(words).file_path: [1, 4, 9, 16, 25]})
    words.refresh()
    refreshes.refresh(words, DECLARED, "tombstones")
    before = newest(words)
    shard, *_ = before.added_tombstones
    corrupt(place(before, "rows", shard), "rows", shard)
    repaired(words)
    assert_repaired(words, before, [shard])
    assert newest(words).added_tombstones.keys() == before.added_tombstones.keys() - {shard}


@pytest.mark.parametrize("kind", ["delta", "rows"])
def test_a_damaged_delta_becomes_another_one(layers, kind):
    before = newest(layers)
    (delta,) = shards_of(before, "delta")
    corrupt(place(before, kind, delta.shard_id), kind, delta.shard_id)
    repaired(layers)
    assert_repaired(layers, before, [delta.shard_id])
    (other,) = shards_of(newest(layers), "delta")
    assert other.rows == delta.rows - delta.tombstones
    assert other.shard_id != delta.shard_id


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw"])
def test_graphs_are_made_again_in_the_midst_of_others(words, algorithm):
    declaration = declared(algorithm)
    published(words, shards=SHARDS, algorithm=algorithm, parameters=builds.PARAMETERS[algorithm])
    words.append(builds.rows(range(100, 105)))
    refreshes.refresh(words, declaration, "delta")
    before = newest(words)
    middle = before.routing.shards[1].shard_id
    kind = {"vamana": "graph", "hnsw": "hnsw"}[algorithm]
    corrupt(place(before, kind, middle), kind, middle)
    repaired(words, declaration)
    assert_repaired(words, before, [middle], declaration)


def test_a_file_that_is_gone_damages_all_that_it_holds(layers):
    """The build's file: every shard, of which the delta stays as it is."""
    before = newest(layers)
    os.remove(place(before, "graph", 0))
    graphs = [shard.shard_id for shard in shards_of(before, "graph")]
    repaired(layers, quick=True)
    assert_repaired(layers, before, graphs)


def test_a_refresh_makes_the_shards_of_a_lost_file_again(layers, caplog):
    before = newest(layers)
    (delta,) = shards_of(before, "delta")
    path = place(before, "delta", delta.shard_id)
    os.remove(path)
    done = refresh_in_process(DECLARED, run_id="plain")
    assert f"make shard {delta.shard_id} again of 12 rows" in done["reason"]
    assert f"shard {delta.shard_id} cannot be read: file://{path} is gone" in caplog.text
    doctor(layers, [DECLARED], fix=True)  # the tag of what is gone
    assert_repaired(layers, before, [delta.shard_id])


def test_a_refresh_that_meets_a_damaged_shard_makes_it_again(layers, caplog):
    before = newest(layers)
    shard = shards_of(before, "graph")[2].shard_id
    corrupt(place(before, "rows", shard), "rows", shard)
    forget_cache()
    file = largest(layers)
    delete_positions(layers, {file.file_path: [2, 3, 1, 4, 9, 16, 25, 36]})
    layers.append(builds.rows(range(200, 203)))
    done = refresh_in_process(DECLARED, run_id="plain", force=True)
    assert "planning it again" in caplog.text
    assert f"make shard {shard} again" in done["reason"]
    forget_cache()
    repaired(layers)
    refreshes.assert_right(layers.refresh(), DECLARED)
    assert [finding for finding in doctor(layers, [DECLARED]).findings if finding.is_problem] == []
    assert newest(layers).coverage.columns.indexed_rows == len(builds.live(layers)[0])


def test_rows_rewritten_since_are_found_where_they_are_now(layers):
    """A compaction moved the rows of whole and of damaged shards alike."""
    before = newest(layers)
    shard = shards_of(before, "graph")[0].shard_id
    corrupt(place(before, "rows", shard), "rows", shard)
    forget_cache()
    layers.overwrite(layers.scan().to_arrow())
    repaired(layers)
    forget_cache()
    refreshes.assert_right(layers.refresh(), DECLARED)
    assert newest(layers).coverage.columns.indexed_rows == len(builds.live(layers)[0])


def test_a_shard_of_which_no_row_is_left_goes(layers):
    before = newest(layers)
    shard = shards_of(before, "graph")[0]
    index = open_index(layers, builds.INDEX)
    rows = index.search(refreshes.QUERIES[:1], 500, columns=["id"], allow_fewer=True)
    mine = rows_of(before, layers, shard)
    assert 0 < len(mine) < len(rows)
    layers.delete(f"id in ({', '.join(map(str, mine))})")
    corrupt(place(before, "rows", shard.shard_id), "rows", shard.shard_id)
    forget_cache()
    repaired(layers)
    left = {shard.shard_id for shard in newest(layers).routing.shards}
    assert shard.shard_id not in left
    refreshes.assert_right(layers.refresh(), DECLARED)
    layers.append(builds.rows(range(300, 340)))
    refreshes.refresh(layers, declared(refresh={"delta_ratio": 0.0, "min_rows": 0}), "merge")


def rows_of(version, table, shard):
    """Return the ids of the live rows of a shard."""
    from puffin_ann.search.shards.opening.rows import without_shards
    from puffin_ann.search.version.snapshot_view import live_state, view_of

    rest = without_shards(table.io, version, {shard.shard_id})
    view = view_of(table, rest, live_state(table, table.current_snapshot().snapshot_id))
    found = []
    for file, positions in view.scanned:
        with table.io.new_input(file.path).open() as stream:
            import pyarrow.parquet as pq

            ids = pq.read_table(stream, columns=["id"]).column("id").to_pylist()
        found += [ids[at] for at in positions]
    return found


def test_what_no_version_can_be_made_of_again_is_built(words):
    published(words)
    before = newest(words)
    corrupt(before.path.removeprefix("file://"), "coverage")
    (finding,) = damaged(doctor(words, [declared(shards=2)]))
    assert f"'puffin-ann build {builds.INDEX} --force'" in finding.remedy


def test_a_repair_that_fails_leaves_all_as_it_is_and_says_why(layers, monkeypatch):
    before = newest(layers)
    corrupt(place(before, "rows", 1), "rows", 1)
    for file in table_events_files(layers):
        os.rename(file, f"{file}.away")
    done = doctor(layers, [DECLARED], fix=True)
    assert done.problems_left
    assert any("could not make index" in action for action in done.actions)
    assert newest(layers).run_id == before.run_id
    for file in table_events_files(layers):
        os.rename(f"{file}.away", file)
    repaired(layers)
    assert_repaired(layers, before, [1])


def table_events_files(table):
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]


def test_what_a_needed_file_says_of_its_own_version_is_no_problem_where_it_is_damaged(layers):
    version = newest(layers)
    older = place(version, "graph", shards_of(version, "graph")[0].shard_id)
    assert older != version.path.removeprefix("file://")
    corrupt(older, "routing")
    forget_cache()

    for fix in (False, True):
        done = doctor(layers.refresh(), [DECLARED], fix=fix)
        (told,) = (finding for finding in done.findings if finding.kind == "damaged")
        assert not told.is_problem
        assert told.remedy.startswith("none: newer versions name")
        assert done.problems_left == 0
    refreshes.assert_right(layers, DECLARED)


def test_deltas_are_not_called_damaged_where_all_other_shards_are_gone(layers):
    version = newest(layers)
    graphs = [shard.shard_id for shard in shards_of(version, "graph")]
    for path in {place(version, "graph", number) for number in graphs}:
        os.remove(path)
    forget_cache()

    told = report(open_index(layers.refresh(), builds.INDEX).search(refreshes.QUERIES, 3))

    assert told["damaged"]
    assert not any("partition" in message for message in told["damaged"])
    refreshes.assert_right(layers, DECLARED)
