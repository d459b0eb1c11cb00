"""The page in a real browser: what a person types, clicks and sees, on a screen and on a phone, light and dark."""

import contextlib
import json
import re
import shutil
import subprocess
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


def test_the_evidence_sums_up_in_the_order_of_sign_and_size(page: Page) -> None:
    page.type("A small DOG is a thing")
    page.one("#found summary").click()
    first = "#found > li:first-child"
    *shown, total = page.texts(f"{first} .parts dd:not(.scale)")
    start, *parts = [float(text.replace("−", "-")) for text in shown]
    logit, score = total.replace("−", "-").split(" = ")
    assert start + sum(parts) == pytest.approx(float(logit), abs=0.005 * len(shown) + 0.005)
    assert score == page.texts("#found .score")[0]
    assert parts == sorted(parts, key=lambda part: (part < 0, -abs(part)))
    names = page.texts(f"{first} .parts dt")
    assert (names[0], names[1], names[-1]) == ("start: how rare this label is (5 training texts)", "dog", "total")
    assert "These parts are exact." in page.one("#found .evidence .note").text
    assert page.texts(f"{first} .words span") == ["A", "DOG", "is", "a", "thing"]
    assert page.texts(f"{first} .words s") == ["small"]
    assert set(page.texts(f"{first} mark")) == {"dog", "is", "a", "thing"}
    assert "Nearest training texts with this label" in page.texts(f"{first} h2")
    nearest = page.texts(f"{first} .nearest li")
    assert len(nearest) == 3
    assert all(text.startswith("dog number ") for text in nearest)


def test_bars_begin_at_the_left_and_have_one_scale(page: Page) -> None:
    page.type("a dog")
    measured = page.driver.execute_script(
        "return [...document.querySelectorAll('#found .bar')].map((bar) => [bar, bar.firstChild].map("
        "(one) => one.getBoundingClientRect()).map((box) => [box.left, box.width]))"
    )
    scores = [float(text.removesuffix(" %")) for text in page.texts("#found .score")]
    for ((left, width), (bar_left, bar_width)), score in zip(measured, scores, strict=True):
        assert bar_left == pytest.approx(left, abs=0.1)
        assert 100 * bar_width / width == pytest.approx(score, abs=1.5)


def test_only_labels_from_a_score_on(page: Page) -> None:
    page.type("a dog")
    scores = [float(text.removesuffix(" %")) for text in page.texts("#found .score")]
    slider = page.one("#threshold")
    least = int(scores[0]) // 2
    for _ in range(least):
        slider.send_keys(Keys.ARROW_RIGHT)
    assert page.one("#from").text == f"{least} %"
    page.wait(lambda: len(page.labels()) == sum(score >= least for score in scores))


def test_an_example_is_a_click_away(page: Page) -> None:
    page.wait(lambda: page.texts("#examples button"))
    assert page.texts("#examples button")[1] == "cat number 0 is a thing"
    page.driver.find_elements(By.CSS_SELECTOR, "#examples button")[1].click()
    page.wait(lambda: page.labels()[:1] == ["Cat"])
    assert page.focused() == "text"


