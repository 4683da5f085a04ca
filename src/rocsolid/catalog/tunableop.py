"""The environment variables of TunableOp, torch's tuner of matrix multiplications."""

from typing import Final

ENABLED: Final = "PYTORCH_TUNABLEOP_ENABLED"
TUNING: Final = "PYTORCH_TUNABLEOP_TUNING"
# The results file. TunableOp inserts the device number before the suffix.
FILENAME: Final = "PYTORCH_TUNABLEOP_FILENAME"
