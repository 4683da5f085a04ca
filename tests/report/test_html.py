"""Pages made from somebody else's record run no script and send no request. Also: how HTML is built."""

import ast
import base64
import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pytest
from tests.report.records import PAGES, make, string_fields
from tests.support import SOURCE, chromium

from rocsolid.cli.records import RECORD_TYPES
from rocsolid.model.trace import TraceReport
from rocsolid.model.trace_view import Timeline
from rocsolid.report.html import frame, join, json_data, tag
from rocsolid.report.result_pages import _PAGES, notebook_html, result_page
from rocsolid.report.trace_page import trace_html

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Ends whatever text, attribute or element it is put into, then tries to run a script and to send a request.
PAYLOAD = (
    "javascript:window.hit=1//\"' autofocus onfocus=window.hit=1 style=background:url(https://evil.invalid/a) x='\">-->"
    "</title></style></textarea></script><script>window.hit=1</script><svg onload=window.hit=1></svg>"
    "<img src=https://evil.invalid/b onerror=window.hit=1><iframe srcdoc='<script>top.hit=1</script>'></iframe>"
    "<base href=https://evil.invalid/><link rel=stylesheet href=https://evil.invalid/c.css><form action=/d>"
)
ATTEMPTS = "img, base, link, form, [onload], [onerror], [onfocus], [autofocus], [style*=evil], a[href^=javascript]"


def page_variants(cls: type) -> list[tuple[int, int]]:
    """The records that together show every string that the page of this type can show: some only where another field is empty."""
    marks = {place: f"mark{number}end" for number, place in enumerate(string_fields(cls))}
    chosen, shown = list[tuple[int, int]](), set[str]()
    for variant, sparse in ((n % 2, n // 2) for n in range(24)):
        html = result_page(make(cls, lambda place: marks[place], variant=variant, sparse=sparse))
        now = {mark for mark in marks.values() if mark in html}
        if now - shown or sparse == 0:
            chosen.append((variant, sparse))
            shown |= now
    return chosen


def hostile_pages(payload: str = PAYLOAD) -> Iterator[tuple[str, str]]:
    for cls in PAGES:
        for variant, sparse in page_variants(cls):
            yield (
                f"{cls.__name__} {variant} {sparse}",
                result_page(make(cls, lambda _: payload, variant=variant, sparse=sparse)),
            )
    report: TraceReport = make(TraceReport, lambda _: payload)
    timeline: Timeline = make(Timeline, lambda _: payload)
    words = bytes(4 * 3 * sum(lane.count for lane in timeline.lanes))
    timeline = replace(timeline, data=base64.b64encode(gzip.compress(words)).decode(), categories=(0, 0))
    assert timeline.flame
    flame = replace(timeline.flame, name_index=(0, 0), parent=(-1, 0))
    yield "with a timeline", trace_html(report, {payload: replace(timeline, flame=flame)})
    for cls in (*set(RECORD_TYPES.values()) - set(PAGES), PAGES[0]):
        yield f"{cls.__name__} in a notebook", notebook_html(make(cls, lambda _: payload))


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        opened = playwright.chromium.launch(executable_path=chromium(), args=flags)
        yield opened
        opened.close()


@pytest.mark.browser
@pytest.mark.parametrize("bypass_csp", [False, True], ids=["with the policy", "without the policy"])
def test_no_string_of_a_record_runs_or_loads_anything(browser: "Browser", *, bypass_csp: bool) -> None:
    """Without the policy, only the escaping is left; with it, nothing may even be attempted."""
    context = browser.new_context(bypass_csp=bypass_csp)
    opened = context.new_page()
    opened.set_default_timeout(120_000)  # the pages are large, and other tests run at the same time
    pages = dict(hostile_pages())
    seen: list[str] = []
    opened.on("pageerror", lambda error: seen.append(f"error: {error}"))
    opened.on("dialog", lambda dialog: seen.append(f"dialog: {dialog.message}"))
    opened.on("console", lambda message: seen.append(f"{message.type}: {message.text}"))
    opened.on("request", lambda request: seen.append(request.url))
    opened.route(
        "https://page.invalid/*",
        lambda route: route.fulfill(
            body=pages[unquote(route.request.url[21:])], content_type="text/html; charset=utf-8"
        ),
    )
    opened.add_init_script("addEventListener('securitypolicyviolation', e => console.log(e.violatedDirective))")
    for name in pages:
        address = f"https://page.invalid/{quote(name)}"
        opened.goto(address)
        assert opened.evaluate("window.hit") is None, name
        assert opened.locator(ATTEMPTS).count() == 0, name
        assert [word for word in seen if word not in (address, "about:srcdoc")] == [], name
        seen.clear()
    context.close()


def test_every_schema_is_walked() -> None:
    """A schema without strings would mean that the walk does not work; a page that is not in the list is not opened."""
    assert {cls.__name__ for cls in PAGES} == set(_PAGES)
    assert {cls.__name__ for cls in RECORD_TYPES.values()} <= {c.__name__ for c in PAGES} | {
        "ABResult",
        "CaptureReport",
    }
    assert all(len(list(string_fields(cls))) > 2 for cls in {*PAGES, *RECORD_TYPES.values()})


def test_every_page_has_a_policy_of_hashes() -> None:
    for cls in PAGES:
        html = result_page(make(cls, lambda _: "x"))
        (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', html)
        assert "unsafe" not in policy
        assert policy.startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")


def test_only_one_module_writes_markup() -> None:
    """No other module contains a tag in a string: all of them use `tag`."""
    markup = re.compile(
        r"</?(a|b|body|br|button|code|div|dl|h[1-6]|head|html|i|li|p|pre|script|span|style|svg|t[dhr]|table|ul)[\s>/]"
    )
    found = []
    for file in sorted((SOURCE / "rocsolid").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            text = node.value if isinstance(node, ast.Constant) else ""
            if isinstance(text, str) and markup.search(text) and file.name != "html.py":
                found.append(f"{file.name}:{node.lineno}: {text[:60]!r}")  # type: ignore[attr-defined]
    assert found == []


def test_a_string_is_text_and_never_markup() -> None:
    assert str(tag("p", "<b>", join("&"), None, 3, ["x", tag("br")])) == "<p>&lt;b&gt;&amp;3x<br></p>"
    assert str(tag("a", "x", href="javascript:alert(1)")) == "<a>x</a>"
    assert str(tag("a", "x", href="https://e.org/?a=1&b=2")) == '<a href="https://e.org/?a=1&amp;b=2">x</a>'
    assert str(tag("p", id='a" b>c', hidden=True, title=None)) == '<p id="a-b-c" hidden></p>'
    assert "</script><" not in str(json_data("x", "</script><!--"))
    assert str(tag("p", "a\udcff")) == "<p>a\\udcff</p>"
    assert 'srcdoc="&quot;&gt;"' in frame('">', height_px=1)


@pytest.mark.parametrize("attributes", [{"onclick": "x"}, {"style": "x"}, {"src": "x"}, {"x y": "z"}, {"onLoad": "x"}])
def test_attributes_that_could_run_something_are_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no attribute"):
        tag("p", **attributes)
    for name in ("script", "style", "iframe", "p onclick=x"):
        with pytest.raises(ValueError, match="no element"):
            tag(name)
