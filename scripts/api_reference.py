"""The page of the Python API, generated from signatures and docstrings."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import rocsolid as rs

GROUPS: Final = {
    "Find problems": ("probe", "check", "lint", "explain"),
    "Settings and safe compiles": ("resolve", "apply", "compile", "guard", "pretend"),
    "Capture and optimize": ("capture", "optimize", "every", "pause_captures"),
    "Check results": ("verify",),
    "Inspect compiles": ("record_compiles", "breaks", "dryrun"),
    "Measure": ("tune", "ab", "trace", "compare"),
    "Operators": ("vendor_op", "audit_op", "patch_calls"),
}


def api_page() -> str:
    """Every public name: functions by task, then result types, then errors."""
    functions = [name for names in GROUPS.values() for name in names]
    classes = [name for name in rs.__all__ if inspect.isclass(getattr(rs, name))]
    errors = [name for name in classes if issubclass(getattr(rs, name), Exception)]
    results = [name for name in classes if name not in errors]
    missing = set(rs.__all__) - {*functions, *classes}
    assert not missing, f"not on the page of the Python API: {sorted(missing)}"
    return "\n".join(
        [
            "# Python API",
            "",
            "`import rocsolid as rs` imports nothing else and changes nothing; every name is loaded when it is first used.",
            "Names marked *experimental* may change in any release.",
            *(line for title, names in GROUPS.items() for line in _section(title, names)),
            *_section("Types", results),
            "",
            "## Errors",
            "",
            "Every error derives from `rs.RocsolidError`.",
            "",
            "| error | raised when |",
            "|---|---|",
            *(f"| `rs.{name}` | {_summary(getattr(rs, name))} |" for name in errors),
            "",
        ]
    )


def _section(title: str, names: tuple[str, ...] | list[str]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    for name in names:
        value = getattr(rs, name)
        yield from (f"### rs.{name}", "")
        if name in rs._EXPERIMENTAL:
            yield from ("*Experimental.*", "")
        if inspect.isclass(value):
            yield from (_summary(value), "")
            public = [n for n, v in vars(value).items() if callable(v) and not n.startswith("_") and inspect.getdoc(v)]
            if public:
                yield from (
                    *(f"- `.{n}{_signature(getattr(value, n))}`: {_summary(getattr(value, n))}" for n in public),
                    "",
                )
            continue
        yield from ("```py", f"rs.{name}{_signature(value)}", "```", "")
        yield from (*_body(inspect.getdoc(value) or ""), "")


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "()"
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name not in ("self", "cls")]
    return re.sub(
        r"<function .*? at 0x[0-9a-f]+>|<[^>]*>",
        "...",
        str(signature.replace(parameters=parameters, return_annotation=signature.empty)),
    )


def _summary(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")


def _body(doc: str) -> Iterator[str]:
    """A Google-style docstring as Markdown: arguments as a list, examples as code."""
    section = ""
    code = False
    for line in doc.splitlines():
        heading = re.fullmatch(r"(Args|Returns|Raises|Example|Examples|Yields|Note):", line)
        if heading:
            section = heading[1]
            yield from ("", f"**{section}**", "")
            continue
        text = line.strip() if section else line
        argument = re.match(r"(\*{0,2}\w+): (.*)", text) if section in ("Args", "Raises") else None
        if section.startswith("Example"):
            if text and not code:
                yield "```pycon"
                code = True
            yield from ([text] if text or code else [])
        elif argument:
            yield f"- `{argument[1]}`: {argument[2]}"
        else:
            yield f"  {text}" if section == "Args" and text else text
    if code:
        yield "```"
