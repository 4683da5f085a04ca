"""Checks whether a registered operator can be compiled and captured in a CUDA graph."""

from collections.abc import Iterator
from typing import Any, Final

from rocsolid.model.finding import Finding
from rocsolid.model.op_audit import OpAudit
from rocsolid.new_torch import check_new_torch
from rocsolid.ops.capture_trial import replay_matches
from rocsolid.rules.operators import (
    operator_declares_false_mutation,
    operator_not_graph_safe,
    operator_without_fake,
    operator_without_gradient,
)
from rocsolid.torchapi.operators import OperatorFacts, facts_of, operator

_UNSAFE_TAGS: Final = {
    "cudagraph_unsafe": "it has the tag cudagraph_unsafe",
    "data_dependent_output": "it returns a value that the CPU must read (tag data_dependent_output)",
    "dynamic_output_shape": "the shape of its result depends on the data (tag dynamic_output_shape)",
}
_HOST_TYPES: Final = ("int", "float", "bool", "number", "str", "SymInt", "Scalar")


def audit_op(name: str, /, *args: Any) -> OpAudit:
    """Check that an operator has a fake implementation, mutates only what it declares, and can be captured in a CUDA graph.

    Experimental: it may change in any release.

    Args:
        name: `namespace::name`; import the library that registers it first.
        args: arguments to run it with. Then the mutated arguments are checked too and, for GPU tensors, a captured replay.

    Example:
        >>> import rocsolid as rs
        >>> rs.audit_op("aten::relu").ok
        True
        >>> [finding.code for finding in rs.audit_op("aten::nonzero").findings]
        ['OPR003']

    """
    check_new_torch()
    overload = operator(name)
    facts = facts_of(overload)
    written = _written(overload, facts, args) if args else None
    captured, error = replay_matches(overload, args) if args else (None, "")
    findings = tuple(_findings(facts, written, captured=captured, error=error))
    return OpAudit(
        name=facts.name,
        schema=facts.schema,
        has_fake=facts.has_fake,
        has_gradient=facts.has_autograd,
        writes=tuple(a.name for a in facts.arguments if a.written),
        devices=facts.devices,
        tags=facts.tags,
        captured=captured,
        findings=findings,
    )


def _written(overload: Any, facts: OperatorFacts, args: tuple[Any, ...]) -> set[str]:
    """The names of the arguments that the operator changes when it runs."""
    import torch

    copies = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
    with torch.no_grad():
        overload(*copies)
    return {
        argument.name
        for argument, before, after in zip(facts.arguments, args, copies, strict=False)
        if isinstance(before, torch.Tensor) and not torch.equal(before, after)
    }


def _findings(
    facts: OperatorFacts, written: set[str] | None, *, captured: bool | None, error: str
) -> Iterator[Finding]:
    if not facts.has_fake:
        yield operator_without_fake.RULE.found(facts.name, schema=facts.schema)
    declared = [a.name for a in facts.arguments if a.written]
    unneeded, explanation = _unneeded_mutations(facts, declared, written)
    if unneeded:
        yield operator_declares_false_mutation.RULE.found(
            facts.name, arguments=", ".join(unneeded), how=explanation, short=facts.name.partition("::")[2]
        )
    reasons = [reason for tag, reason in _UNSAFE_TAGS.items() if tag in facts.tags]
    host_returns = [kind for kind in facts.returns if kind.removesuffix("?") in _HOST_TYPES]
    if host_returns and not reasons:
        reasons.append(f"it returns {', '.join(host_returns)} to Python")
    if captured is False:
        reasons.append(error)
    if reasons:
        yield operator_not_graph_safe.RULE.found(facts.name, reason="; ".join(reasons))
    if not facts.has_autograd:
        yield operator_without_gradient.RULE.found(facts.name)


def _unneeded_mutations(facts: OperatorFacts, declared: list[str], written: set[str] | None) -> tuple[list[str], str]:
    """Return the arguments that are declared as mutated and probably are not, and the reason.

    If the operator was run, these are the arguments that did not change. Otherwise all, if every tensor is declared as mutated.
    """
    if written is not None:
        return [name for name in declared if name not in written], ", but it did not change them when it was run"
    tensors = [a.name for a in facts.arguments if a.type.startswith("Tensor")]
    all_declared = len(tensors) > 1 and set(tensors) <= set(declared) and bool(facts.returns)
    return (
        (
            declared,
            ' (all its tensor arguments), like every schema that was made with mutates_args="unknown"',
        )
        if all_declared
        else ([], "")
    )
