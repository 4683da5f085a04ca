"""A line of the user's code, shown with a caret under the expression that matters."""

import ast
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CodeLine:
    """One source line: `str()` shows it as `file:line   code`, with carets under `start` to `end` where they are known."""

    file: str
    line: int
    text: str = ""  # without the newline; empty where the source cannot be read
    start: int = 0  # columns of the expression in `text`; equal where it is not known
    end: int = 0

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, place: str | None = None) -> list[str]:
        """One or two lines of text; `place` replaces `file:line`, for a shorter path."""
        head = f"{self.place if place is None else place}   "
        code = self.text.strip()
        if not code:
            return [head.rstrip()]
        indent = len(self.text) - len(self.text.lstrip())
        shown = [head + code]
        if indent <= self.start < self.end:
            shown.append(" " * (len(head) + self.start - indent) + "^" * (min(self.end, len(self.text)) - self.start))
        return shown


def underline(text: str, *names: str) -> tuple[int, int]:
    """Columns of the first call, attribute or name in a source line that is called one of `names`; (0, 0) if there is none.

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
        wanted = {last} if source.startswith("if True") else {1}
        found = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.expr) and _is_called(node, names) and node.lineno in wanted
        ]
        if found:
            node = min(found, key=lambda n: (not isinstance(n, ast.Call), n.col_offset))
            return indent + _columns(code, node.col_offset), indent + _columns(code, node.end_col_offset or 0)
        return 0, 0
    return 0, 0


def _is_called(node: ast.expr, names: tuple[str, ...]) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    return (isinstance(node, ast.Attribute) and node.attr in names) or (isinstance(node, ast.Name) and node.id in names)


def _columns(code: str, offset_bytes: int) -> int:
    """`ast` counts bytes of UTF-8, a terminal characters."""
    return len(code.encode()[:offset_bytes].decode(errors="replace"))
