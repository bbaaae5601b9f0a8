"""The doctor finds and names what is wrong, repairs what can be repaired, and says so."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from puffin_ann.cli.app import app
from puffin_ann.errors import BadInputError, NotFoundError, PuffinAnnError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.maintain import drop
from puffin_ann.lifecycle.report.status import as_text, status
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.moments import now_ms
from puffin_ann.settings import settings
from tests.support.falsified import damage
from tests.support.lake import table_events
from tests.support.lifecycle import builds

DECLARED = [builds.declaration()]
DAYS_MS = 24 * table_events.HOUR_MS


def kinds(found, *, problems: bool = True) -> list[str]:
    return sorted(finding.kind for finding in found.findings if finding.is_problem == problems)


def snapshots_of(table) -> tuple[int, int]:
    """The index snapshot and its base, right after a publication."""
    head = table.refresh().current_snapshot()
    return head.snapshot_id, head.parent_snapshot_id


def test_a_sound_table_has_nothing_to_say(words):
    (unbuilt,) = doctor(words, DECLARED).findings
    assert (unbuilt.kind, unbuilt.indexes, unbuilt.is_problem) == (
        "unbuilt",
        (builds.INDEX,),
        False,
    )
    table_events.publish(words, "a")
    found = doctor(words, DECLARED)
    assert found.findings == ()
    assert found.problems_left == 0


@pytest.mark.usefixtures("published_on_main")
def test_a_dropped_registration_is_named_and_repaired(words):
    path = table_events.publish(words, "a")
    index_snapshot, base = snapshots_of(words)
    table_events.drop_registration(words, index_snapshot)
    told = kinds(doctor(words, DECLARED), problems=False)  # the base's is left
    assert told == ["dropped", "untagged"]
    table_events.drop_registration(words, base)
    finding, told = doctor(words, DECLARED).findings
    assert told.kind == "untagged"
    assert (finding.kind, finding.indexes, finding.file) == ("dropped", (builds.INDEX,), path)
    assert str(index_snapshot) in finding.what
    fixed = doctor(words, DECLARED, fix=True)
    assert fixed.findings[0].repaired
    assert fixed.problems_left == 0
    assert any("had no tag" in action for action in fixed.actions)
    assert doctor(words, DECLARED).findings == ()
    table_events.assert_alive(words)


@pytest.mark.usefixtures("published_on_main")
def test_a_replaced_registration_is_named_with_what_replaced_it(words):
    table_events.publish(words, "a")
    theirs = [table_events.analyse(words, snapshot_id) for snapshot_id in snapshots_of(words)]
    finding, told = doctor(words, DECLARED).findings
    assert finding.kind == "replaced"
    assert theirs[0] in finding.what
    assert (told.kind, told.is_problem) == ("untagged", False)
    assert "the guard publishes it under one, which copies" in told.remedy
    fixed = doctor(words, DECLARED, fix=True)
    assert fixed.problems_left == 0
    assert kinds(doctor(words, DECLARED)) == []
    assert set(theirs) <= {entry.statistics_path for entry in slots(words.refresh()).values()}
    table_events.assert_alive(words)


def test_a_dangling_registration_is_named_and_removed(words):
    table_events.publish(words, "a")
    words.append(builds.rows(range(60, 62)))
    second = table_events.publish(words, "b")
    words.io.delete(second)
    (told,) = status(words, builds.INDEX)
    assert told.file != second
    assert told.problems == (f"{second} is gone from the store",)
    assert f"'puffin-ann doctor {name_of(words)}'" in as_text([told])
    found = doctor(words, DECLARED)
    assert kinds(found) == ["dangling"]
    assert found.findings[0].file == second
    for command in (f"'puffin-ann doctor {name_of(words)} --fix'", f"refresh {builds.INDEX}'"):
        assert command in found.findings[0].remedy
    assert doctor(words, DECLARED, fix=True).problems_left == 0
    assert doctor(words, DECLARED).findings == ()
    table_events.assert_alive(words)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"column": "embeding"}, "has no top-level column 'embeding'"),
        ({"column": "word"}, "a vector column is list<float>"),
        ({"key": "wrod"}, "has no top-level column 'wrod'"),
        ({"include": ("wrod",)}, "has no top-level column 'wrod'"),
    ],
)
def test_what_the_next_run_would_refuse_is_told_before_it(words, fields, says):
    declared = [builds.declaration(**fields)]
    (finding,) = doctor(words, declared).findings
    assert (finding.kind, finding.indexes, finding.is_problem) == ("unfit", (builds.INDEX,), True)
    assert "cannot be built as it is declared" in finding.what
    assert says in finding.what
    table_events.publish(words, "a")
    (finding,) = doctor(words, declared).findings
    assert "cannot be refreshed as it is declared" in finding.what
    assert says in finding.what


def test_an_index_of_which_others_declarations_are_not_valid_is_told_of_as_declared(words):
    table_events.publish(words, "a")
    assert doctor(words, DECLARED, is_all=False).findings == ()
    (finding,) = doctor(words, [], is_all=False).findings
    assert (finding.kind, finding.is_problem) == ("unknown", False)
    fixed = doctor(words, DECLARED, is_all=False, fix=True)
    assert "not known what is to be kept" in fixed.actions[-1]


def test_a_lost_index_cannot_be_repaired(words):
    words.io.delete(table_events.publish(words, "a"))
    assert kinds(doctor(words, DECLARED)) == ["dangling", "lost"]
    fixed = doctor(words, DECLARED, fix=True)
    repaired = {finding.kind: finding.repaired for finding in fixed.findings if finding.is_problem}
    assert repaired == {"dangling": True, "lost": False}
    assert fixed.problems_left == 1


@pytest.mark.parametrize(("days", "expected"), [(3.9, []), (4.1, ["expiring"])])
@pytest.mark.usefixtures("published_by_statistics")
def test_a_registration_about_to_expire_is_named_a_day_ahead(words, days, expected):
    table_events.publish(words, "a")
    words.append(builds.rows(range(60, 62)))
    # The snapshots' own times are now; what counts as now is moved, Iceberg keeps 5 days.
    at = now_ms() + int(days * DAYS_MS)
    assert kinds(doctor(words, DECLARED, at_ms=at)) == expected
    assert doctor(words, DECLARED, fix=True, at_ms=at).problems_left == 0
    assert kinds(doctor(words, DECLARED, at_ms=at)) == []


@pytest.mark.usefixtures("published_by_statistics")
def test_the_tables_own_properties_say_when_a_snapshot_expires(words):
    table_events.publish(words, "a")
    words.append(builds.rows(range(60, 62)))
    day = {"history.expire.max-snapshot-age-ms": str(DAYS_MS)}
    words.transaction().set_properties(day).commit_transaction()
    assert kinds(doctor(words, DECLARED, at_ms=now_ms() + table_events.HOUR_MS)) == ["expiring"]
    keep = {"history.expire.min-snapshots-to-keep": "3"}
    words.transaction().set_properties(keep).commit_transaction()
    assert kinds(doctor(words, DECLARED, at_ms=now_ms() + table_events.HOUR_MS)) == []


def test_an_orphan_is_a_problem_once_its_grace_is_over(words):
    table_events.publish(words, "a")
    orphan = f"{words.location()}/metadata/ann-{builds.INDEX}-1-dead-beef.puffin"
    with words.io.new_output(orphan).create() as out:
        out.write(b"half a file")
    assert kinds(doctor(words, DECLARED), problems=False) == ["orphan"]
    at = now_ms() + 25 * table_events.HOUR_MS
    found = doctor(words, DECLARED, at_ms=at)
    assert [(finding.kind, finding.file) for finding in found.findings] == [("orphan", orphan)]
    assert doctor(words, DECLARED, fix=True, at_ms=at).problems_left == 0
    assert orphan not in table_events.index_files(words)


def test_an_index_that_is_no_longer_declared_is_named(words):
    table_events.publish(words, "a")
    found = doctor(words, [builds.declaration(name="another")])
    assert [(finding.kind, finding.indexes) for finding in found.findings] == [
        ("undeclared", (builds.INDEX,)),
        ("unbuilt", ("another",)),
    ]
    assert "it records: column 'embedding'" in found.findings[0].what
    assert found.findings[0].remedy.startswith(
        f"if it was renamed, 'puffin-ann rename {builds.INDEX} another'; else declare it"
    )


def test_without_declarations_it_is_told_that_nothing_is_known_of_them(words):
    table_events.publish(words, "a")
    (finding,) = doctor(words).findings
    assert (finding.kind, finding.is_problem) == ("unknown", False)
    assert "drop" not in finding.what + finding.remedy


def lose(table) -> None:
    """What Spark's compute_table_stats, two inserts and expire_snapshots(retain_last => 1) do."""
    table_events.publish(table, "a")
    table_events.analyse(table)
    for number in (70, 80):
        table.append(builds.rows(range(number, number + 3)))
    table_events.expire_all_but_head(table)
    assert table_events.index_files(table) == set()
    assert not any("ann." in str(snapshot.summary) for snapshot in table.refresh().snapshots())


