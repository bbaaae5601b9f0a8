"""A real browser without a screen, and an Airflow that knows indexes in every state."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cockpit.browser import Browser
from tests.support.cockpit.cockpit import Cockpit

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVER = "chromedriver"
INDEXES = 30


@pytest.fixture(scope="session")
def programs() -> tuple[str, str]:
    """The browser and its driver, as they are on PATH: neither is ever downloaded."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which(DRIVER)
    if found is None or driver is None:
        pytest.skip(f"there is no browser to try the page in: {BROWSERS[0]} and {DRIVER} on PATH")
    return found, driver


@pytest.fixture(scope="session")
def cockpit() -> Iterator[Cockpit]:
    """Airflow below a path, which knows 30 indexes and runs nothing.

    The path of its folder is short: a picture shows where a declaration is.
    """
    with tempfile.TemporaryDirectory(prefix="airflow-") as folder:
        server = Cockpit(Path(folder) / "local")
        try:
            server.start(INDEXES)
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def opened(programs, cockpit, tmp_path_factory) -> Iterator[Browser]:
    keeps = os.environ.get("SCREENSHOTS") == "1"
    made = Browser(*programs, cockpit, tmp_path_factory.mktemp("browser"), keeps=keeps)
    try:
        yield made
    finally:
        made.quit()


@pytest.fixture
def browser(opened) -> Browser:
    """The browser with the admin logged in, wide and light; it must have nothing to complain of."""
    opened.reset()
    yield opened
    assert opened.complaints() == []


@pytest.fixture
def indexes(cockpit):
    """Let the server know another number of indexes, for one test."""
    yield cockpit.seed
    cockpit.seed(INDEXES)


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which runs in the page."""
    return (Path(__file__).parent / "assets" / "axe.min.js").read_text()
