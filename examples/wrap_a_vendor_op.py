"""Register a vendor's Python kernel as an operator that does not break the graph.

python examples/wrap_a_vendor_op.py
"""

import numpy as np
import torch

import rocsolid as rs


def vendor_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Takes the place of a kernel such as aiter.rms_norm, which torch.compile cannot trace."""
    rows = x.detach().numpy()
    scale = 1 / np.sqrt((rows**2).mean(-1, keepdims=True) + eps)
    return torch.from_numpy((rows * scale * weight.detach().numpy()).astype("float32"))


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """The same computation in plain torch. Shapes, gradients and the results to compare with come from it."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


# 1. One call registers schema, fake implementation and gradients, and checks them on random values with the example's shapes.
norm = rs.vendor_op("example::norm", vendor_norm, reference=reference, example=(torch.ones(4, 8), torch.ones(8)))
print(norm)


# 2. It compiles to one graph with dynamic sizes, and has gradients.
@torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A compiled function that calls the kernel."""
    return norm(x * 2, weight).sum()


x, weight = torch.randn(3, 8, requires_grad=True), torch.ones(8)
layer(x, weight).backward()
assert x.grad is not None
torch.testing.assert_close(norm(x, weight), reference(x, weight))
print("compiled as one graph; gradient", list(x.grad.shape))

# 3. A function that does not match its declaration is rejected, with the reason.
try:
    rs.vendor_op("example::writes_x", lambda x: x.add_(1) * 2, reference=lambda x: x * 2, example=(torch.ones(3),))
except rs.RocsolidError as error:
    print("rejected:", error)
else:
    raise AssertionError

# 4. Check an operator that a library registered.
print(rs.audit_op("aten::nonzero"))
