"""The page in a real browser: what a person types, clicks and sees, on a screen and on a phone, light and dark."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from served import NAMES, Server, model_folder, served

pytest.importorskip("selenium", reason="the page test needs selenium")
CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.remote.webelement import WebElement  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1100,900",
)
TOKEN = "a-token-of-many-characters"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(model_folder()) as running:
        yield running


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    profile: Path = tmp_path_factory.mktemp("profile")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    yield browser
    browser.quit()


@pytest.fixture
def page(driver: webdriver.Chrome, server: Server) -> Iterator["Page"]:
    """The page, freshly loaded; afterwards nothing may have gone wrong in it, nor anything asked of another host."""
    driver.get_log("browser")
    driver.get_log("performance")
    driver.get("about:blank")
    driver.get(f"http://127.0.0.1:{server.port}/")
    yield Page(driver)
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []
    hosts = {url.split("/")[2] for url in asked_for(driver) if url.startswith("http")}
    assert hosts == {f"127.0.0.1:{server.port}"}


def asked_for(driver: webdriver.Chrome) -> list[str]:
    """The address of every request since the log was read last."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


class Page:
    """What a test needs of the page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector
        )

    def wait(self, condition: Callable[[], Any]) -> Any:
        """Until it gives something true; a page that is being rebuilt may give nothing or an error."""
        deadline = time.monotonic() + 30
        while not (found := condition()):
            assert time.monotonic() < deadline, self.one("body").text
            time.sleep(0.03)
        return found

    def type(self, text: str) -> None:
        """Into the text field, and wait for the evidence of the first label."""
        self.one("#text").send_keys(text)
        self.wait(lambda: self.texts("#found > li:first-child .parts dt"))

    def labels(self) -> list[str]:
        return self.driver.execute_script(
            "return [...document.querySelectorAll('#found > li')].map((i) => i.dataset.label)"
        )

    def press(self, key: str) -> None:
        self.driver.switch_to.active_element.send_keys(key)

    def focused(self) -> str:
        return self.driver.execute_script("return document.activeElement.id || document.activeElement.tagName")


def test_labels_appear_as_one_types(page: Page, server: Server) -> None:
    assert page.focused() == "text"
    page.type("a small dog")
    expected = server.predict(text="a small dog", k=10).content["predictions"][0]
    assert page.labels() == [one["label"] for one in expected]
    assert page.texts("#found .says")[0] == "dog: whatever is a dog Dog"
    assert page.texts("#found .score")[0] == f"{100 * expected[0]['score']:.1f} %"
    assert "10 labels in" in page.one("#said").text
    page.one("#text").send_keys(" no, a violin violin violin")
    page.wait(lambda: page.labels()[0] == "Violin")


def test_fewer_or_more_labels_and_none_for_an_empty_text(page: Page) -> None:
    page.type("a cat")
    Select(page.one("#k")).select_by_visible_text("5")
    page.wait(lambda: len(page.labels()) == 5)
    page.one("#text").clear()
    page.one("#text").send_keys(" ")
    page.wait(lambda: page.labels() == [])
    assert page.one("#said").text == "Labels appear as you type."


def test_the_evidence_sums_up_and_shows_the_words(page: Page) -> None:
    page.type("A small DOG is a thing")
    page.one("#found summary").click()
    numbers = [float(text.replace("−", "-")) for text in page.texts("#found > li:first-child .parts dd:not(.scale)")]
    *parts, logit = numbers
    assert sum(parts) == pytest.approx(logit, abs=0.005 * len(numbers))
    names = page.texts("#found > li:first-child .parts dt")
    assert names[0] == "dog"
    assert names[-2:] == ["bias", "logit"]
    assert page.one("#found .evidence .note").text.startswith("Exact: ")
    assert page.texts("#found > li:first-child .words span") == ["A", "DOG", "is", "a", "thing"]
    assert set(page.texts("#found > li:first-child mark")) == {"dog", "is", "a", "thing"}
    assert "Nearest training texts with this label" in page.texts("#found > li:first-child h3")
    nearest = page.texts("#found > li:first-child .nearest li")
    assert len(nearest) == 3
    assert all(text.startswith("dog number ") for text in nearest)


def test_what_a_label_or_a_text_holds_is_never_run(page: Page) -> None:
    page.type("dog <img src=x onerror=alert(1)>")
    page.one("#found summary").click()
    assert page.driver.execute_script("return document.querySelectorAll('#found img').length") == 0
    assert "<img src=x onerror=alert(1)>" in page.one("#found .words").text


def test_everything_can_be_done_with_the_keyboard(page: Page) -> None:
    page.type("a pear")
    page.press(Keys.TAB)
    assert page.focused() == "k"
    page.press(Keys.TAB)
    assert page.focused() == "SUMMARY"
    page.press(Keys.ENTER)
    assert page.one("#found .evidence").is_displayed()
    page.press(Keys.ARROW_DOWN)
    page.press(Keys.ENTER)
    assert len(page.driver.find_elements(By.CSS_SELECTOR, "#found details[open]")) == 2
    page.press(Keys.ARROW_UP)
    page.press(Keys.ARROW_UP)
    assert page.focused() == "text"
    for _ in range(20):  # backwards, to the tabs
        page.press(Keys.SHIFT + Keys.TAB)
        if page.focused() == "tab-predict":
            break
    page.press(Keys.ARROW_RIGHT)
    assert page.focused() == "tab-labels"
    assert page.one("#query").is_displayed()
    page.press("/")
    assert page.focused() == "text"
    assert page.one("#text").is_displayed()


def test_labels_are_searched(page: Page) -> None:
    page.one("#tab-labels").click()
    page.wait(lambda: page.texts("#matches .name") == NAMES)
    page.one("#query").send_keys("PLA")
    page.wait(lambda: page.texts("#matches .name") == ["Plane"])
    page.one("#query").send_keys("x")
    page.wait(lambda: page.one("#counted").text == "No label holds this.")


def test_the_model_card_shows_metrics_and_bins(page: Page) -> None:
    page.one("#tab-model").click()
    assert page.one("#served").text == "one_vs_all on things · 10 labels"
    text = page.one("#model").text
    for part in ("Accuracy on test, in percent", "91.50", "33.25", "By label frequency on test", "embedding dim"):
        assert part in text
    assert page.texts("#model svg text") == ["12.5", "5", "4", "80.0", "5", "4"]
    page.driver.refresh()  # the tab is in the address
    page.wait(lambda: page.one("#model").is_displayed() and "91.50" in page.one("#model").text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1100])
def test_nothing_sticks_out_and_everything_can_be_read(page: Page, scheme: str, width: int) -> None:
    driver = page.driver
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.type(f"a dog and a {60 * 'long'} word")
        page.one("#found summary").click()
        for tab in ("#tab-predict", "#tab-labels", "#tab-model"):
            page.one(tab).click()
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        back, ink = (driver.execute_script(COLOUR, name) for name in ("backgroundColor", "color"))
        assert (luminance(back) < 0.05) == (scheme == "dark")
        for colour in (ink, driver.execute_script(QUIET)):
            light, dark = sorted([luminance(back), luminance(colour)], reverse=True)
            assert (light + 0.05) / (dark + 0.05) > 4.5  # WCAG AA
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


COLOUR = "return getComputedStyle(document.body)[arguments[0]].match(/[\\d.]+/g).map(Number)"
QUIET = "return getComputedStyle(document.querySelector('#served')).color.match(/[\\d.]+/g).map(Number)"


def luminance(colour: list[float]) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [value / 255 for value in colour[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_token_is_asked_for_and_used(driver: webdriver.Chrome) -> None:
    with served(model_folder(), XCLEARN_TOKEN=TOKEN) as guarded:
        driver.get(f"http://127.0.0.1:{guarded.port}/")
        page = Page(driver)
        page.wait(lambda: page.one("#token").is_displayed())
        page.one("#token-value").send_keys(TOKEN + Keys.ENTER)
        page.wait(lambda: page.one("#served").text == "one_vs_all on things · 10 labels")
        assert not page.one("#token").is_displayed()
        page.type("a dog")
        assert page.labels()[0] == "Dog"


def test_a_server_that_is_gone_is_told(driver: webdriver.Chrome) -> None:
    with served(model_folder()) as leaving:
        driver.get(f"http://127.0.0.1:{leaving.port}/")
        page = Page(driver)
        page.type("a dog")
        leaving.stop()
        page.one("#text").send_keys(" and a cat")
        page.wait(lambda: page.one("#said").text == "The server does not answer.")
