"""The page of one index in a real browser: pictures, buttons, and a search of a real index."""

import json
import sys

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.support.cockpit.browser import WIDE
from tests.support.cockpit.cockpit import REAL
from tests.support.cockpit.cockpit_index import MORE, ROWS

pytestmark = pytest.mark.slow

WORDS = "/puffin-ann/index?of=words%40demo.glove.words"
REAL_PAGE = f"/puffin-ann/index?of={REAL}%40demo.real.words"


def test_it_shows_what_the_index_is_made_of_and_what_is_due(browser):
    browser.driver.set_window_size(WIDE, 1400)
    browser.open(WORDS)
    assert browser.seen("h1") == ["words"]
    titles = browser.seen(".card h2")
    assert {"Recall", "Coverage", "Lag", "Bytes", "Shards and deltas", "The next refresh"} <= {
        *titles
    }
    assert len(browser.all(".bars g")) == 6 + 2  # shards, and versions
    assert len(browser.all(".plot canvas")) == 4
    assert "1,204 rows added" in browser.seen("section tbody tr")[0]
    assert browser.overflow() == (0, 0)
    assert len(browser.picture("cockpit-index")) < 200_000


INK = """
const canvas = document.querySelector('.plot[data-column=' + arguments[0] + '] canvas');
const { width, height } = canvas;
const copy = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
copy.drawImage(canvas, 0, 0);
const { data } = copy.getImageData(0, 0, width, height);
const probe = document.createElement('span');
probe.style.color = 'var(--line)';
document.body.append(probe);
const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
probe.remove();
let found = 0;
for (let at = 0; at < data.length; at += 4) {
  found += data[at + 3] > 200 && wanted.every((part, i) => Math.abs(data[at + i] - part) < 12);
}
return found;
"""
"""How many pixels of a picture have the colour that lines have in the theme of the page."""


def test_each_figure_over_time_is_drawn_in_the_colours_of_the_theme(browser):
    browser.open(WORDS)
    columns = ("recall", "coverage", "lag", "bytes")
    for theme in ("light", "dark"):
        browser.run("document.documentElement.dataset.theme = arguments[0]", theme)
        for column in columns:
            browser.wait(lambda of=column: browser.run(INK, of) > 50, f"{column} in {theme}")


def test_what_a_picture_shows_is_told_in_words_and_in_a_table_that_keys_open(browser):
    browser.open(WORDS)
    words = browser.one(".plot[data-column=recall]").get_attribute("aria-label")
    assert "from 0.972 to 0.968, lowest 0.965, highest 0.972; the dashed line is at 0.950" in words
    assert browser.seen("#over-time") == []
    browser.tab_to("summary")
    browser.press(Keys.ENTER)
    lines = browser.seen("#over-time tbody tr")
    assert len(lines) == 48
    assert lines == sorted(lines, reverse=True)
    assert browser.overflow() == (0, 0)


def test_a_moment_is_read_off_all_pictures_by_pointing_at_one(browser):
    browser.open(WORDS)
    pointed = browser.one(".plot[data-column=lag] .u-over")
    ActionChains(browser.driver).move_to_element(pointed).perform()
    browser.wait(lambda: len(browser.seen(".pointed")) == 4, "each tells its figure")
    assert browser.seen(".plot[data-column=recall] .pointed")[0].split(": ")[1].startswith("0.9")


@pytest.mark.parametrize("page", [WORDS, REAL_PAGE])
def test_nothing_on_it_is_a_serious_obstacle(browser, axe, page):
    for theme in ("light", "dark"):
        browser.theme(theme)
        browser.open(page)
        assert browser.serious(axe) == []
    browser.one("button[data-dag]").click()
    assert browser.serious(axe) == []
    browser.phone()
    browser.open(page)
    browser.run("document.querySelector('details')?.setAttribute('open', '')")
    assert browser.overflow()[0] == 0
    assert browser.serious(axe) == []


def test_a_run_is_asked_for_by_the_keyboard_and_airflow_has_it(browser, cockpit):
    browser.open(WORDS)
    browser.tab_to("button[data-dag=ann_refresh_words]")
    browser.press(Keys.ENTER)
    browser.wait_for("#confirm-title", "Refresh words?")
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: not browser.seen("#confirm"), "the dialog is closed")

    browser.press(Keys.ENTER)  # the focus is on the button again
    browser.tab_to("#force")
    browser.press(Keys.SPACE)
    browser.tab_to("#go")
    browser.press(Keys.ENTER)
    said = browser.wait_for("#told", "asked for run")
    run_id = said.removeprefix("asked for run").strip()
    path = f"/api/v2/dags/ann_refresh_words/dagRuns/{run_id}"
    status, text, _ = cockpit.get(path, cockpit.token("admin"))
    assert (status, json.loads(text)["conf"]) == (200, {"force": True})
    assert browser.run("return document.activeElement.id") == "told"


