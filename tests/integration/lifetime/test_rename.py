"""A declaration under a new name takes its published index over; nothing is built for it."""

from pathlib import Path

import builds
import numpy as np
import pytest
import yaml

from puffin_ann.declaration import parse_declaration
from puffin_ann.errors import DamagedIndexError
from puffin_ann.lake.store.listing import listed
from puffin_ann.lifecycle.evaluate.records import Evaluation, evaluations, record
from puffin_ann.lifecycle.maintain.doctor import doctor
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.rename import carry_over, former_name
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.preview import preview
from puffin_ann.lifecycle.report.status import grid, status
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runtime.leases import index_folder, index_lease
from puffin_ann.search.index import open_index
from puffin_ann.search.versions import all_index_names, find_versions, newest_version
from puffin_ann.settings import settings

NEW = "new_name"
QUERIES = np.random.default_rng(3).normal(size=(3, builds.DIMENSION)).astype(np.float32)


def named(name: str, **changes):
    data = {**builds.declaration(**changes).model_dump(mode="json"), "name": name}
    return parse_declaration(data, source="test")


@pytest.fixture
def one(words):
    builds.build(builds.declaration(), "run")
    return words.refresh()


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """Make these the declarations of the folder that runs look in."""
    folder = tmp_path / "indexes"
    folder.mkdir()
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(folder))
    settings.cache_clear()

    def write(*declarations):
        for path in folder.iterdir():
            path.unlink()
        for declared in declarations:
            text = yaml.safe_dump(declared.model_dump(mode="json"))
            (folder / f"{declared.name}.yaml").write_text(text)

    yield write
    settings.cache_clear()


def shards_of(table, name: str):
    version = find_versions(table, name).versions[0]
    return [(one.shard_id, one.rows, one.bytes) for one in version.routing.shards]


@pytest.mark.parametrize("algorithm", ["exact", "vamana", "centroid"])
def test_the_next_build_run_publishes_the_same_index_under_the_new_name(words, declare, algorithm):
    parameters = builds.PARAMETERS.get(algorithm, {})
    builds.build(builds.declaration(algorithm=algorithm, parameters=parameters), "run")
    words.refresh()
    query = np.array(builds.rows([3]).column("embedding").to_pylist(), np.float32)
    before = open_index(words, builds.INDEX).search(query, k=5)
    shards = shards_of(words, builds.INDEX)
    renamed = named(NEW, algorithm=algorithm, parameters=parameters)
    declare(renamed)
    plan = builds.build(renamed, "second")
    words.refresh()
    assert plan["action"] == "none"
    assert "was renamed: published as 'new_name', nothing was built" in plan["reason"]
    assert all_index_names(words) == [NEW]
    assert open_index(words, NEW).search(query, k=5).equals(before)
    assert shards_of(words, NEW) == shards
    version = find_versions(words, NEW).versions[0]
    assert yaml.safe_load(version.routing.properties["declaration"])["name"] == NEW
    assert doctor(words, [renamed]).problems_left == 0
    again = builds.build(renamed, "third")
    assert (again["action"], "covers exactly" in again["reason"]) == ("none", True)


def under(table, name: str) -> set[str]:
    """Names of what is kept beside an index."""
    return {one.uri.rpartition("/")[2] for one in listed(table.io, index_folder(table, name))}


def test_the_history_goes_on_under_the_new_name_and_tells_that_it_was_renamed(one, declare):
    measured = evaluation(one)
    record(one, measured)
    declare(named(NEW))
    before = history(one, builds.INDEX).entries
    builds.build(named(NEW), "manual__second")
    (moved, *rest) = sorted(
        history(one.refresh(), NEW).entries, key=lambda entry: entry.record.action != "rename"
    )
    assert (moved.record.action, moved.trigger, moved.record.rows) == ("rename", "manual", 60)
    assert moved.record.reason == "index 'words_index' was renamed"
    assert [entry.record for entry in rest] == [entry.record for entry in before]
    assert [entry.record.action for entry in rest] == ["evaluate", "build"]
    assert evaluations(one, NEW) == [measured]
    one.append(builds.rows(range(100, 120)))
    builds.build(named(NEW), "manual__third")
    actions = [entry.record.action for entry in history(one.refresh(), NEW).entries]
    assert sorted(actions) == ["build", "build", "evaluate", "rename"]


