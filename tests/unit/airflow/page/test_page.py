"""The page of vector indexes: what it shows, to whom, and that nothing in it can run."""

import gc
import re
import time
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from puffin_ann.airflow.page import database, figures
from puffin_ann.airflow.page import overview_page as overview_page_module
from puffin_ann.airflow.page.database import Asking, Broken, Dag, Known, Run
from puffin_ann.airflow.page.index_page import index_page
from puffin_ann.airflow.page.overview_page import overview_page
from puffin_ann.airflow.page.rows import STATES, rows_of
from tests.support.cockpit.cockpit_rows import document
from tests.support.cockpit.page_rows import dags, known
from tests.support.paths import ROOT

STATIC = ROOT / "include" / "puffin_ann" / "airflow" / "page" / "static"
EVIL = "<script>alert(1)</script>"
NOW_MS = time.time_ns() // 1_000_000


def run(dag_id: str, state: str) -> Run:
    return Run(dag_id, "manual__1", state, NOW_MS - 60_000, NOW_MS - 30_000)


def only(found: Known):
    (row,) = rows_of(found, NOW_MS)
    return row


class TestStates:
    def test_an_index_that_covers_its_table_in_time_is_fresh(self):
        row = only(known(*dags("words"), documents=[document("words")]))
        assert row.state == "fresh"
        assert row.table == "demo.glove.words"

    def test_one_of_which_no_run_has_told_is_waiting(self):
        assert only(known(*dags("words"))).state == "waiting"

    @pytest.mark.parametrize(
        ("given", "words"),
        [({"lag": 7200.0}, "waits for 2 h"), ({"coverage": 0.9}, "covers 90.0%")],
    )
    def test_one_that_is_behind_its_declaration_is_stale_and_says_how(self, given, words):
        row = only(known(*dags("words"), documents=[document("words", **given)]))
        assert row.state == "stale"
        assert words in row.words

    def test_one_whose_column_is_another_by_now_is_stale_however_much_it_covers(self):
        seen = document("words")
        told = seen.overview.findings[0].model_copy(update={"kind": "column"})
        overview = seen.overview.model_copy(update={"findings": (told,)})
        seen = seen.model_copy(update={"overview": overview})
        row = only(known(*dags("words"), documents=[seen]))
        assert row.state == "stale"
        assert "its column is not what its name means by now" in row.words

    def test_one_whose_last_run_failed_is_failing_however_good_it_looks(self):
        failed = run("ann_refresh_words", "failed")
        row = only(known(*dags("words"), documents=[document("words")], last=(failed,)))
        assert row.state == "failing"
        assert row.words == "the last run failed: refresh"

    def test_a_failing_one_leads_to_its_dag_its_run_and_the_log_of_the_task_that_failed(self):
        failed = run("ann_refresh_words", "failed")
        found = known(*dags("words"), documents=[document("words")], last=(failed,))
        broken = Broken(failed, "publish", "recall is 0.90")
        row = only(replace(found, broke={(failed.dag_id, failed.run_id): broken}))
        assert row.words == "the last run failed: refresh: recall is 0.90"
        page = overview_page([row], NOW_MS)
        for at in ("", "/runs/manual__1", "/runs/manual__1/tasks/publish"):
            assert f'href="../dags/ann_refresh_words{at}"' in page
        page = index_page(row, (), (), NOW_MS)
        assert "the last run failed: refresh: recall is 0.90" in page
        assert 'href="../dags/ann_refresh_words/runs/manual__1/tasks/publish"' in page

    def test_one_whose_catalog_is_silent_is_unreachable_and_keeps_its_last_figures(self):
        silent = document("words", "unreachable", "no answer")
        row = only(known(*dags("words"), documents=[silent]))
        assert row.state == "unreachable"
        assert "figures 6 h ago" in overview_page([row], NOW_MS)

    def test_a_wrong_column_is_failing_and_not_merely_not_built(self):
        wrong = document("words", "problem", "there is no column 'embeding'")
        row = only(known(*dags("words"), documents=[wrong]))
        assert (row.state, row.words) == ("failing", "there is no column 'embeding'")

    def test_one_whose_table_is_not_watched_is_failing_and_says_why(self):
        found = known(*dags("words"), documents=[document("words")])
        why = {"ann_refresh_words": "no catalog is called demo"}
        row = only(replace(found, unwatched=why))
        assert row.state == "failing"
        assert row.words.endswith("its table is not watched: no catalog is called demo")

    def test_one_at_work_is_building(self):
        at_work = run("ann_build_words", "running")
        row = only(
            known(*dags("words"), documents=[document("words", "not_built")], running=(at_work,))
        )
        assert row.state == "building"

    def test_one_whose_build_waits_for_approval_is_waiting_and_leads_there(self):
        at_work = run("ann_build_words", "running")
        found = known(*dags("words"), documents=[document("words")], running=(at_work,))
        row = only(replace(found, asking=(Asking("ann_build_words", "manual__1"),)))
        assert (row.state, row.words) == ("waiting", "a build waits for approval")
        page = index_page(row, [], [], NOW_MS)
        assert "runs/manual__1/tasks/approve/required_actions" in page

    def test_one_that_was_never_published_is_not_built(self):
        row = only(known(*dags("words"), documents=[document("words", "not_built")]))
        assert row.state == "not built"

    def test_a_declaration_that_is_not_valid_says_what_is_wrong(self):
        dag = Dag(
            "ann_build_bad",
            frozenset({"puffin-ann", "invalid-declaration"}),
            False,
            "A declaration is not valid: field 'shards'",
            None,
        )
        row = only(known(dag))
        assert (row.state, row.words) == ("declaration not valid", "field 'shards'")

    def test_what_nothing_declares_is_shown_to_readers_of_the_collecting_dag_alone(self):
        orphan = document("old", "orphaned", table="demo.glove.words")
        collect = Dag(
            "ann_collect_x", frozenset({"puffin-ann", "collect"}), False, "collects", None
        )
        assert [row.state for row in rows_of(known(collect, documents=[orphan]), NOW_MS)] == [
            "orphaned"
        ]
        assert rows_of(known(documents=[orphan]), NOW_MS) == []

    def test_a_document_of_a_namesake_on_another_table_is_not_shown(self):
        other = document("words", table="other.secret.words")
        row = only(known(*dags("words"), documents=[other]))
        assert row.document is None

    def test_the_worst_come_first(self):
        found = known(
            *dags("b"),
            *dags("a"),
            *dags("c"),
            documents=[document("a"), document("b", lag=9e9), document("c", "unreachable")],
        )
        assert [row.index for row in rows_of(found, NOW_MS)] == ["c", "b", "a"]
        ranks = [row.rank for row in rows_of(found, NOW_MS)]
        assert ranks == sorted(ranks)
        assert len(STATES) == 9


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.share(0.99999), "> 99.9%"),
        (figures.share(1.0), "100.0%"),
        (figures.share(None), "–"),
        (figures.size(999), "999 B"),
        (figures.size(1_234_000), "1.2 MB"),
        (figures.duration(0.2), "< 1 s"),
        (figures.duration(5400), "1 h 30 min"),
        (figures.duration(90_000), "1 d 1 h"),
        (figures.until(NOW_MS - 1, NOW_MS), "now"),
    ],
)
def test_figures_are_as_people_read_them(shown, expected):
    assert shown == expected


