"""Chromium without a screen, driven as a person would: by what is seen, and by the keyboard."""

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.support.cockpit.cockpit import Cockpit
from tests.support.paths import ROOT

PICTURES = ROOT / "docs" / "images"
WIDE, HIGH = 1280, 900
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
SECONDS = 60
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # which needs rights that a container does not have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--force-color-profile=srgb",
    f"--window-size={WIDE},{HIGH}",
)


class Browser:
    """A browser with its own folder for what it keeps.

    Args:
        program: the browser.
        driver: what drives it.
        server: the Airflow that it shows.
        folder: for what the browser keeps.
        keeps: pictures are written into the documentation.
    """

    def __init__(
        self, program: str, driver: str, server: Cockpit, folder: Path, *, keeps: bool
    ) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for option in (*OPTIONS, f"--user-data-dir={folder}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "WARNING"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(SECONDS)
        self.driver.set_page_load_timeout(2 * SECONDS)
        self.server = server
        self.folder = folder
        self.keeps = keeps
        self.logged_in: dict[str, str] = {}

    def reset(self) -> None:
        """Show nothing, wide and light, with the admin logged in."""
        self.driver.switch_to.default_content()
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.set_window_size(WIDE, HIGH)
        self.log_in("admin")
        self.theme("light")
        self.complaints()

    def quit(self) -> None:
        self.driver.quit()

    def log_in(self, user: str) -> None:
        if user not in self.logged_in:
            self.logged_in[user] = self.server.token(user)
        self.driver.get(f"{self.server.address}/api/v2/version")
        self.driver.delete_all_cookies()
        self.driver.add_cookie({"name": "_token", "value": self.logged_in[user], "path": "/"})

    def theme(self, name: str) -> None:
        """Choose Airflow's theme, as its own switch does."""
        self.driver.get(f"{self.server.address}/api/v2/version")
        self.run("localStorage.setItem('theme', arguments[0])", name)

    def phone(self) -> None:
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)

    def open(self, path: str) -> None:
        self.driver.get(self.server.address + path)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def seen(self, selector: str) -> list[str]:
        """Return the texts of what a selector finds and a person can see."""
        script = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter(each => each.checkVisibility()).map(each => each.innerText.trim())"
        )
        found: list[str] = self.run(script, selector)
        return found

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + SECONDS
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{what}: not so after {SECONDS} s"
            time.sleep(0.05)
        return found

    def wait_for(self, selector: str, words: str) -> str:
        """Wait until what a selector finds says something; return all that it says."""

        def said() -> str:
            return next((text for text in self.seen(selector) if words in text), "")

        found: str = self.wait(said, f"{words!r} in {selector}")
        return found

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def tab_to(self, selector: str, most: int = 60) -> WebElement:
        """Press Tab until the focus is on what a selector finds, which must show it."""
        for _ in range(most):
            self.press(Keys.TAB)
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                element = self.focused()
                outline = element.value_of_css_property("outline-style")
                assert outline not in ("none", "hidden"), f"focus on {selector} is not seen"
                return element
        raise AssertionError(f"{most} times Tab do not lead to {selector}")

    def overflow(self) -> tuple[float, float]:
        """Return by how many pixels the page, and what scrolls in it, are too wide."""
        page = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        within = (
            "Math.max(0, ...[...document.querySelectorAll('.scroll')]"
            ".map(each => each.scrollWidth - each.clientWidth))"
        )
        found: tuple[float, float] = tuple(self.run(f"return [{page}, {within}]"))
        return found

    def serious(self, axe: str) -> list[str]:
        """Return what axe-core finds that keeps people from reading or using the page.

        Args:
            axe: its source.
        """
        self.run(axe)
        script = "axe.run().then(arguments[0], error => arguments[0]({error: String(error)}))"
        found = self.driver.execute_async_script(script)
        assert "error" not in found, found
        assert found["passes"], "axe-core looked at nothing"
        return [
            f"{each['id']}: {each['nodes'][0]['html'][:200]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]

    def complaints(self) -> list[str]:
        """Return what the browser warns of since it was last asked: whatever a policy refused."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def picture(self, name: str) -> bytes:
        """Take a picture of what is seen; keep it for the documentation where that is asked for."""
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"format": "webp", "quality": 80}
        )
        data = base64.b64decode(shot["data"])
        if self.keeps:
            (PICTURES / f"{name}.webp").write_bytes(data)
        return data
