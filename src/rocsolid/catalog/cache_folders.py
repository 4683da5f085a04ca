"""The environment variables that move the folders in which compiled code is cached."""

from collections.abc import Mapping
from typing import Final

INDUCTOR: Final = "TORCHINDUCTOR_CACHE_DIR"
TRITON: Final = "TRITON_CACHE_DIR"
MIOPEN: Final = "MIOPEN_CUSTOM_CACHE_DIR"
MIOPEN_DATABASE: Final = "MIOPEN_USER_DB_PATH"
# The variables, by the names that a probe uses for the folders.
VARIABLES: Final[Mapping[str, str]] = {
    "inductor": INDUCTOR,
    "triton": TRITON,
    "miopen": MIOPEN,
    "miopen found": MIOPEN_DATABASE,
}
