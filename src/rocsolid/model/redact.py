"""Hide secrets in text that is saved, printed or attached to a report: by the name of a variable, and by the shape of a value."""

import re
from typing import Final

HIDDEN: Final = "(hidden)"
_SECRET_NAME: Final = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|SESSION|PRIVATE|AUTH|APIKEY|(^|[_-])(API|KEYS?|PASS|PAT|PWD|SIG)($|[_-])",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(
    r"\b(?:hf_|sk-|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|npm_|pypi-|ya29\.|AIza)[\w.\-]{8,}"  # known prefixes
    r"|\b(?:AKIA|ASIA|AGPA|AROA|AIDA)[A-Z0-9]{12,}"  # Amazon
    r"|\beyJ[\w\-]{6,}\.[\w\-.]*"  # a JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:Bearer|Basic)\s+[\w.~+/=\-]{8,}",
    re.DOTALL,
)
# A login may contain any character, `/`, `@`, `?` and `#` included; it ends at the last `@` before a blank or quote.
_URL_LOGIN: Final = re.compile(r"(?<=://)[^\s\"'<>]+@(?=[\w\[.\-])")
_NAMED_VALUE: Final = re.compile(
    r"(?i)((?:[\w-]*(?:passw(?:or)?d|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|signature|sig|credential)s?)[\"']?\s*[=:]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s&;,\"']+)"
)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def redact(text: str) -> str:
    """Return the text without tokens, keys, logins in URLs and values of `password=`."""
    without_logins = _URL_LOGIN.sub("", text)
    return _TOKEN.sub(HIDDEN, _NAMED_VALUE.sub(rf"\1{HIDDEN}", without_logins))


def redact_value(name: str, value: str) -> str:
    """Return the value of a variable; hidden if its name or its shape is that of a secret."""
    return HIDDEN if is_secret_name(name) else redact(value)
