"""The pages of the Python API, one for each public name, generated from signatures, docstrings and source."""

import ast
import enum
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, Final

import rocsolid as rs

GROUPS: Final = {
    "Find problems": ("probe", "check", "lint", "explain"),
    "Settings and safe compiles": ("resolve", "apply", "compile", "guard", "pretend"),
    "Capture and optimize": ("capture", "optimize", "every", "pause_captures"),
    "Check results": ("verify",),
    "Inspect compiles": ("compiles", "record_compiles", "breaks", "dryrun"),
    "Measure": ("tune", "ab", "profile", "trace", "compare"),
    "Operators": ("vendor_op", "audit_op", "patch_calls"),
}
# Types that no signature names, because the function returns one of several.
_RETURNED_BY: Final = {
    "Captured": "capture",
    "CapturedModule": "capture",
    "Optimized": "optimize",
    "OptimizedModule": "optimize",
    "ProgramReport": "optimize",
    "CompileLog": "compiles",
    "Culprit": "verify",
    "VendorOp": "vendor_op",
}
# For each error: the function that raises it, and lines that do.
_RAISED: Final = {
    "RocsolidError": ("explain", 'rs.explain("max_autotun")'),
    "UsageError": ("lint", "rs.lint(3)"),
    "UnknownNameError": ("explain", 'rs.explain("max_autotun")'),
    "InputError": ("trace", 'rs.trace("README.md")'),
    "PlanError": ("optimize", 'rs.optimize(model, x, plan="plan-of-another-chip.toml")'),
    "CompileDeadlineError": ("compile", "rs.compile(model, deadline_s=1, fullgraph=True)(x)"),
    "RecompileError": ("compile", "fast = rs.compile(model, max_recompiles=0)\nfast(x)\nfast(x[:, :7])"),
    "VendorOpError": ("vendor_op", 'rs.vendor_op("mine::scale", lambda x: x)'),
    "CompileInCaptureError": (
        "capture",
        "compiled = torch.compile(model)\nwith torch.cuda.graph(graph):\n    compiled(x)  # its first call",
    ),
    "CaptureError": ("capture", 'rs.capture(model, on_error="raise")(x)'),
    "StaleOutputError": (
        "capture",
        'fast = rs.capture(model, outputs="alias")\nfirst = fast(x)\nfast(y)\nfirst + 1  # overwritten by the second call',
    ),
    "MissingExtraError": ("trace", 'rs.trace("trace.json")'),
    "UnsupportedTorchError": ("breaks", "rs.breaks(model, x)"),
    "TimedOutError": ("dryrun", 'rs.dryrun("model.py", target="gfx942", deadline_s=1)'),
    "CannotRunError": ("dryrun", 'rs.dryrun("model_that_fails.py", target="gfx942")'),
}


def api_pages() -> Iterator[tuple[str, str]]:
    """Yield the overview and a page for each public name: functions, `types/` and `errors/`."""
    missing = set(rs.__all__) - {*_functions(), *_classes()}
    assert not missing, f"not in the Python API: {sorted(missing)}"
    yield "api/index.md", _overview()
    for name in rs.__all__:
        yield _file(name), "\n".join(_page(name)).rstrip() + "\n"


def _functions() -> list[str]:
    return [name for names in GROUPS.values() for name in names]


@cache
def _classes() -> tuple[str, ...]:
    return tuple(name for name in rs.__all__ if inspect.isclass(getattr(rs, name)))


def _is_error(name: str) -> bool:
    return name in _classes() and issubclass(getattr(rs, name), Exception)


def _file(name: str) -> str:
    """The page of a name. Types have a folder of their own: `guard.md` and `Guard.md` are one file on some systems."""
    return f"api/{'errors/' if _is_error(name) else 'types/' if name in _classes() else ''}{name}.md"


def _overview() -> str:
    errors = [name for name in _classes() if _is_error(name)]
    types = [name for name in _classes() if name not in errors]
    lines = [
        "# Python API",
        "",
        "`import rocsolid as rs` imports nothing else and changes nothing; every name is loaded when it is first used.",
        "Names marked *experimental* may change in any release.",
    ]
    for title, names in {**GROUPS, "Types": types, "Errors": errors}.items():
        lines += ["", f"## {title}", "", "| | |", "|---|---|"]
        lines += [
            f"| [`rs.{name}`]({_file(name).removeprefix('api/')}) | {_summary(getattr(rs, name))} |" for name in names
        ]
    return "\n".join(lines) + "\n"


