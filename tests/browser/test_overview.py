"""The page of all indexes in a real browser: what is seen, how wide, by which keys."""

import pytest
from selenium.webdriver.common.keys import Keys

from puffin_ann.airflow.page.rows import STATES
from tests.browser.conftest import INDEXES
from tests.support.cockpit.browser import WIDE

pytestmark = pytest.mark.slow

PAGE = "/puffin-ann/"
EVIL = "<script>document.title='run'</script>"
ROWS = "#indexes tbody tr"


def states(browser) -> list[str]:
    return browser.seen(f"{ROWS} .badge")


def is_dark(browser) -> bool:
    colour = browser.one("body").value_of_css_property("background-color")
    red, green, blue = (int(part) for part in colour.strip("rgba()").split(",")[:3])
    return red + green + blue < 3 * 64


def test_every_state_is_there_in_words_the_worst_first_and_counted(browser):
    browser.open(PAGE)
    found = states(browser)
    assert [state for state in STATES if state in found] == list(STATES)
    assert found == sorted(found, key=STATES.index)
    tiles = dict(reversed(tile.split(" ", 1)) for tile in browser.seen(".tile"))
    assert int(tiles.pop("all")) == len(found) == INDEXES
    assert {state: int(number) for state, number in tiles.items()} == {
        state: found.count(state) for state in set(found)
    }


def test_a_failing_a_building_and_an_unreachable_one_say_why(browser):
    browser.open(PAGE)
    text = browser.one("#indexes").text
    assert "the last run failed: refresh: index 'reviews': recall@10 is 0.9312" in text
    assert "at work: build" in text
    assert "there was no answer within 30 s" in text
    logs = browser.all(f"{ROWS} td a[href$='/tasks/apply_changes']")
    assert [log.text for log in logs] == ["log of apply_changes"]
    assert "/dags/ann_refresh_reviews/runs/" in logs[0].get_attribute("href")


def test_thirty_rows_fit_without_sideways_scrolling(browser):
    browser.open(PAGE)
    assert browser.run("return innerWidth") == WIDE
    assert len(browser.all(ROWS)) == INDEXES
    assert browser.overflow() == (0, 0)
    assert len(browser.picture("cockpit")) < 200_000


def test_it_is_dark_where_airflow_is(browser):
    browser.open(PAGE)
    assert not is_dark(browser)
    browser.theme("dark")
    browser.open(PAGE)
    assert is_dark(browser)


def test_it_fits_a_phone(browser):
    browser.phone()
    browser.open(PAGE)
    assert browser.overflow() == (0, 0)
    assert "Recall:" in browser.run(
        "return getComputedStyle(document.querySelector('#indexes td[data-label]'), '::before')"
        ".content"
    )


def test_it_is_filtered_and_sorted_by_the_keyboard_alone(browser):
    browser.open(PAGE)
    browser.tab_to(".tile[data-state=stale]")
    browser.press(Keys.ENTER)
    assert set(states(browser)) == {"stale"}
    browser.press(Keys.SPACE)
    assert len(states(browser)) == INDEXES

    browser.tab_to("#filter")
    browser.press("team_1_")
    names = browser.seen(f"{ROWS} th a")
    assert names
    assert all(name.startswith("team_1_") for name in names)
    browser.press("nothing is called so")
    assert browser.seen("#no-match") == ["No index matches."]
    browser.run("document.querySelector('#filter').value = ''")
    browser.press(" ", Keys.BACKSPACE)

    browser.tab_to("th:nth-child(1) button")
    browser.press(Keys.ENTER)
    names = browser.seen(f"{ROWS} th a")
    assert names == sorted(names)
    assert browser.one("th:nth-child(1)").get_attribute("aria-sort") == "ascending"
    browser.press(Keys.ENTER)
    assert browser.seen(f"{ROWS} th a") == names[::-1]

    browser.tab_to(f"{ROWS} th a")
    browser.press(Keys.ENTER)
    browser.wait_for("h1", "words_2019")


@pytest.mark.parametrize("count", [1, 200])
def test_one_index_and_two_hundred_are_shown_at_a_glance(browser, indexes, count):
    indexes(count)
    browser.open(PAGE)
    assert len(states(browser)) == count
    assert browser.overflow() == (0, 0)
    is_told = EVIL in browser.one("#indexes").text  # as text, and not run
    assert (is_told, browser.driver.title) == (count == 200, "Vector indexes")
    browser.one("#filter").send_keys("words")
    shown = browser.seen(f"{ROWS} th a")
    assert "words" in shown
    assert all("words" in name for name in shown)
    browser.phone()
    browser.open(PAGE)
    assert browser.overflow() == (0, 0)


def test_nothing_on_it_is_a_serious_obstacle(browser, axe):
    for theme in ("light", "dark"):
        browser.theme(theme)
        browser.open(PAGE)
        assert browser.serious(axe) == []
    browser.phone()
    browser.open(PAGE)
    assert browser.serious(axe) == []
