"""What one file says, as plain data that goes to another process and into the cache.

`Facts` has two halves. The head is small and always read: what the rules saw, where regions begin, which comments allow
what. The body is read only for files that a region leads into: who calls whom, and what names stand for.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rocsolid.lint.allow_comments import Allow
from rocsolid.lint.regions import Root, Wrapper
from rocsolid.model.source import Edit, Region, SourceMatch


class Call(NamedTuple):
    """One call in a function: of what, where, and whether a trace or a capture passes there."""

    name: str
    line: int
    compiled: bool = True
    captured: bool = True
    in_capture: bool = False  # stands in the body of a capture


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function, as the graph of calls sees it."""

    line: int
    params: tuple[str, ...] = ()
    opaque: bool = False
    disabled: bool = False
    calls: tuple[Call, ...] = ()
    binds: dict[str, str]  # local names and what they were made by


@dataclass(frozen=True, kw_only=True)
class Class:
    """A class: what it is made from, and what its attributes are made by."""

    bases: tuple[str, ...] = ()
    attributes: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Body:
    """Who calls whom in a file."""

    aliases: dict[str, str]
    stars: tuple[str, ...]
    functions: dict[str, Function]
    classes: dict[str, Class]


class Seen(NamedTuple):
    """What one rule saw in one place."""

    code: str
    match: SourceMatch
    text: str = ""  # its source line, with its indentation


class Passed(NamedTuple):
    """A function or class handed to another function, or decorated by it."""

    to: str
    what: str
    position: int
    scope: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is kept of a file; a file that could not be read has a reason instead."""

    module: str = ""
    package: bool = False
    lines: int = 0
    refused: str = ""
    seen: tuple[Seen, ...] = ()
    allows: tuple[Allow, ...] = ()
    roots: tuple[Root, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    passed: tuple[Passed, ...] = ()
    reads: tuple[str, ...] = ()  # environment variables the file asks for
    captures: bool = False  # something is called in the body of a capture
    body_text: str = ""

    @cached_property
    def body(self) -> Body:
        """The larger half, decoded when it is first asked for."""
        return _body(json.loads(self.body_text)) if self.body_text else _body([{}, [], {}, {}])


def head_text(facts: Facts) -> str:
    """The smaller half as JSON."""
    rows: dict[str, list[Any]] = {
        "seen": [_seen_row(seen) for seen in facts.seen],
        "allows": list(facts.allows),
        "roots": [[root.region.value, *root[1:]] for root in facts.roots],
        "wrappers": [[wrapper.region.value, *wrapper[1:]] for wrapper in facts.wrappers],
        "passed": list(facts.passed),
        "reads": list(facts.reads),
    }
    head = [facts.module, facts.package, facts.lines, facts.refused, facts.captures]
    return json.dumps([head, {name: found for name, found in rows.items() if found}], separators=(",", ":"))


def from_texts(head: str, body: str) -> Facts:
    """The inverse of `head_text`, with the body as it was written. Thousands are read at a time, so it is done by hand."""
    (module, package, lines, refused, captures), rows = json.loads(head)
    return Facts(
        module=module,
        package=package,
        lines=lines,
        refused=refused,
        captures=captures,
        seen=tuple(_seen(row) for row in rows.get("seen", ())),
        allows=tuple(Allow(line, tuple(names), *rest) for line, names, *rest in rows.get("allows", ())),
        roots=tuple(Root(Region(region), *rest) for region, *rest in rows.get("roots", ())),
        wrappers=tuple(Wrapper(Region(region), *rest) for region, *rest in rows.get("wrappers", ())),
        passed=tuple(Passed(*row) for row in rows.get("passed", ())),
        reads=tuple(rows.get("reads", ())),
        body_text=body,
    )


def _seen_row(seen: Seen) -> list[Any]:
    s = seen.match
    flags = int(s.inside) | 2 * int(s.uncertain)
    edit = [s.edit.kind, s.edit.text] if s.edit else None
    return [
        seen.code,
        seen.text,
        s.line,
        s.column,
        s.end_column,
        s.subject,
        s.scope,
        s.region.value,
        flags,
        s.severity,
        edit,
        dict(s.facts),
    ]


def _seen(row: list[Any]) -> Seen:
    code, text, line, column, end_column, subject, scope, region, flags, severity, edit, facts = row
    match = SourceMatch(
        line=line,
        column=column,
        end_column=end_column,
        subject=subject,
        scope=scope,
        region=Region(region),
        inside=bool(flags & 1),
        uncertain=bool(flags & 2),
        severity=severity,
        edit=Edit(kind=edit[0], text=edit[1]) if edit else None,
        facts=facts,
    )
    return Seen(code, match, text)


def _body(data: list[Any]) -> Body:
    aliases, stars, functions, classes = data
    return Body(
        aliases=aliases,
        stars=tuple(stars),
        functions={
            name: Function(
                line=line,
                params=tuple(params),
                opaque=bool(flags & 1),
                disabled=bool(flags & 2),
                calls=tuple(
                    Call(name=c, line=at, compiled=not f & 1, captured=not f & 2, in_capture=bool(f & 4))
                    for c, at, f in calls
                ),
                binds=binds,
            )
            for name, (line, params, flags, calls, binds) in functions.items()
        },
        classes={
            name: Class(bases=tuple(bases), attributes={a: tuple(made) for a, made in attributes.items()})
            for name, (bases, attributes) in classes.items()
        },
    )
