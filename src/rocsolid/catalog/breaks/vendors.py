"""Breaks because something is called that torch cannot look into."""

from typing import Final

from rocsolid.catalog.breaks.kinds import SKIPPED
from rocsolid.model.known_cause import KnownCause

VENDORS: Final = (
    KnownCause(
        gb_types=("RuntimeError when making fake tensor call",),
        pattern=r"no fake impl|Meta tensors|fake impl",
        cause="the operator says nothing about the shape of its result (it has no fake), so that the compile fails",
        fix="give it a fake: rs.vendor_op for a Python function, torch.library.register_fake for an operator; rs.audit_op tells what is missing",
        before="torch.ops.vendor.kernel(x)",
        after="torch.library.register_fake('vendor::kernel', lambda x: torch.empty_like(x))",
    ),
    KnownCause(
        gb_types=("RuntimeError when making fake tensor call", "TypeError when making fake tensor call"),
        cause="the operation fails for these shapes and types, and so does the compile; without torch.compile it would fail as well",
        fix="run the function without torch.compile and mend what it says",
    ),
    KnownCause(
        gb_types=(
            "Operator does not support running with fake tensors",
            "NotImplementedError/UnsupportedFakeTensorException when running FX node",
            "Fake tensor propagation exception",
            "Encountered non-PT2-compliant op",
        ),
        cause="the operator says nothing about the shape of its result, so that it cannot be traced",
        fix="give it a fake: rs.vendor_op for a Python function, torch.library.register_fake for an operator; rs.audit_op tells what is missing",
        before="torch.ops.vendor.kernel(x)",
        after="torch.library.register_fake('vendor::kernel', lambda x: torch.empty_like(x))",
    ),
    KnownCause(
        gb_types=(*SKIPPED, "Failed to convert args/kwargs to proxy", "torch.* op returned non-Tensor"),
        cause="a function is called that torch cannot look into: C code, or a vendor's Python around it",
        fix="register it as an operator with rs.vendor_op, then it stays in the graph; plain Python helpers belong outside",
        before="y = vendor.kernel(x)",
        after="kernel = rs.vendor_op('vendor::kernel', vendor.kernel, fake=torch.empty_like, reference=plain)\ny = kernel(x)",
    ),
)
