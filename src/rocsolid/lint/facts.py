"""What the linter knows about one file, as plain data that is sent between processes and stored in the cache.

A region is code that `torch.compile` traces or that a graph capture records.
`FileFacts` has two parts. The summary is small and always decoded: the matches of the rules, the places where regions start, the
allow comments. The symbols are decoded only for files with functions that a region calls: the calls of each function, and what
names refer to.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rocsolid.lint.allow_comments import Allow
from rocsolid.lint.regions import RegionStart, Wrapper
from rocsolid.model.source import Edit, Region, SourceMatch


class Call(NamedTuple):
    """One call in a function. In the body of `if not is_compiling():`, a call does not run when compiled."""

    name: str
    line: int
    runs_when_compiled: bool = True
    runs_when_captured: bool = True
    in_capture_block: bool = False  # in the body of `with torch.cuda.graph(...)`


@dataclass(frozen=True, kw_only=True)
class FunctionFacts:
    """What the call graph needs to know about a function."""

    line: int
    params: tuple[str, ...] = ()
    not_traced: bool = False  # a decorator keeps torch.compile from tracing it
    dynamo_disabled: bool = False  # that decorator is torch.compiler.disable
    calls: tuple[Call, ...] = ()
    bindings: dict[str, str]  # local name -> the expression it was assigned from


@dataclass(frozen=True, kw_only=True)
class ClassFacts:
    """A class: its bases, and the expressions that its attributes were assigned from."""

    bases: tuple[str, ...] = ()
    attributes: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class FileSymbols:
    """The functions, classes and imported names of a file."""

    aliases: dict[str, str]  # name in this file -> full name of what was imported
    star_imports: tuple[str, ...]  # modules of `from module import *`
    functions: dict[str, FunctionFacts]
    classes: dict[str, ClassFacts]


class RuleMatch(NamedTuple):
    """One match of a rule, with its source line."""

    code: str  # of the rule
    found: SourceMatch
    line: str = ""  # text of the line, shortened
    start: int = 0  # columns of the expression in `line`; equal if unknown
    end: int = 0

    @property
    def text(self) -> str:
        """The line without its indentation."""
        return self.line.lstrip()


class PassedFunction(NamedTuple):
    """A function, class or model that is passed to another function, or decorated by it."""

    receiver: str  # name of the function that gets it
    argument: str  # as `RegionStart.target`
    position: int  # -1: passed by keyword
    scope: str
    line: int
    keyword: str = ""


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Everything that the linter stores about a file; `error` is why it could not be read."""

    module: str = ""
    package: bool = False
    lines: int = 0
    error: str = ""
    matches: tuple[RuleMatch, ...] = ()
    allows: tuple[Allow, ...] = ()
    region_starts: tuple[RegionStart, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    passed_functions: tuple[PassedFunction, ...] = ()
    may_capture: bool = False  # the file may capture a CUDA graph
    deferred: bool = False  # not parsed yet: no rule can match, but compiled code may call its functions
    symbols_json: str = ""

    @cached_property
    def symbols(self) -> FileSymbols:
        """The larger part, decoded on first use."""
        return _symbols(json.loads(self.symbols_json)) if self.symbols_json else _symbols([{}, [], {}, {}])


def summary_json(facts: FileFacts) -> str:
    """Return everything except the symbols as JSON."""
    rows: dict[str, list[Any]] = {
        "matches": [_match_row(match) for match in facts.matches],
        "allows": list(facts.allows),
        "region_starts": [[start.region.value, *start[1:]] for start in facts.region_starts],
        "wrappers": [[wrapper.region.value, *wrapper[1:]] for wrapper in facts.wrappers],
        "passed_functions": list(facts.passed_functions),
    }
    single_values = [facts.module, facts.package, facts.lines, facts.error, facts.may_capture, facts.deferred]
    return json.dumps([single_values, {name: values for name, values in rows.items() if values}], separators=(",", ":"))


def decode_facts(summary: str, symbols: str) -> FileFacts:
    """Return the facts that `summary_json` encoded; the symbols stay JSON text until they are used.

    This is faster than the general decoder, and thousands of files are decoded in one run.
    """
    (module, package, lines, error, may_capture, deferred), rows = json.loads(summary)
    return FileFacts(
        module=module,
        package=package,
        lines=lines,
        error=error,
        may_capture=may_capture,
        deferred=deferred,
        matches=tuple(_match(row) for row in rows.get("matches", ())),
        allows=tuple(Allow(line, tuple(names), *rest) for line, names, *rest in rows.get("allows", ())),
        region_starts=tuple(RegionStart(Region(region), *rest) for region, *rest in rows.get("region_starts", ())),
        wrappers=tuple(Wrapper(Region(region), *rest) for region, *rest in rows.get("wrappers", ())),
        passed_functions=tuple(PassedFunction(*row) for row in rows.get("passed_functions", ())),
        symbols_json=symbols,
    )


def _match_row(match: RuleMatch) -> list[Any]:
    found = match.found
    flags = int(found.inside) | 2 * int(found.uncertain) | 4 * int(found.on_rocm)
    edit = [found.edit.kind, found.edit.text] if found.edit else None
    return [
        match.code,
        match.line,
        match.start,
        match.end,
        found.line,
        found.column,
        found.subject,
        found.scope,
        found.region.value,
        flags,
        found.severity,
        edit,
        found.guards,
        dict(found.facts),
    ]


def _match(row: list[Any]) -> RuleMatch:
    code, text, start, end, line, column, subject, scope, region, flags, severity, edit, guards, facts = row
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
        on_rocm=bool(flags & 4),
        guards=tuple(guards),
        facts=facts,
    )
    return RuleMatch(code, found, text, start, end)


def _symbols(data: list[Any]) -> FileSymbols:
    aliases, star_imports, functions, classes = data
    return FileSymbols(
        aliases=aliases,
        star_imports=tuple(star_imports),
        functions={
            name: FunctionFacts(
                line=line,
                params=tuple(params),
                not_traced=bool(flags & 1),
                dynamo_disabled=bool(flags & 2),
                calls=tuple(
                    Call(
                        name=called_name,
                        line=call_line,
                        runs_when_compiled=not call_flags & 1,
                        runs_when_captured=not call_flags & 2,
                        in_capture_block=bool(call_flags & 4),
                    )
                    for called_name, call_line, call_flags in calls
                ),
                bindings=bindings,
            )
            for name, (line, params, flags, calls, bindings) in functions.items()
        },
        classes={
            name: ClassFacts(bases=tuple(bases), attributes={a: tuple(values) for a, values in attributes.items()})
            for name, (bases, attributes) in classes.items()
        },
    )