def test_the_answer_is_copied_as_the_server_gave_it_and_the_question_is_there_for_a_program(
    page: Page, server: Server
) -> None:
    page.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    page.type("it's a dog")
    page.one("#copy").click()
    page.wait(lambda: page.one("#said").text == "Copied.")
    copied = page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert json.loads(copied) == server.predict(text="it's a dog", k=10, threshold=0).content
    page.one("#program summary").click()
    answered = subprocess.run(page.one("#command").text, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(answered.stdout) == json.loads(copied)
    assert page.one("#program a").get_attribute("href").endswith("/openapi.json")


def test_what_a_label_or_a_text_holds_is_never_run(page: Page) -> None:
    page.type("dog <img src=x onerror=alert(1)>")
    page.one("#found summary").click()
    assert page.driver.execute_script("return document.querySelectorAll('#found img').length") == 0
    assert "<img src=x onerror=alert(1)>" in page.one("#found .words").text


def test_everything_can_be_done_with_the_keyboard(page: Page) -> None:
    page.type("a pear")
    visited = []
    while page.focused() != "SUMMARY":
        page.press(Keys.TAB)
        visited.append(page.focused())
    assert visited == ["BUTTON", "BUTTON", "BUTTON", "k", "threshold", "copy", "SUMMARY"]
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
    page.wait(lambda: page.texts("#matches summary .name:not(div:last-child *)") == NAMES)
    assert page.one("#counted").text == "10 labels"
    page.one("#query").send_keys("PLA")
    page.wait(
        lambda: page.texts("#matches summary > div")[:2] == ["plane: whatever is a plane Plane", "5 training texts"]
    )
    assert page.one("#counted").text == "1 label"
    page.one("#query").send_keys("x")
    page.wait(lambda: page.one("#counted").text == "No label holds this.")


def test_a_found_label_tells_what_is_near_and_is_scored_for_the_text_without_a_mouse(page: Page) -> None:
    page.type("a pear")
    Select(page.one("#k")).select_by_visible_text("5")
    page.wait(lambda: len(page.labels()) == 5)
    other = next(name for name in NAMES if name not in page.labels())
    page.one("#tab-labels").click()
    page.one("#query").send_keys(other.lower())
    page.wait(lambda: len(page.texts("#matches > li")) == 1)
    page.press(Keys.TAB)
    assert page.focused() == "SUMMARY"
    page.press(Keys.ARROW_UP)
    assert page.focused() == "query"
    page.press(Keys.ARROW_DOWN)
    page.press(Keys.ENTER)
    page.wait(lambda: len(page.texts("#matches .near button")) >= 1)
    page.press(Keys.TAB)
    page.press(Keys.ENTER)
    page.wait(lambda: page.labels()[5:] == [other] and page.texts("#found > li:last-child .parts dt"))
    assert page.focused() == "text"
    assert page.one("#found > li:last-child .evidence").is_displayed()
    page.one("#tab-labels").click()
    near = page.wait(lambda: page.texts("#matches .near button"))[0].split()[-1]
    page.driver.execute_script("document.querySelector('#matches .near button').click()")  # the list may be drawn again
    page.wait(lambda: page.one("#query").get_attribute("value") == near)


def test_the_model_card_leads_with_what_it_is_for_and_folds_the_rest(page: Page) -> None:
    page.one("#tab-model").click()
    page.wait(lambda: page.texts("#model h2"))
    assert page.one("#served").text == "one_vs_all on things · 10 labels"
    assert page.texts("#model h2") == ["What it is for", "How right it is on test"]
    seen = page.one("#model").text
    assert "Names things." in seen
    assert "Learnt from 50 texts of things, with 1.0 labels each on average." in seen
    assert "91.5 %\nof the labels in first place are right (P@1)" in seen
    assert "embedding dim" not in seen
    assert page.texts("#model svg text") == ["80.0", "5", "4", "12.5", "5", "4"]
    folded = page.texts("#model > details > summary")
    assert folded == [
        "All figures on test, in percent",
        "Served now",
        "Data",
        "Settings",
        "Training",
        "What this server allows",
    ]
    rows = dict(page.driver.execute_script(ROWS))
    assert (rows["embedding dim"], rows["label optimiser"]) == ("16", "sgd")
    assert re.fullmatch(r"\d+, chosen by training", rows["batch size"])
    assert not page.one("#dial").is_displayed()  # this model knows no probabilities
    assert rows["vectoriser max features"] == "none"
    assert (rows["max body"], rows["idle timeout"]) == ("8 MiB", "60 s")
    assert {"P@k", "R@k"} == set(page.texts("#model dt"))
    page.driver.refresh()  # the tab is in the address
    page.wait(lambda: page.one("#model").is_displayed() and "91.5" in page.one("#model").text)


ROWS = """return [...document.querySelectorAll('#model tr')]
    .map((row) => [...row.children].map((cell) => cell.textContent)).filter((row) => row.length === 2)"""


@contextlib.contextmanager
def seen_as(driver: webdriver.Chrome, width: int, scheme: str) -> Iterator[None]:
    """A screen of this width, and the colours that a person prefers."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


EVERY_LOOK = pytest.mark.parametrize(
    ("width", "scheme"), [(width, scheme) for width in (320, 390, 1100) for scheme in ("light", "dark")]
)
TABS = {"#tab-predict": "#found", "#tab-labels": "#matches", "#tab-model": "#model"}


def opened(page: Page) -> Iterator[str]:
    """Each tab in turn, with everything on it unfolded."""
    page.type(f"a dog and a {60 * 'long'} word")
    for tab, place in TABS.items():
        page.one(tab).click()
        page.wait(lambda place=place: page.texts(f"{place} details"))
        page.driver.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
        if tab == "#tab-labels":
            page.wait(lambda: len(page.texts("#matches .near")) == len(NAMES))
        yield tab


@EVERY_LOOK
def test_nothing_sticks_out_and_the_theme_is_the_one_preferred(page: Page, width: int, scheme: str) -> None:
    with seen_as(page.driver, width, scheme):
        for tab in opened(page):
            assert page.driver.execute_script("return document.documentElement.scrollWidth") <= width, tab
            assert page.driver.execute_script(CUT_OFF) == [], tab
        red, green, blue = page.driver.execute_script(BACK)
        assert (max(red, green, blue) < 64) == (scheme == "dark")
        assert (min(red, green, blue) > 192) == (scheme == "light")


BACK = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
CUT_OFF = """return [...document.querySelectorAll('.score, .parts dd, .tiles strong')]
    .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"""


@EVERY_LOOK
def test_axe_core_finds_nothing_to_object_to(page: Page, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_core_python", reason="accessibility is judged by axe-core")
    rules = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    with seen_as(page.driver, width, scheme):
        page.driver.execute_script(rules)
        for tab in opened(page):
            found = page.driver.execute_async_script("axe.run().then(arguments[0])")
            assert len(found["passes"]) > 15, tab
            objections = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]]
            assert objections == [], tab


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
