"""Headless Chromium for tests: one browser a module, signed out at the start of each test."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.services import unavailable

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Browser:
    """Headless Chromium with the few things that the tests ask of it."""

    driver: Any
    faults: list[str] = field(default_factory=list)

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Set the size of the window and the colour scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def js(self, script: str, *arguments: Any) -> Any:
        """Run a script and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """The text of the first element, blanks folded; empty if there is none."""
        found = self.js("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return re.sub(r"\s+", " ", str(found)).strip()

    def until(self, holds: Callable[[], bool], what: str, *, within_s: float = 20) -> None:
        """Wait until something holds; fail with `what` if it does not."""
        deadline = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {within_s} s: {what}")
            time.sleep(0.05)

    def errors(self) -> list[str]:
        """What the console complained of since the last time: scripts, loads, the content policy."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for the module; skipped (or failed, where required) with the reason if there is none."""
    binary = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        unavailable("there is no Chromium with its chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(driver))
    yield running
    with contextlib.suppress(OSError):
        running.quit()


@pytest.fixture
def browser(chromium: Any) -> Browser:
    """The browser, signed out and at its desktop size."""
    chromium.delete_all_cookies()
    found = Browser(chromium)
    found.look()
    found.errors()
    return found
