"""A line of the user's code, printed with carets under one expression."""

import ast
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CodeLine:
    """One source line: `str()` shows it as `file:line   code`, with carets under `start` to `end` where they are known."""

    file: str
    line: int
    text: str = ""  # without the newline; empty if the source cannot be read
    start: int = 0  # columns of the expression in `text`; start equals end if they are not known
    end: int = 0

    @property
    def location(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, location: str | None = None) -> list[str]:
        """Return one or two lines of text; `location`, for example with a shorter path, replaces `file:line`."""
        head = f"{self.location if location is None else location}   "
        code = self.text.strip()
        if not code:
            return [head.rstrip()]
        indent = len(self.text) - len(self.text.lstrip())
        output = [head + code]
        if indent <= self.start < self.end:
            output.append(" " * (len(head) + self.start - indent) + "^" * (min(self.end, len(self.text)) - self.start))
        return output


def underline(text: str, *names: str) -> tuple[int, int]:
    """Return the columns of the first call, attribute or name with one of `names` in a source line; (0, 0) if there is none.

    Example:
        >>> underline("if y.sum().item() > 0:", "item")
        (3, 17)

    """
    code = text.strip()
    indent = len(text) - len(text.lstrip())
    for source in (code, f"{code} pass", f"{code}\n    pass", f"if True: pass\n{code} pass"):
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        last = max((node.lineno for node in ast.walk(tree) if hasattr(node, "lineno")), default=1)
        line_of_code = last if source.startswith("if True") else 1
        matches = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.expr) and _has_name(node, names) and node.lineno == line_of_code
        ]
        if matches:
            node = min(matches, key=lambda n: (not isinstance(n, ast.Call), n.col_offset))
            return indent + _column(code, node.col_offset), indent + _column(code, node.end_col_offset or 0)
        return 0, 0
    return 0, 0


def _has_name(node: ast.expr, names: tuple[str, ...]) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    return (isinstance(node, ast.Attribute) and node.attr in names) or (isinstance(node, ast.Name) and node.id in names)


def _column(code: str, offset_bytes: int) -> int:
    """Convert an offset in bytes of UTF-8, as `ast` reports it, to a column in characters."""
    return len(code.encode()[:offset_bytes].decode(errors="replace"))
