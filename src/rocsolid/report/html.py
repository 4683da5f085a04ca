"""Build HTML. Text and attribute values are escaped here and nowhere else, and only this module creates `Html`.

A plain string is always text: a value cannot become markup, however it is put together.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from html import escape
from typing import Final, Union

from rocsolid.model.redact import redact, redact_all

Node = Union["Html", str, int, float, None, Iterable["Node"]]
Attribute = str | int | float | bool | None

_VOID: Final = frozenset({"br", "input", "meta"})
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
# Attributes that hold a program, a style or a document, and elements that load one. The content security policy
# forbids them as well; a page that needs one has a mistake.
_FORBIDDEN_ATTRIBUTES: Final = re.compile(r"on.*|style|src|srcdoc|srcset|action|formaction|background|xlink.*")
_FORBIDDEN_TAGS: Final = frozenset({"script", "style", "iframe", "object", "embed", "base", "link", "form", "img"})
_UNSAFE_IN_ID: Final = re.compile(r"[^\w.:-]+")


class Html:
    """A piece of HTML that is escaped already. Made by `tag` and `join`; a string is not one."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)


def tag(name: str, /, *children: Node, **attributes: Attribute) -> Html:
    """Return an element. `class_` is `class`, `data_sort` is `data-sort`; True is an attribute without a value, and None or False none.

    >>> str(tag("p", "a < b", class_='x" onclick="y'))
    '<p class="x&quot; onclick=&quot;y">a &lt; b</p>'
    """
    if not _NAME.fullmatch(name) or name in _FORBIDDEN_TAGS:
        msg = f"no element <{name}> on a page"
        raise ValueError(msg)
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(opening if name in _VOID else f"{opening}{join(*children)}</{name}>")


def join(*nodes: Node) -> Html:
    """Return the nodes one after the other; a string becomes text, None nothing."""
    return Html("".join(_text(node) for node in nodes))


def make_id(text: str) -> str:
    """Return an id, also for a link to it, made of any text."""
    return _UNSAFE_IN_ID.sub("-", redact(text))


def json_data(element_id: str, value: object) -> Html:
    """Return data for a script of the page, which reads it with `JSON.parse`."""
    text = json.dumps(redact_all(value), separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{escape(make_id(element_id))}">{text}</script>')


def document(*, title: str, styles: Iterable[str], scripts: Iterable[str], body: Html) -> str:
    """Return a complete page. Its policy allows these style sheets and scripts, and nothing else: no other script, no request."""
    style_blocks, script_blocks = ([f"\n{text}" for text in blocks] for blocks in (styles, scripts))
    policy = (
        f"default-src 'none'; script-src {_hashes(script_blocks)}; style-src {_hashes(style_blocks)}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        [Html(f"<style>{text}</style>") for text in style_blocks],
    )
    scripts_html = join([Html(f"<script>{text}</script>") for text in script_blocks])
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n{scripts_html}\n</body>\n</html>\n'


def frame(page: str, *, height_px: int) -> str:
    """Return a page in a frame for a notebook cell. The frame is sandboxed: neither side can reach the other."""
    style = f"width:100%;height:{height_px}px;border:1px solid #8884;border-radius:6px"
    return f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" style="{style}"></iframe>'


def _hashes(blocks: Iterable[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks]
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"


def _text(node: Node) -> str:
    if node is None:
        return ""
    if isinstance(node, Html):
        return str(node)
    if isinstance(node, (str, int, float)):
        return _escape(str(node))
    return "".join(_text(child) for child in node)


def _attribute(key: str, value: Attribute) -> str:
    name = key.removesuffix("_").replace("_", "-")
    if not _NAME.fullmatch(name) or _FORBIDDEN_ATTRIBUTES.fullmatch(name.lower()):
        msg = f"no attribute {name} on a page"
        raise ValueError(msg)
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    if name == "href" and not str(value).startswith(("#", "https://", "http://")):
        return ""  # such as `javascript:`
    if name == "id":
        value = make_id(str(value))
    return f' {name}="{_escape(str(value))}"'


def _escape(text: str) -> str:
    """Escape for text and for quoted attributes, and hide secrets.

    Half of a surrogate pair, which UTF-8 cannot hold, is shown as its number.
    """
    return escape(redact(text).encode("utf-8", "backslashreplace").decode())
