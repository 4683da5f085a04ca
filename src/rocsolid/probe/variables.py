"""Picks the environment variables that concern us, and keeps secrets out."""

import re
from collections.abc import Mapping

from rocsolid.catalog.variables import in_family

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(^|_)(PASS|AUTH|API_?KEYS?|KEYS?)(_|$)")
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"([?&][\w-]*(?:token|key|secret|password|sig\w*)=)[^&\s]+", re.IGNORECASE)
HIDDEN = "(hidden)"


def concerning(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of a family we audit, sorted; values that may be secret are hidden, logins are taken out of addresses."""
    return {
        name: HIDDEN if _SECRET.search(name) else _QUERY.sub(rf"\1{HIDDEN}", _LOGIN.sub("", value))
        for name, value in sorted(variables.items())
        if in_family(name)
    }
