"""An index is published under another name without being built; advice says when to do that."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from puffin_ann.cli.app import app
from puffin_ann.errors import BadInputError, DamagedIndexError, IndexNotFoundError
from puffin_ann.lake.metadata.own_tags import PREFIX, own_tags
from puffin_ann.lake.store.listing import list_objects
from puffin_ann.lifecycle.evaluate.records import Evaluation, evaluations, record
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.former_names import (
    advice_to_rename,
    find_declarations,
    former_name,
)
from puffin_ann.lifecycle.maintain.rename import RenameReport, rename
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.plan import preview
from puffin_ann.lifecycle.report.status import grid, status
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runtime.leases import index_folder, index_lease
from puffin_ann.search.open_index import open_index
from puffin_ann.search.version.versions import all_index_names, find_versions, newest_version
from puffin_ann.settings import settings
from tests.support.lifecycle import builds
from tests.support.lifecycle.renamed import NEW, named

QUERIES = np.random.default_rng(3).normal(size=(3, builds.DIMENSION)).astype(np.float32)


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
        for declaration in declarations:
            text = yaml.safe_dump(declaration.model_dump(mode="json"))
            (folder / f"{declaration.name}.yaml").write_text(text)

    yield write
    settings.cache_clear()


def renamed_to(declaration, **options) -> RenameReport:
    """Rename the index that the fixture built, as the command does."""
    return rename(builds.INDEX, declaration, find_declarations(), **options)


def shards_of(table, name: str):
    version = find_versions(table, name).versions[0]
    return [(shard.shard_id, shard.rows, shard.bytes) for shard in version.routing.shards]


@pytest.mark.parametrize("algorithm", ["exact", "vamana", "centroid"])
def test_the_same_index_is_published_under_the_new_name(words, declare, algorithm):
    parameters = builds.PARAMETERS.get(algorithm, {})
    builds.build(builds.declaration(algorithm=algorithm, parameters=parameters), "run")
    words.refresh()
    query = np.array(builds.rows([3]).column("embedding").to_pylist(), np.float32)
    before = open_index(words, builds.INDEX).search(query, k=5)
    history_before = [entry.snapshot_id for entry in words.history()]
    shards = shards_of(words, builds.INDEX)
    renamed = named(NEW, algorithm=algorithm, parameters=parameters)
    declare(renamed)
    report = renamed_to(renamed)
    words.refresh()
    assert (report.before, report.after) == (builds.INDEX, NEW)
    assert own_tags(words)[report.snapshot_id].startswith(f"{PREFIX}{NEW}_")
    assert [entry.snapshot_id for entry in words.history()] == history_before
    assert all_index_names(words) == [NEW]
    assert open_index(words, NEW).search(query, k=5).equals(before)
    assert shards_of(words, NEW) == shards
    version = find_versions(words, NEW).versions[0]
    assert yaml.safe_load(version.routing.properties["declaration"])["name"] == NEW
    assert doctor(words, [renamed]).problems_left == 0
    again = builds.build(renamed, "third")
    assert (again.action, "covers exactly" in again.reason) == ("none", True)


def under(table, name: str) -> set[str]:
    """Names of what is kept beside an index."""
    return {
        list_stored_object.uri.rpartition("/")[2]
        for list_stored_object in list_objects(table.io, index_folder(table, name))
    }


def test_the_history_goes_on_under_the_new_name_and_tells_that_it_was_renamed(one, declare):
    measured = evaluation(one)
    record(one, measured)
    declare(named(NEW))
    before = history(one, builds.INDEX).entries
    renamed_to(named(NEW), run_id="manual__second")
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
    renamed_to(named(NEW))
    assert under(one, builds.INDEX) == set()
    assert lease.look() is None


def test_what_changed_meanwhile_is_for_the_next_run(one, declare):
    one.append(builds.rows(range(100, 120)))
    declare(named(NEW))
    renamed_to(named(NEW))
    assert status(one.refresh(), NEW)[0].rows_to_scan == 20
    assert builds.build(named(NEW), "third").action == "build"
    assert all_index_names(one.refresh()) == [NEW]


def test_a_refresh_then_adds_what_was_added_meanwhile(one, declare):
    one.append(builds.rows(range(100, 103)))
    renamed = named(NEW, refresh={"min_rows": 1, "delta_ratio": 1.0})
    declare(renamed)
    renamed_to(renamed)
    assert refresh_in_process(renamed, run_id="second")["action"] == "refresh"
    assert all_index_names(one.refresh()) == [NEW]
    (found,) = status(one, NEW)
    assert (found.coverage, found.delta_rows, found.vectors) == (1.0, 3, 63)


def test_planning_renames_nothing_and_advises_to(one, declare):
    declare(named(NEW))
    command = f"'puffin-ann rename {builds.INDEX} {NEW}'"
    expected = preview(one, named(NEW)).decision
    assert (expected.action, command in expected.reason) == ("build", True)
    (unbuilt,) = (found for found in doctor(one, [named(NEW)]).findings if found.kind == "unbuilt")
    assert command in unbuilt.remedy
    (orphan,) = (
        found for found in doctor(one, [named(NEW)]).findings if found.kind == "undeclared"
    )
    assert orphan.remedy.startswith(f"if it was renamed, {command}; else declare it")
    (found,) = status(one, None, [named(NEW)])
    assert found.renamed_to == NEW
    assert command in " ".join(cell for column in grid(found).columns for cell in column.cells)
    plan = builds.build(named(NEW), "second")
    assert (plan.action, command in plan.reason) == ("build", True)
    assert all_index_names(one.refresh()) == [NEW, builds.INDEX]


def test_other_indexes_of_the_table_stay(one, declare):
    other = named("other", seed=3)
    builds.build(other, "run")
    declare(named(NEW), other)
    renamed_to(named(NEW))
    assert all_index_names(one.refresh()) == [NEW, "other"]


@pytest.mark.parametrize(
    "known",
    [
        [named(NEW), builds.declaration()],
        [named(NEW), named("newer")],
        [named(NEW, seed=9)],
        [],
        [named("elsewhere")],
    ],
)
def test_nothing_is_advised_unless_it_is_clear_what_was_renamed(one, declare, known):
    declare(*known)
    wanted = known[0] if known and known[0].name == NEW else named(NEW)
    assert advice_to_rename(one, wanted) == ""


@pytest.mark.parametrize(
    ("before", "wanted", "known", "error", "told"),
    [
        (builds.INDEX, named(NEW), [builds.declaration()], BadInputError, "is still declared"),
        (builds.INDEX, named(NEW, seed=9), [], BadInputError, "has another shape"),
        (builds.INDEX, builds.declaration(), [], BadInputError, "is published already"),
        ("nobody", named(NEW), [], IndexNotFoundError, "nobody"),
        ("../x", named(NEW), [], BadInputError, "x"),
    ],
)
def test_what_cannot_be_renamed_is_refused_and_nothing_changes(
    one, before, wanted, known, error, told
):
    metadata = one.metadata_location
    with pytest.raises(error, match=told):
        rename(before, wanted, known)
    assert one.refresh().metadata_location == metadata


def test_two_orphans_of_the_same_shape_leave_it_open_which_was_renamed(one):
    builds.build(named("second"), "run")
    assert former_name(one.refresh(), named(NEW), [named(NEW)]) is None
    assert former_name(one, named(NEW), [named(NEW), named("second")]) == builds.INDEX


def test_with_a_broken_declaration_beside_it_nothing_is_advised(one, declare, tmp_path):
    declare(named(NEW))
    (tmp_path / "indexes" / "broken.yaml").write_text("table: [")
    assert advice_to_rename(one, named(NEW)) == ""


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
    assert "else declare it" in finding.remedy
    assert finding.remedy.endswith(f"'puffin-ann drop test.demo.words {builds.INDEX}'")


def newest_file(table, name: str) -> Path:
    return Path(newest_version(table.refresh(), name).path.removeprefix("file://"))


def corrupt(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))


@pytest.mark.parametrize("lose", [corrupt, Path.unlink])
def test_where_the_file_it_was_renamed_in_is_lost_its_version_from_before_is_taken_again(
    one, declare, lose
):
    declare(named(NEW))
    renamed_to(named(NEW))
    lost = newest_file(one, NEW)
    lose(lost)
    said = preview(one, named(NEW)).decision
    assert (said.action, str(lost) in said.reason) == ("build", True)
    command = f"'puffin-ann rename {builds.INDEX} {NEW}' publishes that again"
    assert command in said.reason
    doctor(one, [named(NEW)], fix=True)  # the lost file is not even registered any more
    assert command in preview(one.refresh(), named(NEW)).decision.reason
    renamed_to(named(NEW))
    assert all_index_names(one.refresh()) == [NEW]
    assert newest_file(one, NEW) != lost
    builds.assert_answers(open_index(one, NEW), one, one.current_snapshot().snapshot_id, QUERIES, 5)
    assert doctor(one, [named(NEW)], fix=True).problems_left == 0
    assert newest_version(one.refresh(), NEW) is not None


def test_a_refresh_then_adds_what_was_added_since(one, declare):
    renamed = named(NEW, refresh={"min_rows": 1, "delta_ratio": 1.0})
    declare(renamed)
    renamed_to(renamed)
    corrupt(newest_file(one, NEW))
    one.append(builds.rows(range(100, 103)))
    renamed_to(renamed)
    assert refresh_in_process(renamed, run_id="third")["action"] == "refresh"
    (found,) = status(one.refresh(), NEW)
    assert (found.coverage, found.delta_rows, found.vectors) == (1.0, 3, 63)


def test_where_no_file_of_it_can_be_read_the_build_says_so(one, declare):
    former = newest_file(one, builds.INDEX)
    declare(named(NEW))
    renamed_to(named(NEW))
    files = (newest_file(one, NEW), former)
    for path in files:
        corrupt(path)
    said = preview(one, named(NEW)).decision
    assert (said.action, said.seconds > 0) == ("build", True)
    assert said.reason.startswith("no readable version of the index is published; file://")
    assert all(f"{path}: " in said.reason for path in files)
    assert refresh_in_process(named(NEW), run_id="third")["reason"] == said.reason


def test_what_was_dropped_under_its_new_name_stays_dropped(one, declare):
    declare(named(NEW))
    renamed_to(named(NEW))
    lost = newest_file(one, NEW)
    drop(one.refresh(), NEW)
    if lost.exists():
        corrupt(lost)
    assert advice_to_rename(one.refresh(), named(NEW)) == ""
    with pytest.raises(IndexNotFoundError):
        renamed_to(named(NEW))


def test_where_no_file_is_whole_the_build_under_the_new_name_is_named(one, declare):
    path = Path(newest_version(one, builds.INDEX).path.removeprefix("file://"))
    path.write_bytes(path.read_bytes() + b"junk")  # read by its registered length, it is well
    renamed = named(NEW)
    declare(renamed)
    with pytest.raises(DamagedIndexError, match=f"'puffin-ann build {NEW} --force'"):
        renamed_to(renamed)
    builds.build(renamed, "anew", {"force": True})
    assert newest_version(one.refresh(), NEW) is not None


def test_the_command_renames_and_says_so(one, declare):
    declare(named(NEW))
    done = CliRunner().invoke(app, ["rename", builds.INDEX, NEW])
    assert done.exit_code == 0, done.output
    assert f"is published as {NEW}, without being built" in " ".join(done.stdout.split())
    assert all_index_names(one.refresh()) == [NEW]
    again = CliRunner().invoke(app, ["rename", builds.INDEX, NEW, "--json"])
    assert isinstance(again.exception, BadInputError)


@pytest.mark.usefixtures("published_by_statistics")
def test_where_versions_have_no_tags_the_table_has_one_file_with_the_new_name(one, declare):
    builds.build(named("other", seed=3), "run")
    before = builds.snapshot_ids(one)
    declare(named(NEW), named("other", seed=3))
    report = renamed_to(named(NEW))
    assert builds.snapshot_ids(one.refresh()) == before
    assert own_tags(one) == {}
    assert {entry.statistics_path for entry in one.metadata.statistics} == {report.file}
    assert all_index_names(one) == [NEW, "other"]
    builds.assert_answers(open_index(one, NEW), one, before[-1], QUERIES, 5)


def test_an_index_that_has_a_tag_keeps_one_whatever_is_declared(one, declare):
    renamed = named(NEW, publish="statistics")
    declare(renamed)
    report = renamed_to(renamed)
    assert report.snapshot_id in own_tags(one.refresh())
    assert all_index_names(one) == [NEW]