@pytest.mark.usefixtures("published_on_main")
def test_a_declared_index_that_others_maintenance_took_is_a_problem(words):
    lose(words)
    found = doctor(words, DECLARED)
    (finding,) = [finding for finding in found.findings if finding.is_problem]
    assert (finding.kind, finding.indexes) == ("lost", (builds.INDEX,))
    assert "earlier metadata names its publication" in finding.what
    assert f"puffin-ann build {builds.INDEX}" in finding.remedy
    assert found.problems_left == doctor(words, DECLARED, fix=True).problems_left == 1
    table_events.publish(words, "b")
    assert kinds(doctor(words, DECLARED)) == []


@pytest.mark.usefixtures("published_on_main")
def test_a_lost_index_is_known_by_what_was_measured_of_it_where_the_log_is_gone(words, monkeypatch):
    lose(words)
    monkeypatch.setattr(
        "puffin_ann.lifecycle.maintain.examination.published_before.metadata_document",
        lambda *_: None,
    )
    assert "unbuilt" in kinds(doctor(words, DECLARED), problems=False)
    place = leases.index_folder(words, builds.INDEX)
    with words.io.new_output(f"{place}/_evaluation-1700000000000-0123abcd.json").create() as out:
        out.write(b"{}")
    assert "lost" in kinds(doctor(words, DECLARED))


