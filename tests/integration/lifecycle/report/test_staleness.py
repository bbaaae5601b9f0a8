"""When an index counts as stale, by coverage and age, and when its shards as due for a rebuild."""

import pytest

from puffin_ann.errors import DeclarationError
from puffin_ann.lifecycle.report.staleness import staleness, staleness_of, tombstones, tombstones_of
from puffin_ann.moments import now_ms
from tests.support.lifecycle import builds, refreshes

PATIENT = builds.declaration(refresh={"min_coverage": 0.5, "max_lag": "1h"})
HOUR_MS = 3_600_000


@pytest.fixture
def built(words):
    builds.build(PATIENT, "build-1")
    return words


def test_what_is_not_built_is_stale(words):
    found = staleness(PATIENT)
    assert (found.is_stale, found.coverage) == (True, 0.0)


def test_an_index_that_covers_everything_is_not_however_old_it_is(built):
    found = staleness(PATIENT, at_ms=now_ms() + 1000 * HOUR_MS)
    assert (found.is_stale, found.coverage, found.lag_seconds) == (False, 1.0, 0.0)


def test_few_changes_are_stale_when_they_have_waited(built):
    built.append(builds.rows([100]))
    assert not staleness(PATIENT).is_stale
    found = staleness(PATIENT, at_ms=now_ms() + HOUR_MS + 1000)
    assert found.is_stale
    assert 3600 < found.lag_seconds < 3660
    assert "max_lag is 1h" in found.reason


def test_the_oldest_change_counts(built):
    built.append(builds.rows([100]))
    first = built.current_snapshot().timestamp_ms
    built.append(builds.rows([101]))
    found = staleness(PATIENT, at_ms=first + HOUR_MS)
    assert found.lag_seconds == pytest.approx(3600)


def test_low_coverage_is_stale_at_once(built):
    built.append(builds.rows(range(100, 200)))
    found = staleness(PATIENT)
    assert found.is_stale
    assert found.coverage == pytest.approx(60 / 160)
    assert "min_coverage is 50.00%" in found.reason


def test_after_a_rollback_the_version_of_then_counts(built):
    """It is what answers, and what a refresh would start from: there is nothing to be done."""
    base = built.refresh().current_snapshot().snapshot_id
    built.append(builds.rows(range(100, 200)))
    builds.build(PATIENT, "build-2", {"force": True})
    built.refresh().manage_snapshots().set_current_snapshot(snapshot_id=base).commit()
    found = staleness(PATIENT, at_ms=now_ms() + 1000 * HOUR_MS)
    assert (found.is_stale, found.coverage, found.lag_seconds) == (False, 1.0, 0.0)


def test_an_index_is_found_by_its_declaration(built, tmp_path, monkeypatch):
    from puffin_ann.settings import settings

    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(tmp_path))
    settings.cache_clear()
    (tmp_path / "mine.yaml").write_text(f"table: {PATIENT.table}\ncolumn: embedding\n")
    assert staleness_of("mine").reason == "not built yet"
    with pytest.raises(DeclarationError, match="no index named"):
        staleness_of("other")


class TestTombstones:
    STRICT = builds.declaration(
        refresh={"min_rows": 10, "max_lag": "1h"}, rebuild={"tombstone_ratio": 0.3}
    )

    @pytest.fixture
    def built(self, words):
        builds.build(self.STRICT, "build-1")
        return words.refresh()

    def test_an_index_that_is_not_built_has_none(self, words):
        assert tombstones(self.STRICT).reason == "not built yet"
        assert not tombstones(self.STRICT).is_due

    def test_rows_deleted_since_count_once_a_refresh_would_publish_them(self, built):
        assert not tombstones(self.STRICT).is_due
        refreshes.delete_merge_on_read(built, 4)
        assert not tombstones(self.STRICT, ratio=0.1).is_due
        late = tombstones(self.STRICT, ratio=0.1, at_ms=now_ms() + HOUR_MS + 1000)
        assert late.is_due
        assert all(0.1 < ratio < 0.2 for ratio in late.ratios.values())
        assert "above the ratio asked for, 10.0%" in late.reason
        refreshes.delete_merge_on_read(built, 15)
        found = tombstones(self.STRICT)
        assert found.is_due
        assert "above rebuild.tombstone_ratio 30.0%" in found.reason

    def test_a_maintenance_run_leaves_nothing_due_and_a_plain_refresh_does(self, built):
        refreshes.delete_merge_on_read(built, 15)
        refreshes.refresh(built, self.STRICT, "refresh-1")
        found = tombstones(self.STRICT)
        held = refreshes.shards(built)
        assert found.ratios == {
            number: pytest.approx(one.tombstones / one.rows)
            for number, one in held.items()
            if one.tombstones > 0.3 * one.rows
        }
        assert found.is_due
        refreshes.refresh(built, self.STRICT, "maintain-1", maintenance=True)
        left = tombstones(self.STRICT)
        assert (left.is_due, left.ratios) == (False, {})

    def test_an_index_without_shards_is_never_due(self, words):
        declared = builds.declaration(algorithm="centroid")
        builds.build(declared, "build-1")
        refreshes.delete_merge_on_read(words.refresh(), 20)
        assert not tombstones(declared, at_ms=now_ms() + 1000 * HOUR_MS).is_due

    def test_an_index_is_found_by_its_declaration(self, built, tmp_path, monkeypatch):
        from puffin_ann.settings import settings

        monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(tmp_path))
        settings.cache_clear()
        (tmp_path / "mine.yaml").write_text(f"table: {PATIENT.table}\ncolumn: embedding\n")
        assert tombstones_of("mine").reason == "not built yet"
        with pytest.raises(DeclarationError, match="no index named"):
            tombstones_of("other")
