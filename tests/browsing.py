"""A headless Chromium, where this machine has one; tests that need it are skipped where not."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAY = "a browser for the report: `pip install playwright`, and Chromium by the system's packages"


@contextmanager
def chromium() -> Iterator:
    """Starts the machine's Chromium, or else the one that playwright has installed."""
    api = pytest.importorskip("playwright.sync_api", reason=f"no playwright; {WAY}")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, NAMES)), playwright.chromium.executable_path)
        if not Path(found).is_file():
            pytest.skip(f"no Chromium; {WAY}, or `playwright install chromium`")
        # Its own sandbox needs rights that root in a container does not have.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