def _page(name: str) -> Iterator[str]:
    value = getattr(rs, name)
    yield from (f"# rs.{name}", "")
    if name in rs._EXPERIMENTAL:
        yield from ("*Experimental.*", "")
    if name not in _classes():
        yield from (*_call(f"rs.{name}", value), "", *_body(inspect.getdoc(value) or ""), "")
        if returned := [other for other in _classes() if _mentions(inspect.signature(value).return_annotation, other)]:
            yield from (f"See also: {_links(returned, name)}.", "")
        return
    if name in _RAISED:
        yield from (*_body(inspect.getdoc(value) or ""), "", *_error(name, value))
        return
    yield from _type(name, value)


def _error(name: str, error: Any) -> Iterator[str]:
    function, lines = _RAISED[name]
    bases = [base.__name__ for base in error.__mro__[1:] if base.__name__ in _classes()]
    if bases:
        yield from (
            f"It is also a {_links(bases, name)}. On the command line it ends with exit code {error.exit_code}.",
            "",
        )
    yield from ("## Example", "", "```py", "try:", textwrap.indent(lines, "    "), f"except rs.{name} as error:")
    yield from ("    print(error)", "```", "", f"See also: {_links([function], name)}.")


def _type(name: str, value: Any) -> Iterator[str]:
    yield from (*_body(_own_doc(value)), "")
    uses = _uses(name)
    if uses:
        links = (f"[`{use}`]({_link(_owner(use), name)})" for use in uses)
        yield from (f"Used by: {', '.join(links)}.", "")
    if issubclass(value, enum.Enum):
        yield from (
            "## Values",
            "",
            "| name | value |",
            "|---|---|",
            *(f"| `{m.name}` | {m.value} |" for m in value),
            "",
        )
    if is_dataclass(value) and (table := list(_field_table(value, name))):
        yield from ("## Fields", "", *table, "")
        for part in _parts(value):
            yield from (f"### {part.__name__}", "", *_body(_own_doc(part)), "", *_field_table(part, name), "")
    for title, members in (("Properties", _properties(value)), ("Methods", _methods(value))):
        if members:
            yield from (f"## {title}", "")
        for member, described in members:
            yield from (
                f"### {member}",
                "",
                *_call(f".{member}", described),
                "",
                *_body(inspect.getdoc(described) or ""),
                "",
            )
    if "Example" not in _own_doc(value) and (source := _origin(name)):
        example = [*_body("Example:\n" + (inspect.getdoc(getattr(rs, source)) or "").partition("Example:\n")[2])]
        yield from (f"## Example, from [`rs.{source}`]({_link(source, name)})", "", *example[3:], "")


def _field_table(value: Any, page: str) -> Iterator[str]:
    comments = _field_comments(value)
    rows = [f for f in fields(value) if not f.name.startswith("_")]
    if rows:
        yield from ("| field | type | |", "|---|---|---|")
        yield from (f"| `{f.name}` | {_type_text(f, page)} | {comments.get(f.name, '')} |" for f in rows)


def _parts(value: Any) -> list[Any]:
    """The dataclasses in the fields of a type that have no page of their own."""
    found: dict[str, Any] = {}
    waiting = list(typing.get_type_hints(value).values())
    while waiting:
        hint = waiting.pop(0)
        waiting += typing.get_args(hint)
        if inspect.isclass(hint) and is_dataclass(hint) and hint.__name__ not in _classes():
            found[hint.__name__] = hint
    return list(found.values())


