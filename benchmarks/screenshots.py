"""The pictures of the page in docs/: `xc serve` on a model folder, seen by Chromium.

    xc train wordnet-related -a decaf --keep-texts -o /tmp/shown
    python -m benchmarks.screenshots /tmp/shown --text "a large cat with stripes" --query cat

Needs chromium, chromedriver and the extra `[test]`.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WIDTH, TALLEST = 900, 1100  # pixels
IMAGES = Path(__file__).parents[1] / "docs" / "images"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WIDTH},{TALLEST}")
COMMAND = (sys.executable, "-c", "from xclearn.cli.main import main; main()", "serve")


def main() -> None:
    """Take the pictures and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--text", default="a large cat with stripes")
    parser.add_argument("--query", default="cat")
    parser.add_argument("--out", type=Path, default=IMAGES)
    asked = parser.parse_args()
    with _served(asked.model) as address, _browser() as browser:
        browser.get(address)
        browser.find_element("id", "text").send_keys(asked.text)
        _take(browser, asked.out / "page_predict.png", "#found", ".parts dt")
        browser.find_element("id", "tab-labels").click()
        browser.find_element("id", "query").send_keys(asked.query)
        _wait(lambda: len(browser.find_elements("css selector", "#matches > li")) > 1)
        _take(browser, asked.out / "page_labels.png", "#matches", ".near")
        browser.find_element("id", "tab-model").click()
        _take(browser, asked.out / "page_model.png", "#model", ".tiles")


def _take(browser: Any, file: Path, place: str, there: str) -> None:
    """The page once the first line of a list is open and shows what is to be seen."""
    _wait(lambda: browser.execute_script(f"return document.querySelector('{place} details') !== null"))
    time.sleep(0.5)  # a newer answer may still replace the list
    browser.execute_script(f"document.querySelector('{place} details').open = true")
    _wait(lambda: browser.find_elements("css selector", f"{place} {there}"))
    height = min(browser.execute_script("return document.documentElement.scrollHeight"), TALLEST)
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.save_screenshot(str(file))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    print(file)


def _wait(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the page did not show what it should")
        time.sleep(0.05)


@contextlib.contextmanager
def _served(model: str) -> Iterator[str]:
    """The address of a server that answers."""
    process = subprocess.Popen([*COMMAND, model, "--port", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        said = iter(process.stderr.readline, b"")
        yield next(found[0] for line in said if (found := re.search(r"http://\S+", line.decode())))
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _browser() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            yield browser
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
