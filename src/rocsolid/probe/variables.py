"""Select the environment variables that matter to torch and its libraries, without secrets."""

import re
from collections.abc import Mapping

from rocsolid.catalog.variables import is_relevant

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(^|_)(PASS|AUTH|API_?KEYS?|KEYS?)(_|$)")
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"([?&][\w-]*(?:token|key|secret|password|sig\w*)=)[^&\s]+", re.IGNORECASE)
HIDDEN = "(hidden)"


def relevant_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of the families in the catalogue, sorted; secret values are hidden, logins removed from URLs."""
    return {
        name: HIDDEN if _SECRET.search(name) else _QUERY.sub(rf"\1{HIDDEN}", _LOGIN.sub("", value))
        for name, value in sorted(variables.items())
        if is_relevant(name)
    }
