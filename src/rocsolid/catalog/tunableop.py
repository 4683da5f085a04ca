"""The environment variables of TunableOp, torch's tuner of matrix multiplications."""

from typing import Final

ENABLED: Final = "PYTORCH_TUNABLEOP_ENABLED"
TUNING: Final = "PYTORCH_TUNABLEOP_TUNING"
FILENAME: Final = (
    "PYTORCH_TUNABLEOP_FILENAME"  # of the results file; TunableOp inserts the device number before the suffix
)