def test_an_index_that_was_dropped_and_is_declared_again_is_not_lost(words):
    table_events.publish(words, "a")
    drop.drop(words, builds.INDEX)
    table_events.expire_all_but_head(words.refresh())
    found = doctor(words, DECLARED)
    assert "lost" not in kinds(found)
    assert "unbuilt" in kinds(found, problems=False)


def test_settings_of_spark_that_an_earlier_version_recorded_are_told_by_name(words, monkeypatch):
    declared = builds.declaration(spark={"conf": {"fs.s3a.secret.key": "TOPSECRET"}})
    text = json.dumps({**declared.model_dump(mode="json"), "spark": declared.spark.model_dump()})
    with monkeypatch.context() as before:
        before.setattr(type(declared), "model_dump_json", lambda *_, **__: text)
        table_events.publish(words, "a")
    (finding,) = doctor(words, DECLARED).findings
    assert finding.kind == "secret"
    assert "fs.s3a.secret.key" in finding.what
    assert "TOPSECRET" not in finding.what + finding.remedy
    table_events.publish(words, "b")
    assert doctor(words, DECLARED).findings == ()


def test_after_a_rollback_the_version_of_then_is_not_stale(words):
    table_events.publish(words, "a")
    base = words.current_snapshot().snapshot_id
    words.append(builds.rows(range(60, 160)))
    table_events.publish(words, "b")
    words.manage_snapshots().set_current_snapshot(snapshot_id=base).commit()
    assert [
        finding.kind for finding in doctor(words, quick=True).findings if finding.is_problem
    ] == []


def test_stale_coverage_is_named_with_its_rows(words):
    table_events.publish(words, "a")
    words.append(builds.rows(range(60, 63)))
    assert kinds(doctor(words, DECLARED)) == []  # 3 rows of 63 are no reason to build
    words.append(builds.rows(range(63, 90)))
    words.delete("id < 5")
    (finding,) = doctor(words, DECLARED).findings
    assert finding.kind == "stale"
    assert "scan 55 rows" in finding.what  # the file that held the deleted ones was rewritten
    assert f"puffin-ann refresh {builds.INDEX}" in finding.remedy
    undeclared = [finding for finding in doctor(words, []).findings if finding.kind == "stale"]
    assert ["declare it again" in finding.remedy for finding in undeclared] == [True]
    assert doctor(words, DECLARED, fix=True).problems_left == 1
    table_events.publish(words, "b")
    assert kinds(doctor(words, DECLARED)) == []


def test_a_corrupted_byte_of_any_blob_is_found_unless_told_to_be_quick(words):
    path = table_events.publish(words, "a")
    damage.corrupt(path.removeprefix("file://"), "graph")
    (finding,) = doctor(words, DECLARED).findings
    assert finding.kind == "damaged"
    assert "checksum" in finding.what
    assert "shard 0" in finding.what
    assert doctor(words, DECLARED, quick=True).findings == ()
    assert doctor(words, DECLARED, fix=True).problems_left == 0
    assert doctor(words, DECLARED).findings == ()


def test_a_file_of_another_length_than_registered_is_damaged(words):
    path = table_events.publish(words, "a")
    with open(path.removeprefix("file://"), "ab") as file:
        file.write(b"more")
    assert kinds(doctor(words, DECLARED, quick=True)) == ["damaged", "lost"]