@pytest.mark.parametrize("kind", ["build", "evaluate", "maintain"])
def test_other_runs_are_asked_for_with_a_confirmation_too(browser, cockpit, kind):
    browser.open(WORDS)
    browser.one(f"button[data-dag=ann_{kind}_words]").click()
    browser.wait_for("#confirm-title", f"{kind.capitalize()} words?")
    assert bool(browser.seen("#force-line")) == (kind != "evaluate")
    browser.one("#cancel").click()
    browser.wait(lambda: not browser.seen("#confirm"), "the dialog is closed")
    assert browser.seen("#told") in ([], [""])
    browser.one(f"button[data-dag=ann_{kind}_words]").click()
    browser.one("#go").click()
    run_id = browser.wait_for("#told", "asked for run").removeprefix("asked for run").strip()
    path = f"/api/v2/dags/ann_{kind}_words/dagRuns/{run_id}"
    status, text, _ = cockpit.get(path, cockpit.token("admin"))
    assert (status, json.loads(text)["conf"]) == (200, {})


def test_a_failing_index_says_why_and_leads_to_the_log_that_does(browser):
    browser.open("/puffin-ann/index?of=reviews%40demo.glove.reviews")
    assert "recall@10 is 0.9312, under the declared" in browser.one(".why").text
    log = browser.one(".why a")
    assert log.text == "log of apply_changes"
    assert "/dags/ann_refresh_reviews/runs/" in log.get_attribute("href")
    assert browser.overflow()[0] == 0


END_RUNS = """
import sys
from airflow.models import DagRun
from airflow.utils.session import create_session
from sqlalchemy import update
with create_session() as session:
    at_work = update(DagRun).where(DagRun.dag_id == "ann_build_images", DagRun.state == "running")
    session.execute(at_work.values(state="failed", end_date=DagRun.start_date))
"""


def test_a_page_follows_a_run_to_its_end_but_lets_one_type(browser, cockpit):
    browser.open("/puffin-ann/index?of=images%40demo.glove.images")
    assert browser.seen(".badge") == ["building"]
    try:
        cockpit.run(sys.executable, "-c", END_RUNS)
        browser.wait(lambda: browser.seen(".badge") == ["failing"], "the run has ended")
        assert "the last run failed: build" in browser.one(".why").text
        browser.wait(lambda: "at work" not in browser.one("main").text, "all is shown anew")
    finally:
        cockpit.seed(30)


def test_who_may_start_nothing_has_no_button(browser):
    browser.log_in("viewer")
    browser.open(WORDS)
    assert browser.seen("h1") == ["words"]
    assert browser.all("button[data-dag], #query") == []


def test_a_real_index_is_searched_by_a_rows_key(browser):
    browser.open(REAL_PAGE)
    assert f"{ROWS:,} rows answer" in browser.one("main").text
    assert f"{MORE} rows to scan" in browser.one("main").text
    browser.tab_to("#query input[name=key]")
    browser.press("monday", Keys.ENTER)
    browser.wait_for("#neighbours", "tuesday")
    found = browser.seen("#neighbours tbody tr")
    assert len(found) == 10
    assert found[0].split()[:2] == ["1", "tuesday"]  # the row itself is none of its neighbours
    distances = [float(line.split()[-1]) for line in found]
    assert distances == sorted(distances)
    assert browser.overflow()[0] == 0
    assert "20 rows outside the index compared one by one" in browser.one("#neighbours").text
    browser.run("document.querySelector('#query').scrollIntoView({block: 'center'})")
    browser.picture("cockpit-search")

    browser.tab_to("#query input[name=where]")
    browser.press("word in ('friday', 'sunday', 'london')", Keys.ENTER)
    browser.wait_for("#neighbours", "The condition leaves 3 rows.")
    found = browser.seen("#neighbours tbody tr")
    assert [line.split()[1] for line in found] == ["friday", "sunday", "london"]


def test_a_key_that_no_row_has_is_told(browser):
    browser.open(REAL_PAGE)
    browser.one("#query input[name=key]").send_keys("no such word", Keys.ENTER)
    browser.wait_for("#neighbours", "no live row has this key")
    # A browser reports every answer that is a refusal.
    assert all("422" in complaint for complaint in browser.complaints())
