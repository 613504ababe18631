"""A real Chromium without internet, and the real admin API of an aggregator for it to show."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.unit.admin.stand_in import StandIn, served

PATIENCE = 30.0
"""Seconds: the page asks every 5, and gives an answer 4."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


class Served:
    """The API of `aggregator`, on an event loop of its own."""

    def __init__(self, aggregator: StandIn, token_file: Path | None = None) -> None:
        self.aggregator = aggregator
        self.url = ""
        self._token_file = token_file
        self._started, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(PATIENCE)

    async def _serve(self) -> None:
        async with served(self.aggregator, self._token_file) as self.url:
            self._started.set()
            await asyncio.to_thread(self._over.wait)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@dataclass(frozen=True)
class Page:
    """The page as a person sees it."""

    driver: webdriver.Chrome

    def open(self, url: str) -> None:
        self.driver.get(url)

    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def wait_for(self, text: str) -> str:
        """What it shows as soon as `text` is in it."""
        WebDriverWait(self.driver, PATIENCE).until(lambda _: text in self.text(), f"no {text!r} in: {self.text()}")
        return self.text()

    def part(self, title: str) -> str:
        """The text of the section under a title."""
        sections = "[...document.querySelectorAll('section')]"
        chosen = f"{sections}.find(each => each.querySelector('h2').textContent.includes(arguments[0]))"
        return " ".join(self.driver.execute_script(f"return {chosen}.innerText", title).split())

    def count(self, selector: str) -> int:
        return len(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def requested(self) -> set[str]:
        """Every address that the browser requested since the last call, whether or not it could be reached."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}

    def complaints(self) -> list[str]:
        """What the browser's console has, such as refusals by the page's policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert program, "no Chromium here: scripts/setup browser"
    assert driver, "no driver of Chromium here: scripts/setup browser"
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new",
        "--no-sandbox",  # root has none
        "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
        "--host-resolver-rules=MAP rebound.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    started = webdriver.Chrome(options, Service(driver))
    yield started
    started.quit()


@pytest.fixture
def page(chromium: webdriver.Chrome) -> Iterator[Page]:
    found = Page(chromium)
    yield found
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    found.open("about:blank")
    found.requested()
    found.complaints()


@pytest.fixture
def aggregator() -> Iterator[Served]:
    started = Served(StandIn())
    yield started
    started.stop()
