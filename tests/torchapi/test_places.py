"""What the user wrote is told apart from what torch and we wrote."""

import sys
import traceback

import pytest

from rocsolid.torchapi.user_frames import user_expression, user_place_of


def fails(value: str) -> int:
    return len(value) + int(value.strip())


def test_the_expression_that_failed_is_quoted() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        fails(" x ")
    found = user_expression(caught.value.__traceback__)
    exact = sys.version_info >= (3, 11)  # before that Python knows the line alone
    assert found == ("int(value.strip())" if exact else "return len(value) + int(value.strip())")
    assert user_place_of(traceback.walk_tb(caught.value.__traceback__)).startswith(__file__)


def test_without_a_line_of_the_users_there_is_none() -> None:
    assert user_expression(None) == ""