def _own_doc(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


def _properties(value: Any) -> list[tuple[str, Any]]:
    return [(n, v) for n, v in vars(value).items() if isinstance(v, property) and not n.startswith("_") and v.__doc__]


def _methods(value: Any) -> list[tuple[str, Any]]:
    public = (
        (n, getattr(value, n)) for n, v in vars(value).items() if not n.startswith("_") and not isinstance(v, property)
    )
    return [(n, v) for n, v in public if callable(v) and not inspect.isclass(v) and inspect.getdoc(v)]


def _uses(name: str) -> list[str]:
    """Where a type appears: `rs.tune()` or `rs.Study.trials`."""
    found = [f"rs.{f}()" for f in _functions() if _mentions(inspect.signature(getattr(rs, f)), name)]
    if name in _RETURNED_BY and f"rs.{_RETURNED_BY[name]}()" not in found:
        found.insert(0, f"rs.{_RETURNED_BY[name]}()")
    for other in _classes():
        value = getattr(rs, other)
        if other == name or _is_error(other):
            continue
        if is_dataclass(value):
            found += [f"rs.{other}.{f.name}" for f in fields(value) if _mentions(f.type, name)]
        found += [
            f"rs.{other}.{method}()"
            for method, function in _methods(value)
            if _mentions(_signature_of(function).return_annotation, name)
        ]
    return found


def _owner(use: str) -> str:
    """The public name in `rs.Study.trials`."""
    return use.split(".")[1].rstrip("()")


@cache
def _origin(name: str) -> str:
    """The function from whose result a value of this type is reached."""
    seen, waiting = {name}, [name]
    while waiting:
        for use in _uses(waiting.pop(0)):
            owner = _owner(use)
            if owner in _functions():
                return owner
            if owner not in seen:
                seen.add(owner)
                waiting.append(owner)
    return ""


def _mentions(annotation: Any, name: str) -> bool:
    return bool(re.search(rf"\b{name}\b", annotation if isinstance(annotation, str) else str(annotation)))


def _type_text(field: Field[Any], page: str) -> str:
    annotation = field.type if isinstance(field.type, str) else _plain(field.type)
    names = [name for name in _classes() if re.fullmatch(rf".*\b{name}\b.*", annotation)]
    text = f"`{annotation}`".replace("|", "\\|")
    if field.default is not MISSING and len(repr(field.default)) < 40:  # noqa: PLR2004
        text += f", default `{field.default!r}`".replace("|", "\\|")
    return text + (f" ({_links(names, page)})" if names and names != [page] else "")


def _plain(annotation: Any) -> str:
    """An annotation without the modules of its names."""
    text = annotation.__name__ if inspect.isclass(annotation) and not typing.get_args(annotation) else str(annotation)
    return re.sub(r"\b[a-z_][\w]*\.(?=[\w.]*\b[A-Za-z])", "", text)


def _field_comments(value: Any) -> dict[str, str]:
    """The comment behind each field."""
    comments: dict[str, str] = {}
    bases: list[Any] = [base for base in reversed(value.__mro__) if is_dataclass(base)]
    for base in bases:
        source = textwrap.dedent(inspect.getsource(base))
        lines = source.splitlines()
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                comments[node.target.id] = text.partition("  # ")[2].partition("\n")[0].replace("|", "\\|")
    return comments


def _links(names: list[str], page: str) -> str:
    return ", ".join(f"[`rs.{name}`]({_link(name, page)})" for name in names if name != page)


def _link(name: str, page: str) -> str:
    """A link from the page of one name to that of another."""
    up = "../" * (_file(page).count("/") - 1)
    return up + _file(name).removeprefix("api/")


def _call(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        returned = _signature_of(value.fget).return_annotation
        yield from ("```py", f"{name} -> {returned if isinstance(returned, str) else _plain(returned)}", "```")
        return
    yield from ("```py", f"{name}{_signature(value)}", "```")


def _signature_of(value: Any) -> inspect.Signature:
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):
        return inspect.Signature()


def _signature(value: Any) -> str:
    signature = _signature_of(value)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name not in ("self", "cls")]
    text = re.sub(
        r"<function .*? at 0x[0-9a-f]+>|<[^>]*>",
        "...",
        str(signature.replace(parameters=parameters, return_annotation=signature.empty)),
    )
    return text if len(text) < 90 else "(\n    " + ",\n    ".join(_split(text[1:-1])) + ",\n)"  # noqa: PLR2004


def _split(parameters: str) -> list[str]:
    """Split at the commas that are outside of brackets."""
    parts, depth = [""], 0
    for character in parameters:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _summary(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


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
