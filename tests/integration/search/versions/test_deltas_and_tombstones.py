"""Search over versions with deltas, tombstones and rows that moved, held to brute force.

The versions are made by hand, from random numbers, over one table whose vectors are few different
ones: equal distances abound, within shards, between them and across the end of an answer.
"""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.cli.commands.reading.inspect import inspect
from puffin_ann.errors import FormatError
from puffin_ann.lifecycle.report.status import as_text, status
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.index import Index
from puffin_ann.search.open_index import open_version
from puffin_ann.search.version.snapshot_view import live_state, view_of
from puffin_ann.settings import settings as library_settings
from tests.support.indexes import handmade_index
from tests.support.lake.tables import delete_positions, open_catalog

QUERIES = np.array([[0, 0, 0], [1, -1, 2], [0.5, 0.25, -3]], np.float32)
ALGORITHMS = ["exact", "vamana", "hnsw", "ivf_pq"]


def some_rows(rng, count):
    vectors = rng.integers(-2, 3, (count, handmade_index.DIMENSION)).astype(np.float32)
    return pa.table(
        {
            "id": pa.array(rng.integers(0, 10**6, count)),
            "word": pa.array([str(number) for number in range(count)]),
            "embedding": pa.array(vectors.tolist(), pa.list_(pa.float32())),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Snapshots of appends, deletes by position, a rewrite of everything, and more rows."""
    from tests.support.lake import tables

    folder = tmp_path_factory.mktemp("by-hand")
    patch = pytest.MonkeyPatch()
    patch.setenv("PUFFIN_ANN_CACHE_DIR", str(folder / "cache"))
    library_settings.cache_clear()
    made = tables.create(open_catalog(folder), row_group_rows=5)
    rng = np.random.default_rng(3)
    for count in (17, 9, 13):
        made.append(some_rows(rng, count))
    paths = [task.file.file_path for task in made.scan().plan_files()]
    delete_positions(made, {paths[0]: [0, 3, 4], paths[2]: [5]})
    made.refresh()
    made.append(some_rows(rng, 8))
    made.overwrite(made.scan().to_arrow())
    made.append(some_rows(rng, 6))
    yield made
    patch.undo()
    library_settings.cache_clear()


@pytest.fixture(scope="module")
def snapshots(table):
    """Live rows by snapshot, read without the library's search."""
    return {
        snapshot.snapshot_id: handmade_index.live_rows(table, snapshot.snapshot_id)
        for snapshot in table.snapshots()
    }


def opened(table, version, snapshot_id):
    view = view_of(table, version, live_state(table, snapshot_id))
    return Index(table, version, view, LocalCache())


def answers(found, query):
    """Return the distances and locators answered for a query."""
    here = found.filter(pa.compute.equal(found.column("query"), query))
    locators = [tuple(locator.values()) for locator in here.column("locator").to_pylist()]
    return here.column("distance").to_numpy(), locators


def brute_force(rows, metric, query):
    """Return every live row, by distance and locator."""
    locators, vectors = rows
    distances = METRICS[metric].distances(QUERIES[query][None], vectors)[0]
    order = sorted(range(len(locators)), key=lambda row: (distances[row], locators[row]))
    return distances[order], [locators[place] for place in order]


def hold(index, rows, k):
    """Hold exhaustive search to brute force, locators and all, and approximate search to truth."""
    wanted = min(k, len(rows[0]))
    for exhaustive in (True, False):
        found = index.search(QUERIES, k, exhaustive=exhaustive, allow_fewer=True)
        for query in range(len(QUERIES)):
            distances, locators = answers(found, query)
            every, order = brute_force(rows, index.metric, query)
            assert len(locators) == len(set(locators)) == wanted
            if exhaustive:
                assert locators == order[:wanted]
                np.testing.assert_array_equal(distances, every[:wanted])
            at = dict(zip(order, every.tolist(), strict=True))
            assert distances.tolist() == [
                at[locator] for locator in locators
            ]  # a deleted one is not there
            assert list(zip(distances.tolist(), locators, strict=True)) == sorted(
                zip(distances.tolist(), locators, strict=True)
            )


def hold_deltas(index):
    """Every query asks every delta, however few partitions are probed."""
    tier = index._shards
    distances = index.search(QUERIES, 1, probe_partitions=1).column("distance").to_numpy()
    for entry in index.version.routing.shards:
        if entry.kind == "delta":
            _, nearest = tier._opened.open(entry).nearest(QUERIES, 1, threads=1)
            assert (distances <= nearest[:, 0]).all()


def hold_within(index, rows, share):
    """Hold threshold queries to brute force, at the distance of some row."""
    if not rows[0]:
        return
    limits = [brute_force(rows, index.metric, query)[0] for query in range(len(QUERIES))]
    limit = float(np.quantile(np.concatenate(limits), share))
    found = index.within(QUERIES, limit)
    for query, every in enumerate(limits):
        distances, locators = answers(found, query)
        count = int((every < limit).sum())
        assert locators == brute_force(rows, index.metric, query)[1][:count]
        np.testing.assert_array_equal(distances, every[:count])


@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink takes minutes, and tells no more
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 2**32 - 1),
    metric=st.sampled_from(sorted(METRICS)),
    algorithm=st.sampled_from(ALGORITHMS),
    shards=st.integers(1, 3),
    deltas=st.integers(0, 3),
    tombstones=st.sampled_from([0.0, 0.2, 1.0, 4.0]),
    base=st.integers(0, 10),
    at=st.integers(0, 10),
    ordered=st.sampled_from(["no", "rows", "all"]),
)
def test_any_version_answers_any_snapshot_right(
    table, snapshots, seed, metric, algorithm, shards, deltas, tombstones, base, at, ordered
):
    rng = np.random.default_rng(seed)
    known = list(snapshots)
    version = handmade_index.version(
        table,
        known[base % len(known)],
        rng,
        metric=metric,
        algorithm=algorithm,
        shards=shards,
        deltas=deltas,
        tombstones=tombstones,
        ordered=ordered,
    )
    asked = known[at % len(known)]
    index = opened(table, version, asked)
    rows = snapshots[asked]

    for k in (1, 5, len(rows[0]) + 1, max(1, len(rows[0]) - 3)):
        hold(index, rows, k)
    if rows[0]:
        hold_deltas(index)
    for share in (0.1, 0.6):
        hold_within(index, rows, share)
    in_version = sum(
        file.rows - len(file.deleted | file.skipped) for file in version.coverage.files
    )
    assert version.vectors == in_version


