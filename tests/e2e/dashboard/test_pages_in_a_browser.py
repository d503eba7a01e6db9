"""The pages in a real browser: they fit, they keep to themselves, and they move without a reload."""

from __future__ import annotations

import time

import pytest
from selenium.webdriver.common.keys import Keys

from dashboard.store import RecordUnavailable
from enforcer.identity import CopyIdentity, format_request_id
from tests.browser import Browser
from tests.e2e.dashboard.conftest import ARTIFACTS, Site

pytestmark = pytest.mark.browser

#: name: (role, caller, address, the element that must be there)
PAGES = {
    "usage-1h": ("customer", "acme", "/usage", "#picture canvas"),
    "usage-24h": ("customer", "acme", "/usage?span=24h&zone=Europe/Berlin", "#picture canvas"),
    "usage-30d": ("customer", "acme", "/usage?span=30d&zone=America/New_York", "#picture canvas"),
    "usage-empty": ("customer", "initech", "/usage", "#empty code"),
    "usage-arriving": ("customer", "dahlia", "/usage", "#awaited"),
    "support-arriving": ("support", None, "/support?q=dahlia", "#awaited"),
    "support-start": ("support", None, "/support", ".callers a"),
    "support-caller": ("support", None, "/support?q=acme", "#picture canvas"),
    "support-request": ("support", None, "/support?q=REQUEST", "#found .facts"),
    "support-unknown": ("support", None, "/support?q=gw-1-kf12oi3s-1x", "h1"),
    "message-401": (None, None, "/signed-out", "h1"),
}
SENTENCE = "#sentence"


def newest_request_id(site: Site) -> str:
    """The id of acme's last refusal."""
    d = site.seeded.refusals("acme")[0]
    return format_request_id(CopyIdentity(d.copy_id, d.epoch), d.seq)


def open_usage(site: Site, browser: Browser) -> None:
    """Acme's own page, its picture drawn."""
    browser.driver.get(site.link("customer", "acme"))
    browser.until(lambda: bool(browser.js("return document.querySelector('#picture canvas') !== null")), "a picture")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", list(PAGES))
