"""Make a vendor's Python kernel an operator that does not break the graph.

python examples/wrap_a_vendor_op.py
"""

import numpy as np
import torch

import rocsolid as rs


def vendor_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Stand for aiter.rms_norm or its like: torch.compile cannot look into it."""
    rows = x.detach().numpy()
    scale = 1 / np.sqrt((rows**2).mean(-1, keepdims=True) + eps)
    return torch.from_numpy((rows * scale * weight.detach().numpy()).astype("float32"))


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """The same in plain torch: it gives shapes and gradients, and what the kernel is held against."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


# 1. One call gives it a schema, a fake and gradients, and examines it on random values of the example's shapes.
norm = rs.vendor_op("example::norm", vendor_norm, reference=reference, example=(torch.ones(4, 8), torch.ones(8)))
print(norm)


# 2. It stays in one graph, with sizes that change, and gradients flow.
@torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A caller of the kernel."""
    return norm(x * 2, weight).sum()


x, weight = torch.randn(3, 8, requires_grad=True), torch.ones(8)
layer(x, weight).backward()
assert x.grad is not None
torch.testing.assert_close(norm(x, weight), reference(x, weight))
print("compiled as one graph; gradient", list(x.grad.shape))

# 3. A kernel that is not what it claims to be is refused, with the reason.
try:
    rs.vendor_op("example::sneaky", lambda x: x.add_(1) * 2, reference=lambda x: x * 2, example=(torch.ones(3),))
except rs.RocsolidError as refused:
    print("refused:", refused)
else:
    raise AssertionError

# 4. What about an operator that a library has registered itself?
print(rs.audit_op("aten::nonzero"))