def evaluation(table) -> Evaluation:
    """What some evaluation measured, an hour from now."""
    numbers = {"low": 0.9, "high": 1.0, "recall": 0.95, "target": 0.9, "coverage": 1.0}
    counts = {"k": 5, "queries": 10, "rows": 60, "search_width": 8, "probe_partitions": 2}
    snapshot = table.current_snapshot()
    return Evaluation(
        index=builds.INDEX,
        table="test.demo.words",
        run_id="looked",
        version_run_id="run",
        at_ms=snapshot.timestamp_ms + 3_600_000,
        snapshot_id=snapshot.snapshot_id,
        base_snapshot_id=snapshot.snapshot_id,
        seconds=1.0,
        **numbers,
        **counts,
    )


def test_nothing_is_left_under_the_former_name(one, declare):
    lease = index_lease(one, builds.INDEX)
    lease.acquire("earlier", "some run", 60.0)
    lease.release("earlier")
    assert under(one, builds.INDEX) > set()
    declare(named(NEW))
    builds.build(named(NEW), "second")
    assert under(one, builds.INDEX) == set()
    assert lease.look() is None


def test_what_changed_meanwhile_is_for_the_next_run(one, declare):
    one.append(builds.rows(range(100, 120)))
    declare(named(NEW))
    assert builds.build(named(NEW), "second")["action"] == "none"
    assert status(one.refresh(), NEW)[0].rows_to_scan == 20
    assert builds.build(named(NEW), "third")["action"] == "build"
    assert all_index_names(one.refresh()) == [NEW]


def test_a_refresh_takes_it_over_and_adds_what_came_meanwhile(one, declare):
    one.append(builds.rows(range(100, 103)))
    renamed = named(NEW, refresh={"min_rows": 1, "delta_ratio": 1.0})
    declare(renamed)
    expected = preview(one, renamed).decision
    assert (expected.action, "'words_index' was renamed" in expected.reason) == ("none", True)
    done = refresh_in_process(renamed, run_id="second")
    assert done["action"] == "refresh"
    assert done["reason"].startswith("index 'words_index' was renamed: published as 'new_name', ")
    assert all_index_names(one.refresh()) == [NEW]
    (found,) = status(one, NEW)
    assert (found.coverage, found.delta_rows, found.vectors) == (1.0, 3, 63)


def test_a_refresh_to_which_nothing_is_left_says_that_it_was_renamed(one, declare):
    declare(named(NEW))
    done = refresh_in_process(named(NEW), run_id="second")
    base = status(one.refresh(), NEW)[0].base_snapshot_id
    assert (done["action"], done["reason"]) == (
        "none",
        f"index 'words_index' was renamed: published as {NEW!r}, nothing was built; "
        f"nothing changed since snapshot {base}",
    )
    assert refresh_in_process(named(NEW), run_id="third")["reason"].startswith("nothing changed")


def test_other_indexes_of_the_table_stay(one, declare):
    other = named("other", seed=3)
    builds.build(other, "run")
    declare(named(NEW), other)
    builds.build(named(NEW), "second")
    assert all_index_names(one.refresh()) == [NEW, "other"]


def test_a_forced_build_builds(one, declare):
    declare(named(NEW))
    plan = builds.build(named(NEW), "second", {"force": True})
    assert plan["action"] == "build"
    assert all_index_names(one.refresh()) == [NEW, builds.INDEX]


@pytest.mark.parametrize(
    "declared",
    [
        [named(NEW), builds.declaration()],
        [named(NEW), named("newer")],
        [named(NEW, seed=9)],
        [],
        [named("elsewhere")],
    ],
)
def test_nothing_is_taken_over_unless_it_is_clear_that_it_was_renamed(one, declare, declared):
    before = one.metadata_location
    declare(*declared)
    wanted = declared[0] if declared and declared[0].name == NEW else named(NEW)
    assert carry_over(one, wanted) is None
    assert one.refresh().metadata_location == before


def test_two_orphans_of_the_same_shape_leave_it_open_which_was_renamed(one):
    builds.build(named("second"), "run")
    assert former_name(one.refresh(), named(NEW), [named(NEW)]) is None
    assert former_name(one, named(NEW), [named(NEW), named("second")]) == builds.INDEX