@pytest.fixture
def command(words, tmp_path, monkeypatch):
    """Run the command line with one declared index; returns its exit code and what it printed."""
    folder = tmp_path / "indexes"
    folder.mkdir()
    declared = builds.declaration().model_dump(mode="json")
    (folder / f"{builds.INDEX}.yaml").write_text(yaml.safe_dump(declared))
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(folder))
    settings.cache_clear()

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, list(arguments))
        if isinstance(result.exception, PuffinAnnError):  # which `run` tells in one line
            return result.exception.exit_code, str(result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.output

    return run


def test_the_command_tells_people_and_machines_and_leaves_with_a_code(words, command):
    table_events.publish(words, "a")
    assert command("doctor", "test.demo.words")[0] == 0
    for slot in tuple(slots(words.refresh())):
        table_events.drop_registration(words, slot)
    code, text = command("doctor", "test.demo.words")
    assert code == 8
    assert "dropped" in text
    code, text = command("doctor", "test.demo.words", "--json", "--quick")
    assert code == 8
    assert json.loads(text)["problems_left"] == 1
    code, text = command("doctor", "test.demo.words", "--fix")
    assert code == 0
    assert "repaired" in text
    assert "did: registered" in text
    assert command("doctor", "test.demo.words")[1] == "test.demo.words: nothing is wrong\n"


def test_what_is_listed_beside_problems_is_said_to_be_none(words, command):
    code, text = command("doctor", "test.demo.words")
    assert (code, "(unbuilt)" in text) == (0, True)
    assert "nothing is wrong: what stands in brackets is no problem" in text


def test_the_command_lists_what_would_go_and_then_removes_it(words, command):
    first = table_events.publish(words, "a")
    for run in ("b", "c"):
        words.append(builds.rows(range(60, 62)))
        table_events.publish(words, run)
    code, text = command("clean", "test.demo.words", "--dry-run", "--grace", "0s", "--json")
    assert code == 0
    (gone,) = json.loads(text)["gone"]
    assert gone["location"] == first
    assert gone["why"] == f"index '{builds.INDEX}' has 2 newer versions, 2 are kept"
    (tag,) = gone["tags"]
    assert tag.startswith(f"puffin_ann_{builds.INDEX}_")
    assert "nothing to delete" in command("clean", "test.demo.words", "--dry-run")[1]
    text = command("clean", "test.demo.words", "--grace", "0s")[1]
    assert "1 object removed" in text
    assert "with tag" in " ".join(text.split())
    assert first not in table_events.index_files(words)
    assert command("clean", "test.demo.words", "--grace", "soon")[0] == 2


def test_who_is_at_work_is_told_and_no_problem(words):
    table_events.publish(words, "a")
    with leases.writing(words, builds.INDEX, "run-a", "refresh"):
        (finding,) = doctor(words, DECLARED).findings
    assert (finding.kind, finding.is_problem) == ("lease", False)
    assert "refresh (run run-a) since" in finding.what
    assert "--break-lease" in finding.remedy
    assert doctor(words, DECLARED).findings == ()


@pytest.mark.parametrize("content", ["{half", '{"until_ms": 4000000000000000000}'])
def test_a_claim_that_no_run_made_is_a_problem_until_it_is_repaired(words, content):
    table_events.publish(words, "a")
    folder = leases.index_folder(words, builds.INDEX)
    place = Staging(words.io, folder)
    place.put("_lease-99999999", content.encode())
    (finding,) = doctor(words, DECLARED).findings
    assert (finding.kind, finding.indexes) == ("lease", (builds.INDEX,))
    assert finding.file == f"{folder}/_lease-99999999"
    fixed = doctor(words, DECLARED, fix=True)
    assert fixed.problems_left == 0
    assert any("removed the lease" in action for action in fixed.actions)
    assert not place.exists("_lease-99999999")


def test_a_lease_is_broken_by_name_alone(words, command):
    table_events.publish(words, "a")
    name = name_of(words)
    arguments = ("doctor", name, "--quick", "--break-lease")
    with leases.writing(words, builds.INDEX, "run-a", "refresh"):
        code, said = command(*arguments, builds.INDEX)
        assert code == 0, said
        assert "away from refresh (run run-a)" in " ".join(said.split())
        with leases.writing(words, builds.INDEX, "run-b", "build", wait=False):
            pass
    with leases.publishing(words, "run-a", "publish"):
        code, said = command(*arguments, name)
        assert "away from publish (run run-a)" in " ".join(said.split())
    with pytest.raises(NotFoundError, match="nobody holds"):
        leases.break_lease(words, builds.INDEX)
    with pytest.raises(BadInputError, match="no name of an index"):
        leases.break_lease(words, "../../evil")
