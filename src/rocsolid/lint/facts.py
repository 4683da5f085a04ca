"""What the linter keeps of one file, as plain data that is sent between processes and stored in the cache.

`FileFacts` has two halves. The head is small and always decoded: the matches of the rules, the places where compiled or captured
regions start, the allow comments. The body is decoded only for files that a region reaches: the calls of each function and what
names refer to.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rocsolid.lint.allow_comments import Allow
from rocsolid.lint.regions import Root, Wrapper
from rocsolid.model.source import Edit, Region, SourceMatch


class Call(NamedTuple):
    """One call in a function: its name and line, and whether it runs while tracing or capturing."""

    name: str
    line: int
    compiled: bool = True
    captured: bool = True
    in_capture: bool = False  # inside the body of a capture


@dataclass(frozen=True, kw_only=True)
class FunctionFacts:
    """A function, as far as the call graph needs it."""

    line: int
    params: tuple[str, ...] = ()
    opaque: bool = False  # torch.compile does not trace into it
    disabled: bool = False  # by torch.compiler.disable
    calls: tuple[Call, ...] = ()
    bindings: dict[str, str]  # local name -> the expression it was assigned from


@dataclass(frozen=True, kw_only=True)
class ClassFacts:
    """A class: its bases, and the expressions that its attributes were assigned from."""

    bases: tuple[str, ...] = ()
    attributes: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class FileBody:
    """The functions, classes and names of a file."""

    aliases: dict[str, str]  # name -> what it was imported as
    stars: tuple[str, ...]  # modules of `from module import *`
    functions: dict[str, FunctionFacts]
    classes: dict[str, ClassFacts]


class RuleMatch(NamedTuple):
    """One match of a rule, with its source line."""

    code: str  # of the rule
    found: SourceMatch
    line: str = ""  # the text, shortened
    start: int = 0  # columns of the expression in `line`; equal if unknown
    end: int = 0

    @property
    def text(self) -> str:
        """The line without its indentation."""
        return self.line.lstrip()


class PassedFunction(NamedTuple):
    """A function or class that is passed to another function, or decorated by it."""

    to: str
    what: str
    position: int
    scope: str
    line: int


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Everything that the linter stores about a file; `error` is why it could not be read."""

    module: str = ""
    package: bool = False
    lines: int = 0
    error: str = ""
    matches: tuple[RuleMatch, ...] = ()
    allows: tuple[Allow, ...] = ()
    roots: tuple[Root, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    passed: tuple[PassedFunction, ...] = ()
    reads: tuple[str, ...] = ()  # environment variables that the file reads
    captures: bool = False  # the file may capture a CUDA graph
    body_text: str = ""

    @cached_property
    def body(self) -> FileBody:
        """The larger half, decoded on first use."""
        return _body(json.loads(self.body_text)) if self.body_text else _body([{}, [], {}, {}])


def head_text(facts: FileFacts) -> str:
    """The head as JSON."""
    rows: dict[str, list[Any]] = {
        "matches": [_match_row(match) for match in facts.matches],
        "allows": list(facts.allows),
        "roots": [[root.region.value, *root[1:]] for root in facts.roots],
        "wrappers": [[wrapper.region.value, *wrapper[1:]] for wrapper in facts.wrappers],
        "passed": list(facts.passed),
        "reads": list(facts.reads),
    }
    head = [facts.module, facts.package, facts.lines, facts.error, facts.captures]
    return json.dumps([head, {name: found for name, found in rows.items() if found}], separators=(",", ":"))


def from_texts(head: str, body: str) -> FileFacts:
    """The inverse of `head_text`; the body stays text until it is used. Decoded by hand, because thousands are read at a time."""
    (module, package, lines, error, captures), rows = json.loads(head)
    return FileFacts(
        module=module,
        package=package,
        lines=lines,
        error=error,
        captures=captures,
        matches=tuple(_match(row) for row in rows.get("matches", ())),
        allows=tuple(Allow(line, tuple(names), *rest) for line, names, *rest in rows.get("allows", ())),
        roots=tuple(Root(Region(region), *rest) for region, *rest in rows.get("roots", ())),
        wrappers=tuple(Wrapper(Region(region), *rest) for region, *rest in rows.get("wrappers", ())),
        passed=tuple(PassedFunction(*row) for row in rows.get("passed", ())),
        reads=tuple(rows.get("reads", ())),
        body_text=body,
    )


def _match_row(match: RuleMatch) -> list[Any]:
    s = match.found
    flags = int(s.inside) | 2 * int(s.uncertain)
    edit = [s.edit.kind, s.edit.text] if s.edit else None
    return [
        match.code,
        match.line,
        match.start,
        match.end,
        s.line,
        s.column,
        s.subject,
        s.scope,
        s.region.value,
        flags,
        s.severity,
        edit,
        dict(s.facts),
    ]


def _match(row: list[Any]) -> RuleMatch:
    code, text, start, end, line, column, subject, scope, region, flags, severity, edit, facts = row
    found = SourceMatch(
        line=line,
        column=column,
        subject=subject,
        scope=scope,
        region=Region(region),
        inside=bool(flags & 1),
        uncertain=bool(flags & 2),
        severity=severity,
        edit=Edit(kind=edit[0], text=edit[1]) if edit else None,
        facts=facts,
    )
    return RuleMatch(code, found, text, start, end)


def _body(data: list[Any]) -> FileBody:
    aliases, stars, functions, classes = data
    return FileBody(
        aliases=aliases,
        stars=tuple(stars),
        functions={
            name: FunctionFacts(
                line=line,
                params=tuple(params),
                opaque=bool(flags & 1),
                disabled=bool(flags & 2),
                calls=tuple(
                    Call(name=c, line=at, compiled=not f & 1, captured=not f & 2, in_capture=bool(f & 4))
                    for c, at, f in calls
                ),
                bindings=bindings,
            )
            for name, (line, params, flags, calls, bindings) in functions.items()
        },
        classes={
            name: ClassFacts(bases=tuple(bases), attributes={a: tuple(made) for a, made in attributes.items()})
            for name, (bases, attributes) in classes.items()
        },
    )