class Tags(HTMLParser):
    """Collects the tags of a page; refuses what would run or be loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "style"
            assert name != "src" or value.startswith("static/")


def test_everything_is_escaped():
    evil = document("words", "unreachable", EVIL)
    found = evil.overview.model_copy(update={"column": EVIL, "key": EVIL, "notes": (EVIL,)})
    evil = evil.model_copy(update={"index": EVIL, "table": EVIL, "overview": found})
    row = only(known(*dags("words"), documents=[document("words")]))
    row = type(row)(**{**vars(row), "index": EVIL, "table": EVIL, "words": EVIL, "document": evil})
    for text in (overview_page([row], NOW_MS), index_page(row, [], ["build"], NOW_MS)):
        assert EVIL not in text
        assert "&lt;script&gt;" in text
        assert Tags(text).found.count("script") in (2, 4)


def test_a_run_says_what_it_did_and_why():
    row = only(known(*dags("words"), documents=[document("words")]))
    done = replace(run("ann_build_words", "success"), reason="the published version is up to date")
    assert "the published version is up to date" in index_page(row, [(done, ())], [], NOW_MS)


class TestFiguresOverTime:
    def test_each_has_a_picture_that_tells_in_words_what_it_shows(self):
        row = only(known(*dags("words"), documents=[document("words")]))
        page = index_page(row, [], [], NOW_MS)
        for words in (
            "from 0.972 to 0.968, lowest 0.965, highest 0.972; the dashed line is at 0.950",
            "lowest 99.56%, highest 100.00%; the dashed line is at 99.00%",
            "lowest 0 s, highest 25 min; the dashed line is at 1 h",
        ):
            assert words in page

    def test_what_they_are_drawn_from_is_a_table_of_every_point(self):
        shown = document("words")
        row = only(known(*dags("words"), documents=[shown]))
        page = index_page(row, [], [], NOW_MS)
        assert page.count('data-column="lag"') == 2  # the picture, and its column
        for point in shown.trend:
            assert f'data-value="{point.at_ms}"' in page
            assert f'data-value="{point.lag_seconds}"' in page

    def test_a_limit_that_is_far_off_does_not_press_the_line_to_the_bottom(self):
        shown = document("words")
        calm = tuple(point.model_copy(update={"lag_seconds": 10.0}) for point in shown.trend)
        shown = shown.model_copy(update={"trend": calm})
        row = only(known(*dags("words"), documents=[shown]))
        assert 'lowest 10 s, highest 10 s" ' in index_page(row, [], [], NOW_MS)

    def test_an_index_that_nobody_measured_has_neither_picture_nor_line(self):
        shown = document("words")
        unmeasured = tuple(point.model_copy(update={"recall": None}) for point in shown.trend)
        shown = shown.model_copy(update={"trend": unmeasured})
        row = only(known(*dags("words"), documents=[shown]))
        page = index_page(row, [], [], NOW_MS)
        assert page.count('data-column="recall"') == 1


def test_the_library_that_draws_is_shipped_as_it_was_released():
    told = (STATIC / "vendored.txt").read_text()
    version = re.search(r"^# uPlot ([\d.]+),", told, re.MULTILINE)[1]
    pinned = dict(reversed(line.split()) for line in told.splitlines() if line[0] != "#")
    assert sorted(pinned) == ["uPlot.iife.min.js", "uPlot.min.css"]
    for name, digest in pinned.items():
        assert sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
    assert f"uPlot (v{version})" in (STATIC / "uPlot.iife.min.js").read_text()[:100]
    assert "The MIT License" in (STATIC / "LICENSE-uPlot.txt").read_text()
    assert "include/puffin_ann/airflow/page/static/uPlot" in (ROOT / "NOTICE").read_text()


def test_figures_are_those_of_the_newest_look_however_often_the_page_is_shown():
    first = only(known(*dags("words"), documents=[document("words", rows=1000)]))
    second = only(known(*dags("words"), documents=[document("words", rows=2000)]))
    for _ in range(2):
        assert "800 kB" in overview_page([first], NOW_MS)
        assert "1.6 MB" in overview_page([second], NOW_MS)


def test_a_document_is_parsed_once_and_forgotten_when_it_is_there_no_more():
    parsed = database._Parsed()
    rows = [(document(name).as_text(), False) for name in ("words", "images")]
    first = parsed.read(rows)
    assert [each.index for each in first] == ["words", "images"]
    assert parsed.read(rows)[1] is first[1]
    assert parsed.read(rows[:1]) == first[:1]
    assert len(parsed.known) == 1
    assert parsed.read([("what somebody else wrote", False), ("no token", True)]) == []


def test_cells_are_not_kept_for_longer_than_their_document():
    row = only(known(*dags("words"), documents=[document("words")]))
    overview_page([row], NOW_MS)
    key = id(row.document)
    assert key in overview_page_module._kept
    del row
    gc.collect()
    assert key not in overview_page_module._kept


def test_a_page_without_indexes_says_so():
    assert "No index that you may see is declared" in overview_page([], NOW_MS)
