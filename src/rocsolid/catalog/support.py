"""The torch and Python releases that rocsolid supports and is tested with."""

from typing import Final

from rocsolid.model.release import Span

SUPPORTED_TORCH: Final = Span("2.9", "2.15")
TESTED_TORCH: Final = {"2.13": "CPU, in every run of the tests", "2.11": "CUDA on an H200, before each release"}
SUPPORTED_PYTHON: Final = Span("3.10", "3.14")