def test_page_fits_and_keeps_to_itself(site: Site, browser: Browser, page: str, dark: bool, width: int) -> None:
    """No sideways scrolling, no complaint of the console or the policy, nothing from anywhere else; and a picture to
    look at in artifacts/pages.
    """
    role, caller, address, needed = PAGES[page]
    browser.look(width=width, dark=dark)
    if role is not None:
        browser.driver.get(site.link("customer" if role == "customer" else "support", caller))
    browser.driver.get(site.base + address.replace("REQUEST", newest_request_id(site)))
    browser.until(lambda: bool(browser.js("return document.querySelector(arguments[0])", needed)), needed)
    time.sleep(0.3)  # the picture is drawn in the frame after its canvas is made
    wide, shown = browser.js("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= shown
    assert [] == browser.errors()
    hosts = browser.js(
        "return [...new Set(performance.getEntriesByType('resource').map((e) => new URL(e.name).origin))]"
    )
    assert [site.base] == hosts
    height = browser.js("return document.documentElement.scrollHeight")
    browser.look(width=width, height=min(height, 1_800), dark=dark)
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    target = ARTIFACTS / f"{page}-{width}-{'dark' if dark else 'light'}.png"
    assert browser.driver.save_screenshot(str(target))
    assert target.stat().st_size > 5_000


def test_open_page_moves_without_a_reload(site: Site, browser: Browser) -> None:
    """Sentence, picture and table move together; what the reader has opened stays open, where he is he stays."""
    open_usage(site, browser)
    browser.js("window.sameDocument = true; document.querySelector('#numbers').open = true;")
    browser.js("document.querySelector('#numbers > summary').focus()")
    before = browser.text(SENTENCE)
    site.add(7_001, scope="GET /v1/moved")
    browser.until(lambda: "GET /v1/moved" in browser.text("#endpoints"), "the new endpoint in the table")
    assert before != browser.text(SENTENCE)
    model = browser.js("return JSON.parse(document.querySelector('#picture').dataset.chart)")
    assert sum(model["refused"]) >= 7_001
    assert browser.js("return window.sameDocument === true")
    assert browser.js("return document.querySelector('#numbers').open")
    assert browser.js("return document.activeElement === document.querySelector('#numbers > summary')")
    assert [] == browser.errors()


def test_hidden_page_asks_for_nothing(site: Site, browser: Browser) -> None:
    """A hundred forgotten tabs must not load the record; back in front, the page catches up at once."""
    open_usage(site, browser)
    hide = (
        "const hidden = arguments[0];"
        "Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});"
        "document.dispatchEvent(new Event('visibilitychange'));"
    )
    browser.js(hide, True)
    time.sleep(0.5)  # an answer that was under way may still come in
    browser.js("performance.clearResourceTimings()")
    site.add(50, scope="GET /v1/hidden")
    time.sleep(3.2)
    assert 0 == browser.js("return performance.getEntriesByType('resource').length")
    assert "GET /v1/hidden" not in browser.text("#endpoints")
    browser.js(hide, False)
    browser.until(lambda: "GET /v1/hidden" in browser.text("#endpoints"), "the page catching up")


def test_page_keeps_its_last_good_figures_when_the_record_is_away(site: Site, browser: Browser) -> None:
    """The figures stay, and it is said since when they stand; when the record is back the words go."""
    open_usage(site, browser)
    record = site.app.state.house.gate._record
    lent, record._connect = record._connect, _refuse
    record.close()
    try:
        browser.until(lambda: "Not updated since" in browser.text("#live-note"), "the note")
        stands = browser.text(SENTENCE)
        assert stands.startswith("You sent")
        time.sleep(2.5)
        assert stands == browser.text(SENTENCE)
        assert browser.js("return document.querySelectorAll('#picture canvas').length") == 1
    finally:
        record._connect = lent
    browser.until(lambda: browser.text("#live-note") == "", "the note going", within_s=40)
    browser.errors()


def test_the_picture_is_read_out_by_keyboard(site: Site, browser: Browser) -> None:
    """Exact values without a mouse: arrows move the reading, Home and End jump."""
    open_usage(site, browser)
    browser.js("document.querySelector('.chart').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.HOME)
    first = browser.text(".chart-tip")
    assert "admitted" in first
    assert "refused" in first
    assert "plan 300" in first
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert first != browser.text(".chart-tip")


def test_support_finds_a_request_by_the_id_of_its_body(site: Site, browser: Browser) -> None:
    """R13 as a person does it: paste, Enter, read."""
    browser.driver.get(site.link("support"))
    wanted = newest_request_id(site)
    box = browser.driver.switch_to.active_element
    assert "q" == box.get_attribute("id")
    box.send_keys(wanted, Keys.ENTER)
    browser.until(lambda: wanted in browser.text("#found"), "the request")
    assert "Policy version 41" in browser.text("#found")
    browser.driver.back()
    browser.until(lambda: browser.js("return location.search") == "", "the page before")


def test_a_row_opens_by_keyboard_and_stays_open(site: Site, browser: Browser) -> None:
    """Reading a refusal must survive the next update."""
    browser.driver.get(site.link("support"))
    browser.driver.get(f"{site.base}/support?q=acme")
    browser.until(lambda: bool(browser.js("return document.querySelector('.refusals summary')")), "refusals")
    browser.js("document.querySelector('.refusals summary').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    before = browser.text(SENTENCE)
    site.add(90, scope="GET /v1/opened")
    browser.until(lambda: browser.text(SENTENCE) != before, "an update")
    assert "Policy version 41" in browser.text(".refusals details[open] .facts")


def _refuse() -> None:
    raise RecordUnavailable("the record is away")
