"""Which published files stay: what must hold of any history, and each reason by itself."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.declaration import RetentionOptions, parse_declaration
from puffin_ann.lifecycle.retention.rules import Verdict, apply_retention, policies
from puffin_ann.lifecycle.versions.inventory import Holding, IndexFile

HOUR_MS = 3_600_000
INDEXES = ("first", "second")


def file(number: int, *holds: Holding, at_ms: int = 0, entries: tuple[int, ...] = ()) -> IndexFile:
    """A published file, registered under some snapshots."""
    return IndexFile(
        path=f"s3://b/t/metadata/ann-{number}.puffin",
        bytes=1000,
        modified_ms=at_ms,
        footer_size=100,
        entries=dict.fromkeys(entries),
        named_by=(),
        former=None,
        number=number,
        order=number,
        published_ms=at_ms or number * HOUR_MS,
        holds=holds,
        problem="",
    )


def held(version: int, index: str = "first", base: int | None = None) -> Holding:
    return Holding(index, f"run-{version}", version if base is None else base)


def keeps(versions: int, grace: str = "1d") -> dict[str, RetentionOptions]:
    return dict.fromkeys(INDEXES, RetentionOptions(versions=versions, grace=grace))


def kept(verdicts: list[Verdict]) -> list[int]:
    return [verdict.file.number for verdict in verdicts if verdict.is_kept]


histories = st.lists(
    st.dictionaries(st.sampled_from(INDEXES), st.booleans(), min_size=1), min_size=1, max_size=12
)
"""Publications, the oldest first: the indexes each file holds, and whether by a new version."""


def published(history: list[dict[str, bool]]) -> list[IndexFile]:
    """Return the files of a history, the newest first."""
    versions: Counter[str] = Counter()
    files = []
    for number, publication in enumerate(history, start=1):
        for index, is_new in publication.items():
            versions[index] += is_new or not versions[index]
        holds = (held(versions[index], index) for index in publication)
        files.append(file(number, *holds, entries=(100 + number,)))
    return files[::-1]


@given(histories, st.integers(1, 4))
def test_the_versions_to_keep_are_each_in_one_kept_file_and_no_other_is(history, most):
    files = published(history)
    verdicts = apply_retention(files, keeps(most), {})
    newest = {}
    for file in files:
        for holding in file.holds:
            newest.setdefault((holding.index, holding.version), file.number)
    wanted = set()
    for index in INDEXES:
        wanted |= set([number for (name, _), number in newest.items() if name == index][:most])
    assert set(kept(verdicts)) == wanted


@given(histories, st.integers(1, 4))
def test_what_goes_says_why_and_since_when(history, most):
    files = published(history)
    newest_ms = files[0].published_ms
    for verdict in apply_retention(files, keeps(most, "2h"), {}):
        assert bool(verdict.reasons) != bool(verdict.superseded)
        if not verdict.is_kept:
            assert verdict.file.published_ms < verdict.since_ms <= newest_ms
            assert verdict.grace_ms == 2 * HOUR_MS


@given(histories, st.integers(1, 3))
def test_whoever_keeps_more_versions_loses_no_file_by_it(history, most):
    files = published(history)
    fewer = kept(apply_retention(files, keeps(most), {}))
    assert set(fewer) <= set(kept(apply_retention(files, keeps(most + 1), {})))


@given(histories, st.data())
def test_a_tag_keeps_the_file_registered_under_its_snapshot(history, data):
    files = published(history)
    tagged = data.draw(st.sampled_from(files))
    (snapshot,) = tagged.entries
    verdicts = apply_retention(files, keeps(1), {snapshot: ("tag 'v1'",)})
    (verdict,) = (verdict for verdict in verdicts if verdict.file is tagged)
    assert f"tag 'v1' stands at snapshot {snapshot}" in verdict.reasons


def test_a_branch_keeps_the_newest_file_that_covers_its_snapshot():
    files = [file(3, held(3)), file(2, held(2, base=7)), file(1, held(1, base=7))]
    assert kept(apply_retention(files, keeps(1), {7: ("branch 'audit'",)})) == [3, 2]


def test_a_version_that_was_carried_along_frees_the_file_it_came_from():
    carrying = file(2, held(1), held(1, "second"), at_ms=5 * HOUR_MS)
    verdicts = apply_retention([carrying, file(1, held(1))], keeps(2), {})
    assert kept(verdicts) == [2]
    assert verdicts[1].since_ms == carrying.published_ms
    assert carrying.path in verdicts[1].superseded[0]


def test_a_file_of_two_indexes_goes_only_when_neither_needs_it_and_by_the_longer_grace():
    files = [file(3, held(2, "second")), file(2, held(2)), file(1, held(1), held(1, "second"))]
    retention = keeps(1) | {"second": RetentionOptions(versions=2, grace="3d")}
    assert kept(apply_retention(files, retention, {})) == [3, 2, 1]
    retention["second"] = RetentionOptions(versions=1, grace="3d")
    *_, last = apply_retention(files, retention, {})
    assert not last.is_kept
    assert last.since_ms == files[0].published_ms, "the later of the two"
    assert last.grace_ms == 72 * HOUR_MS


@pytest.mark.parametrize("recorded", ["", "no JSON", "[]", '{"retention": {"versions": -3}}'])
def test_an_index_without_a_declaration_is_kept_by_what_was_recorded_or_the_default(recorded):
    sound = Holding("first", "run-1", 1, '{"retention": {"versions": 7}}')
    strange = Holding("second", "run-1", 1, recorded)
    found = policies([], [file(1, sound, strange)])
    assert found["first"].versions == 7
    assert found["second"] == RetentionOptions()


def test_what_is_declared_now_counts_before_what_was_recorded():
    data = {"name": "first", "table": "c.n.t", "column": "v", "retention": {"versions": 2}}
    recorded = Holding("first", "run-1", 1, '{"retention": {"versions": 7}}')
    found = policies([parse_declaration(data, source="test")], [file(1, recorded)])
    assert found["first"].versions == 2
