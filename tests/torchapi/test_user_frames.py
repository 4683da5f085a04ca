"""User code is distinguished from torch and rocsolid."""

import sys
import traceback

import pytest

from rocsolid.torchapi.user_frames import innermost_user_location, user_expression


def fails(value: str) -> int:
    return len(value) + int(value.strip())


def test_the_failed_expression_is_found() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        fails(" x ")
    expression = user_expression(caught.value.__traceback__)
    has_columns = sys.version_info >= (3, 11)  # older versions provide only the line
    assert expression == ("int(value.strip())" if has_columns else "return len(value) + int(value.strip())")
    assert innermost_user_location(traceback.walk_tb(caught.value.__traceback__)).startswith(__file__)


def test_without_user_code_the_expression_is_empty() -> None:
    assert user_expression(None) == ""