def figures(rows, tombstones):
    """Return a change of what the routing says of every shard, by so many."""
    return lambda routing: dataclasses.replace(
        routing,
        shards=tuple(
            dataclasses.replace(
                shard, rows=shard.rows + rows, tombstones=max(0, shard.tombstones + tombstones)
            )
            for shard in routing.shards
        ),
    )


def exchanged(routing):
    """Let each shard have another's figures, whose sum is as it was."""
    shards = routing.shards
    figures = [(shard.rows, shard.tombstones) for shard in (*shards[1:], shards[0])]
    return dataclasses.replace(
        routing,
        shards=tuple(
            dataclasses.replace(shard, rows=rows, tombstones=tombstones)
            for shard, (rows, tombstones) in zip(shards, figures, strict=True)
        ),
    )


def one_partition(routing):
    """Leave one partition, while rows of deltas are of others."""
    names = ("centroids", "shards", "rows", "radii")
    kept = {name: getattr(routing.cells, name)[:1] for name in names}
    cells = dataclasses.replace(routing.cells, **kept)
    return dataclasses.replace(routing, cells=cells, probe_partitions=1)


@pytest.mark.parametrize(
    ("tombstones", "change", "said"),
    [
        (0.0, figures(1, 1), "rows by the routing blob need|0 tombstones blobs"),
        (1.0, figures(1, 1), "the routing blob says|rows by the routing blob need"),
        (1.0, figures(-1, -1), "the routing blob says"),
        (1.0, figures(0, -1), "shards hold .* the coverage blob covers"),
        (0.0, figures(1, 0), "shards hold .* the coverage blob covers"),
        (0.0, figures(-1, 0), "shards hold .* the coverage blob covers"),
        (0.0, exchanged, "the routing blob says|rows by the routing blob need"),
        (0.0, one_partition, "a row of partition . of 1|, of 1"),
    ],
)
def test_a_version_that_contradicts_itself_is_refused(table, snapshots, tombstones, change, said):
    newest = table.current_snapshot().snapshot_id

    for exhaustive in (True, False):
        with pytest.raises(FormatError, match=said):
            searched(table, newest, exhaustive, tombstones=tombstones, change=change)


def searched(table, snapshot_id, exhaustive, **how):
    """Search a version of a snapshot, made in some way."""
    version = handmade_index.version(table, snapshot_id, np.random.default_rng(5), **how)
    return opened(table, version, snapshot_id).search(QUERIES, 3, exhaustive=exhaustive)


def test_figures_count_live_rows_and_name_deltas(table, snapshots):
    newest = table.current_snapshot().snapshot_id
    version = handmade_index.version(table, newest, np.random.default_rng(6), ordered="all")

    assert version.vectors == len(snapshots[newest][0])
    assert version.vectors < sum(shard.rows for shard in version.routing.shards)
    opened_version = open_version(table, version, live_state(table, newest))
    assert opened_version.coverage == 1.0
    found = opened_version.search(QUERIES, 3)
    assert b'"shards_probed": 4' in found.schema.metadata[b"puffin_ann"]


def test_status_and_inspect_tell_deltas_and_tombstones(table, capsys):
    newest = table.current_snapshot().snapshot_id
    version = handmade_index.version(table, newest, np.random.default_rng(7), ordered="all")
    deltas = [shard for shard in version.routing.shards if shard.kind == "delta"]
    with table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile(
                snapshot_id=newest,
                statistics_path=version.path,
                file_size_in_bytes=version.length,
                file_footer_size_in_bytes=1,
                blob_metadata=[],
            )
        )

    (found,) = status(table, handmade_index.INDEX)
    text = as_text([found])
    inspect(version.path, as_json=True)
    (routing,) = (
        blob["content"]
        for blob in json.loads(capsys.readouterr().out)["blobs"]
        if "routing" in blob["type"]
    )
    inspect(version.path)
    shown = capsys.readouterr().out

    assert (found.shards, found.deltas) == (2, 2)
    assert found.delta_rows == sum(delta.rows - delta.tombstones for delta in deltas) > 0
    assert (
        found.tombstones == sum(shard.rows for shard in version.routing.shards) - found.vectors > 0
    )
    assert f"{found.tombstone_ratio:.1%} of a shard" in text
    assert f"2, {found.delta_rows} vectors" in text
    assert [shard["tombstones"] for shard in routing["shards"]] == [
        shard.tombstones for shard in version.routing.shards
    ]
    assert f"delta {deltas[0].shard_id}" in shown
    assert f"{deltas[0].tombstones} of them deleted" in shown
