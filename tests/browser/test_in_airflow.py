"""The page within Airflow's own, in a real browser: its frame, its theme, its form."""

import json
import time

import pytest
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.slow

WITHIN = "/plugin/vector-indexes"


AIRFLOWS_OWN = "An iframe which has both allow-scripts and allow-same-origin"
"""What browsers say of the frame in which Airflow shows pages of plugins."""


@pytest.fixture(autouse=True)
def _airflows_own_complaints(browser):
    """What Airflow's own pages make a browser warn of is not ours to mend."""
    yield
    ours = [each for each in browser.complaints() if "puffin" in each and AIRFLOWS_OWN not in each]
    assert ours == []


def frame_of(browser):
    return browser.wait(lambda: browser.all("iframe[src*='puffin-ann']"), "the page is framed")[0]


def test_it_stands_in_airflows_navigation_and_its_links_lead_within_airflow(browser):
    browser.open(WITHIN)
    browser.driver.switch_to.frame(frame_of(browser))
    browser.wait_for("h1", "Vector indexes")
    link = browser.wait(lambda: browser.all("a[href*='/runs/']"), "a run is linked")[0]
    run = link.get_attribute("href")
    link.click()
    browser.driver.switch_to.default_content()
    browser.wait(lambda: browser.driver.current_url == run, "Airflow shows the run")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_has_airflows_theme(browser, theme):
    browser.theme(theme)
    browser.open(WITHIN)
    around = browser.wait(
        lambda: browser.run("return document.documentElement.className"), "Airflow has a theme"
    )
    assert theme in around
    browser.driver.switch_to.frame(frame_of(browser))
    browser.wait_for("h1", "Vector indexes")
    assert browser.run("return document.documentElement.dataset.theme") == theme


def test_the_trigger_form_keeps_to_the_bounds_and_sends_nothing_that_lacks_a_value(
    browser, cockpit
):
    before = runs(cockpit)
    browser.open("/dags/ann_build_words")
    browser.wait(lambda: browser.all("button[aria-label='Trigger Dag']"), "a run can be asked for")
    browser.one("button[aria-label='Trigger Dag']").click()
    browser.wait(lambda: browser.all("input[name=element_alpha]"), "the form is there")
    assert sent_by(browser).is_enabled()
    put(browser, "alpha", "0.5", lambda: value_of(browser, "alpha") == "1", "alpha is at least 1")
    put(
        browser, "shards", Keys.BACKSPACE,
        lambda: not sent_by(browser).is_enabled(), "a form without shards is not sent",
    )  # fmt: skip
    assert runs(cockpit) == before


def put(browser, field: str, value: str, condition, what: str) -> None:
    """Write a value into a field of Airflow's form in place of what is there; wait for the form.

    It is written again now and then: a form that Airflow still makes forgets what was written.
    """
    again = 0.0

    def is_so() -> bool:
        nonlocal again
        if time.monotonic() >= again:
            found = browser.one(f"input[name=element_{field}]")
            found.send_keys(Keys.CONTROL, "a")
            found.send_keys(value, Keys.TAB)
            again = time.monotonic() + 5
        return condition()

    browser.wait(is_so, what)


def value_of(browser, field: str) -> str:
    return browser.one(f"input[name=element_{field}]").get_attribute("value")


def sent_by(browser):
    buttons = browser.all("[role=dialog] button")
    return next(button for button in buttons if button.text == "Trigger")


def runs(cockpit) -> int:
    _, text, _ = cockpit.get("/api/v2/dags/ann_build_words/dagRuns", cockpit.token("admin"))
    return json.loads(text)["total_entries"]
