"""Applies safe fixes with libcst, which preserves comments and layout."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rocsolid.errors import InputError, MissingExtraError
from rocsolid.model.finding import Autofix, Finding
from rocsolid.rules.engine import rule

if TYPE_CHECKING:
    import libcst as cst

    NodeT = TypeVar("NodeT", bound=cst.CSTNode)


@dataclass(frozen=True, kw_only=True)
class FixedFile:
    """One file before and after its fixes."""

    file: str
    before: str
    after: str
    findings: tuple[Finding, ...]


def fix_files(findings: Iterable[Finding]) -> list[FixedFile]:
    """Every file that has safe fixes, with its text before and after them; nothing is written."""
    by_file: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.facts.get("edit") and rule(finding.code).rule.autofix is Autofix.SAFE:
            by_file.setdefault(finding.location.rpartition(":")[0], []).append(finding)
    return [_fix(file, file_findings) for file, file_findings in by_file.items()]


def _fix(file: str, findings: Sequence[Finding]) -> FixedFile:
    try:
        before = Path(file).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot fix {file}: {error}"
        raise InputError(msg) from error
    return FixedFile(file=file, before=before, after=_fixed_text(before, findings), findings=tuple(findings))


def _fixed_text(source: str, findings: Sequence[Finding]) -> str:
    try:
        import libcst as cst
    except ImportError as missing:
        feature = "lint --fix"
        raise MissingExtraError(feature, "fix") from missing
    from libcst.metadata import MetadataWrapper, PositionProvider

    edits = {_position(f): (str(e["kind"]), str(e["text"])) for f in findings if isinstance(e := f.facts["edit"], dict)}

    class ApplyFixes(cst.CSTTransformer):
        METADATA_DEPENDENCIES = (PositionProvider,)

        def _edit(self, node: "cst.CSTNode") -> tuple[str, str]:
            start = self.get_metadata(PositionProvider, node).start
            return edits.get((start.line, start.column + 1), ("", ""))

        def leave_Call(self, original_node: "cst.Call", updated_node: "cst.Call") -> "cst.Call":  # noqa: N802 - libcst's name
            kind, text = self._edit(original_node)
            if kind != "keyword":
                return _renamed(updated_node, kind, text)
            name, _, value = text.partition("=")
            equal_sign = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
            argument = cst.Arg(keyword=cst.Name(name), value=cst.parse_expression(value), equal=equal_sign)
            return updated_node.with_changes(args=[*updated_node.args, argument])

        def leave_Import(self, original_node: "cst.Import", updated_node: "cst.Import") -> "cst.Import":  # noqa: N802 - libcst's name
            return _renamed(updated_node, *self._edit(original_node))

        def leave_ImportFrom(  # noqa: N802 - libcst's name
            self, original_node: "cst.ImportFrom", updated_node: "cst.ImportFrom"
        ) -> "cst.ImportFrom":
            return _renamed(updated_node, *self._edit(original_node))

        def leave_Assign(  # noqa: N802 - libcst's name
            self, original_node: "cst.Assign", updated_node: "cst.Assign"
        ) -> "cst.Assign | cst.RemovalSentinel":
            kind, _ = self._edit(original_node)
            return cst.RemoveFromParent() if kind == "remove" and len(original_node.targets) == 1 else updated_node

    return MetadataWrapper(cst.parse_module(source)).visit(ApplyFixes()).code


def _renamed(node: "NodeT", kind: str, text: str) -> "NodeT":
    """The call or import with `old` replaced by `new` in the name that is called or imported."""
    if kind != "replace":
        return node
    import libcst as cst

    def renamed(name: cst.CSTNode) -> cst.BaseExpression:
        old, _, new = text.partition("=")
        return cst.parse_expression(cst.Module([]).code_for_node(name).replace(old, new))

    if isinstance(node, cst.Call):
        return node.with_changes(func=renamed(node.func))
    if isinstance(node, cst.ImportFrom) and node.module is not None:
        return node.with_changes(module=renamed(node.module))
    if isinstance(node, cst.Import):
        return node.with_changes(names=[name.with_changes(name=renamed(name.name)) for name in node.names])
    return node


def _position(finding: Finding) -> tuple[int, int]:
    return int(finding.location.rpartition(":")[2]), int(str(finding.facts["column"]))
