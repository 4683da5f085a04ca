"""A line of code is shown with a caret under the expression."""

import pytest

from rocsolid.model.code_line import CodeLine, underline


@pytest.mark.parametrize(
    ("text", "names", "marked"),
    [
        ("    if y.sum().item() > 0:", ("item",), "y.sum().item()"),
        ("    elif int(x) > 0:", ("int",), "int(x)"),
        ("for i in range(n.item()):", ("item",), "n.item()"),
        ("return x.cpu().numpy()", ("numpy",), "x.cpu().numpy()"),
        ("größe = x.tolist()", ("tolist",), "x.tolist()"),
        ("with torch.cuda.stream(s):", ("stream",), "torch.cuda.stream(s)"),
        ("x = foo(", ("foo",), ""),
        ("x = y", ("item",), ""),
    ],
)
def test_underline_finds_the_expression(text: str, names: tuple[str, ...], marked: str) -> None:
    start, end = underline(text, *names)
    assert text[start:end] == marked


def test_code_line_shows_a_caret() -> None:
    text = "    if y.sum().item() > 0:"
    start, end = underline(text, "item")
    shown = str(CodeLine(file="train.py", line=41, text=text, start=start, end=end)).splitlines()
    assert shown == ["train.py:41   if y.sum().item() > 0:", "                 ^^^^^^^^^^^^^^"]


def test_code_line_without_source_shows_the_location() -> None:
    assert str(CodeLine(file="train.py", line=41)) == "train.py:41"
