"""Version numbers and version ranges."""

import pytest

from rocsolid.model.release import Span, compare, parts, span


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.13.0+cpu", (2, 13, 0)),
        ("7.2.53211", (7, 2, 53211)),
        ("2.14.0a0+git1", (2, 14, 0)),
        ("", ()),
        ("nightly", ()),
    ],
)
def test_parts_are_the_leading_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert parts(text) == numbers


def test_comparison_stops_at_the_precision_both_share() -> None:
    assert compare("2.9", "2.9.1") == 0
    assert compare("2.10.0", "2.9") > 0
    assert compare("7.1.1", "7.2.0") < 0


@pytest.mark.parametrize(
    ("text", "version", "holds"),
    [
        ("7.2.0..7.2.3", "7.2.1", True),
        ("7.2.0..7.2.3", "7.2.4", False),
        ("7.2.0..7.2.3", "7.2", True),  # could be any of them, so it counts as inside
        ("7.2.0..7.2.3", "", False),
        ("..2.9", "2.9.1", True),
        ("2.10..", "2.9.1", False),
        ("2.10..", "2.15.0", True),
        ("7.2..", "7.14.0", True),
        ("7.2..", "10.0.1", True),
        ("..7.1", "7.14.0a20261101", False),
        ("7.2..7.14", "10.2.0rc1", False),
        ("10.0..", "7.14", False),
        ("..", "", True),
        ("2.13", "2.13.0+cpu", True),
    ],
)
def test_span_holds_versions_that_may_be_inside(text: str, version: str, *, holds: bool) -> None:
    assert span(text).holds(version) is holds


def test_span_as_text() -> None:
    assert [str(span(t)) for t in ("..", "2.9..", "..2.9", "2.9..2.15", "2.9")] == [
        "all",
        "2.9 and later",
        "up to 2.9",
        "2.9 to 2.15",
        "2.9",
    ]
    assert Span() == span("..")
