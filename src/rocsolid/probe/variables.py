"""Select the environment variables that matter to torch and its libraries, and hide secrets in them."""

from collections.abc import Mapping

from rocsolid.catalog.variables import is_relevant
from rocsolid.model.redact import redact_value


def relevant_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that the catalogue knows, sorted by name. Secrets in their values are hidden."""
    return {name: redact_value(name, value) for name, value in sorted(variables.items()) if is_relevant(name)}
