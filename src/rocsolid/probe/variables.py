"""Picks the environment variables that concern us, and keeps secrets out."""

import re
from collections.abc import Mapping

from rocsolid.catalog.variables import in_family

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH)(_|$)")
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
HIDDEN = "(hidden)"


def concerning(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of a family we audit, sorted; values that may be secret are hidden, logins are taken out of addresses."""
    return {
        name: HIDDEN if _SECRET.search(name) else _LOGIN.sub("", value)
        for name, value in sorted(variables.items())
        if in_family(name)
    }