def test_a_broken_declaration_beside_it_renames_nothing(one, declare, tmp_path):
    declare(named(NEW))
    (tmp_path / "indexes" / "broken.yaml").write_text("table: [")
    assert carry_over(one, named(NEW)) is None


def test_an_index_that_is_published_and_not_declared_is_shown_with_what_it_records(one):
    (found,) = status(one, None, [named(NEW)])
    assert found.declared is False
    said = " ".join(cell for column in grid(found).columns for cell in column.cells)
    assert "no declaration here names it; it records: column 'embedding'" in said
    assert f"puffin-ann status test.demo.words {builds.INDEX} --declaration" in said
    assert status(one, None, [builds.declaration()])[0].declared is True
    assert status(one)[0].declared is None
    (finding,) = (x for x in doctor(one, [named(NEW)]).findings if x.kind == "undeclared")
    assert "no declaration here names it" in finding.what
    assert finding.remedy.startswith("declare it")
    assert finding.remedy.endswith(f"'puffin-ann drop test.demo.words {builds.INDEX}'")


def newest_file(table, name: str) -> Path:
    return Path(newest_version(table.refresh(), name).path.removeprefix("file://"))


def spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))


@pytest.mark.parametrize("lose", [spoil, Path.unlink])
def test_where_the_file_it_was_renamed_in_is_lost_its_version_from_before_is_taken_again(
    one, declare, lose
):
    declare(named(NEW))
    refresh_in_process(named(NEW), run_id="second")
    lost = newest_file(one, NEW)
    lose(lost)
    said = preview(one, named(NEW)).decision
    assert (said.action, str(lost) in said.reason) == ("none", True)
    assert f"publishes its version from before it was renamed from {builds.INDEX!r}" in said.reason
    done = refresh_in_process(named(NEW), run_id="third")
    assert done["action"] == "none"
    assert str(lost) in done["reason"]
    assert (
        f"published its version from before it was renamed from {builds.INDEX!r}" in done["reason"]
    )
    assert all_index_names(one.refresh()) == [NEW]
    assert newest_file(one, NEW) != lost
    builds.assert_answers(open_index(one, NEW), one, one.current_snapshot().snapshot_id, QUERIES, 5)
    assert doctor(one, [named(NEW)], fix=True).problems_left == 0
    assert newest_version(one.refresh(), NEW) is not None


def test_a_refresh_then_adds_what_came_since(one, declare):
    renamed = named(NEW, refresh={"min_rows": 1, "delta_ratio": 1.0})
    declare(renamed)
    refresh_in_process(renamed, run_id="second")
    spoil(newest_file(one, NEW))
    one.append(builds.rows(range(100, 103)))
    assert refresh_in_process(renamed, run_id="third")["action"] == "refresh"
    (found,) = status(one.refresh(), NEW)
    assert (found.coverage, found.delta_rows, found.vectors) == (1.0, 3, 63)


def test_where_no_file_of_it_can_be_read_the_build_says_so(one, declare):
    former = newest_file(one, builds.INDEX)
    declare(named(NEW))
    refresh_in_process(named(NEW), run_id="second")
    files = (newest_file(one, NEW), former)
    for path in files:
        spoil(path)
    said = preview(one, named(NEW)).decision
    assert (said.action, said.seconds > 0) == ("build", True)
    assert said.reason.startswith("no readable version of the index is published; file://")
    assert all(f"{path}: " in said.reason for path in files)
    assert refresh_in_process(named(NEW), run_id="third")["reason"] == said.reason


def test_what_was_dropped_under_its_new_name_stays_dropped(one, declare):
    declare(named(NEW))
    refresh_in_process(named(NEW), run_id="second")
    lost = newest_file(one, NEW)
    drop(one.refresh(), NEW)
    if lost.exists():
        spoil(lost)
    assert carry_over(one.refresh(), named(NEW)) is None


def test_where_no_file_is_whole_the_build_under_the_new_name_is_named(one, declare):
    path = Path(newest_version(one, builds.INDEX).path.removeprefix("file://"))
    path.write_bytes(path.read_bytes() + b"junk")  # read by its registered length, it is well
    renamed = named(NEW)
    declare(renamed)
    with pytest.raises(DamagedIndexError, match=f"'puffin-ann build {NEW} --force'"):
        refresh_in_process(renamed, run_id="r", force=True)
    builds.build(renamed, "anew", {"force": True})
    assert newest_version(one.refresh(), NEW) is not None
