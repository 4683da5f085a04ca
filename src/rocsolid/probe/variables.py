"""Select the environment variables that matter to torch and its libraries, and hide secrets in them."""

import re
from collections.abc import Mapping

from rocsolid.catalog.variables import is_relevant

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(^|_)(PASS|AUTH|API_?KEYS?|KEYS?)(_|$)")
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_SECRET_IN_URL_QUERY = re.compile(r"([?&][\w-]*(?:token|key|secret|password|sig\w*)=)[^&\s]+", re.IGNORECASE)
HIDDEN = "(hidden)"


def relevant_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that the catalogue knows, sorted by name. Secret values are hidden, and logins in URLs removed."""
    return {
        name: HIDDEN
        if _SECRET_NAME.search(name)
        else _SECRET_IN_URL_QUERY.sub(rf"\1{HIDDEN}", _LOGIN_IN_URL.sub("", value))
        for name, value in sorted(variables.items())
        if is_relevant(name)
    }
