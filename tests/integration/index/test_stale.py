"""When an index counts as stale: by coverage, by the age of what it does not cover."""

import builds
import pytest

from puffin_ann.errors import DeclarationError
from puffin_ann.lifecycle.inventory import now_ms
from puffin_ann.lifecycle.stale import staleness, staleness_of

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
    base = built.refresh().current_snapshot().parent_snapshot_id
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
    with pytest.raises(DeclarationError, match="declared are: mine"):
        staleness_of("other")
