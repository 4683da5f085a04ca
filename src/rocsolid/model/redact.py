"""Hide secrets in text that is saved, printed or attached to a report: by the name of a variable, and by the shape of a value.

Every quantifier is bounded or cannot be tried twice at one place, so that no text takes longer than its length allows.
"""

import re
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final, TypeVar

T = TypeVar("T")

HIDDEN: Final = "(hidden)"
_SECRET_NAME: Final = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|SESSION|PRIVATE|AUTH|APIKEY|(^|[_-])(API|KEYS?|PASS|PAT|PWD|SIG)($|[_-])",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(
    r"\b(?:hf_|gh[opsur]_|npm_)[A-Za-z0-9]{16,}"  # known prefixes; `hf_hub_download` is none
    r"|\b(?:sk-|github_pat_|glpat-|xox[abeprs]-|pypi-|ya29\.|AIza)[\w.\-]{16,}"
    r"|\b(?:AKIA|ASIA|AGPA|AROA|AIDA)[A-Z0-9]{12,}"  # Amazon
    r"|\beyJ[\w\-]{6,300}\.[\w\-.]*"  # a JSON web token
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^\"]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|(?=\")|\Z)"
    r"|\b(?:Bearer|Basic)\s{1,9}[\w.~+/=\-]{8,}"
)
# A login may contain any character, `/`, `@`, `?` and `#` included; it ends at the last `@` before a blank or quote.
# A path keeps one slash of a URL.
_URL_LOGIN: Final = re.compile(r"(?:(?<=://)|(?<=\w\w:/)(?=[^\s\"'<>/:]{1,500}:))[^\s\"'<>]{1,500}@(?=[\w\[.\-])")
# A quote may be escaped, as in JSON inside of a string. An unquoted value ends at a blank, `&`, `;`, `,`, a quote, or a colon before a blank.
_NAMED_VALUE: Final = re.compile(
    r"(?P<option>(?:[?&]|--)[\w-]{0,40})?"
    r"(?P<name>passw(?:or)?d|passphrase|pwd|secret|api[_-]?key|access[_-]?key|credential|token|sig(?:nature)?)s?"
    r"\\{0,3}[\"']?\s{0,9}[=:]\s{0,80}\\{0,3}(?P<value>\"[^\"\n]*\"?|'[^'\n]*'?|[^\s&;,\"']+?(?=[\s&;,\"']|:\s|\Z))",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(
    r"(--[\w-]{0,40}(?:passw(?:or)?d|passphrase|secret|token|key|credential)s?)\s{1,80}(?=[^\s-])[^\s]+", re.IGNORECASE
)
# Most texts contain none of these words, and searching for words is fast.
_NAMES: Final = ("pass", "pwd", "secret", "key", "credential", "token", "sig")
_TOKENS: Final = (
    "hf_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "npm_", "github_", "sk-", "glpat-", "xox", "pypi-", "ya29.", "aiza", "akia", "asia", "agpa", "aroa", "aida", "eyj", "-----begin",
    "bearer", "basic",
)  # fmt: skip
_NO_SECRETS: Final = ("None", "True", "False", "null", "true", "false")
_ORDINARY_NAMES: Final = ("token", "sig", "signature")  # in programs, too: `token: Tensor`, `next_token = f(x)`
_MIN_TOKEN_CHARS: Final = 16
_TOKEN_VALUE: Final = re.compile(r"[\w.~+/=\-]+")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def redact(text: str) -> str:
    """Return the text without tokens, keys, logins in URLs and values of `password=`."""
    lower = text.lower()
    if any(word in lower for word in _TOKENS):
        text = _TOKEN.sub(HIDDEN, text)
    if "@" in text:
        text = _URL_LOGIN.sub("", text)
    if any(word in lower for word in _NAMES):
        text = _NAMED_VALUE.sub(_hide_value, _OPTION.sub(rf"\1 {HIDDEN}", text))
    return text


def redact_value(name: str, value: str) -> str:
    """Return the value of a variable; hidden if its name or its shape is that of a secret."""
    return HIDDEN if is_secret_name(name) else redact(value)


def redact_all(data: T) -> T:
    """Return a record, or JSON data, with every string redacted.

    Records are redacted before they are rendered: a secret that is cut off to fit into a column is no longer recognised.
    """
    return typing.cast("T", _redact_all(data))


def _redact_all(data: Any) -> Any:
    if isinstance(data, Enum):
        return data
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, Mapping):
        return {_redact_all(key): _redact_all(value) for key, value in data.items()}
    if type(data) in (list, tuple, set, frozenset):
        return type(data)(_redact_all(value) for value in data)
    if is_dataclass(data) and not isinstance(data, type):
        return replace(data, **{f.name: _redact_all(getattr(data, f.name)) for f in fields(data) if f.init})
    return data


def _hide_value(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    ordinary = (
        name.lower() in _ORDINARY_NAMES and match["option"] is None and not name.isupper() and not _is_token(value)
    )
    shown = ordinary or value in _NO_SECRETS or value.startswith(HIDDEN)
    return match[0] if shown else match[0].removesuffix(value) + HIDDEN


def _is_token(value: str) -> bool:
    """Whether this is no ordinary name such as `next_token_ids`."""
    if len(value) < _MIN_TOKEN_CHARS:
        return False
    is_name = "_" in value or "." in value
    return value[0] in "\"'" or (
        _TOKEN_VALUE.fullmatch(value) is not None and (not is_name or any(c.isdigit() for c in value))
    )
