"""Functions with a graph break, one for each of many ids in torch's registry, each with a fixed version.

The line that breaks the graph has the comment `breaks here`.
"""

import copy
import inspect
import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it

logger = logging.getLogger("corpus")
LOCK = threading.Lock()
LSTM = torch.nn.LSTM(3, 3)
CELL = torch.nn.LSTMCell(3, 3)
CELL.load_state_dict({name.removesuffix("_l0"): value for name, value in LSTM.state_dict().items()})
CHOICES = [torch.full((3,), 1.0), torch.full((3,), 2.0)]


def an_input() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) - 2


@dataclass(frozen=True)
class Case:
    """One kind of graph break."""

    id: str
    cause: str  # text that the reported cause must contain
    broken: Callable[..., Any]
    fixed: Callable[..., Any]
    more: tuple[Any, ...] = ()  # further arguments of the fixed function
    same: bool = True  # both return the same result

    @property
    def line(self) -> int:
        lines, first = inspect.getsourcelines(self.broken)
        return next(first + n for n, line in enumerate(lines) if "breaks here" in line)


def branch(x: Any) -> Any:
    if x.sum() > 0:  # breaks here
        return x * 2
    return x - 1


def branch_fixed(x: Any) -> Any:
    return torch.where(x.sum() > 0, x * 2, x - 1)


def item(x: Any) -> Any:
    scale = x.max().item()  # breaks here
    return x / scale


def item_fixed(x: Any) -> Any:
    scale = x.max()
    return x / scale


def asked_for(x: Any) -> Any:
    x = x + 1
    torch._dynamo.graph_break()  # breaks here
    return x * 2


def asked_for_fixed(x: Any) -> Any:
    x = x + 1
    return x * 2


@torch.compiler.disable
def vendor(x: Any) -> Any:
    return x * 2


def vendor_plain(x: Any) -> Any:
    return x * 2


def disabled(x: Any) -> Any:
    return vendor(x + 1) + 1  # breaks here


def disabled_fixed(x: Any) -> Any:
    return vendor_plain(x + 1) + 1


def printing(x: Any) -> Any:
    y = x + 1
    print("sum", y.sum())  # noqa: T201 # breaks here
    return y * 2


def printing_fixed(x: Any) -> Any:
    y = x + 1
    return y * 2


def logging_(x: Any) -> Any:
    y = x + 1
    logger.info("here")  # breaks here
    return y * 2


def clock(x: Any) -> Any:
    y = x + 1
    time.sleep(0)  # breaks here
    return y * 2


def warned(x: Any) -> Any:
    y = x + 1
    warnings.warn("slow path", stacklevel=2)  # breaks here
    return y * 2


def locked(x: Any) -> Any:
    with LOCK:  # breaks here
        y = x + 1
    return y * 2


def masked(x: Any) -> Any:
    return x[x > 0].sum()  # breaks here


def masked_fixed(x: Any) -> Any:
    return torch.where(x > 0, x, 0).sum()


def equal(x: Any) -> Any:
    return x * 2 if torch.equal(x, x + 1) else x * 3  # breaks here


def equal_fixed(x: Any) -> Any:
    return torch.where((x == x + 1).all(), x * 2, x * 3)


def resized(x: Any) -> Any:
    y = x.clone()
    y.resize_(3, 2)  # breaks here
    return y * 2


def resized_fixed(x: Any) -> Any:
    y = x.clone()
    y = y.reshape(3, 2)
    return y * 2


def random_in_place(x: Any) -> Any:
    return x + torch.empty(3).random_(0, 5)  # breaks here


def random_in_place_fixed(x: Any) -> Any:
    return x + torch.randint(0, 5, (3,))


def uniform(x: Any) -> Any:
    return x + torch.empty(3).uniform_(**{"from": 0.0, "to": 1.0})  # breaks here


def uniform_fixed(x: Any) -> Any:
    return x + torch.empty(3).uniform_(0.0, 1.0)


def listed(x: Any) -> Any:
    return x * sum((x + 1).flatten().tolist())  # breaks here


def listed_fixed(x: Any) -> Any:
    return x * (x + 1).sum()


def deep_copy(x: Any) -> Any:
    return copy.deepcopy(x + 1) * 2  # breaks here


def deep_copy_fixed(x: Any) -> Any:
    return (x + 1).clone() * 2


def recurrent(x: Any) -> Any:
    return LSTM(x)[0]  # breaks here


def recurrent_fixed(x: Any) -> Any:
    h = c = torch.zeros(3)
    rows = []
    for row in x:
        h, c = CELL(row, (h, c))
        rows.append(h)
    return torch.stack(rows)


def class_inside(x: Any) -> Any:
    class Box:  # breaks here
        scale = 2

    return x * Box.scale


class Box:
    """Defined outside the function."""

    scale = 2


def class_inside_fixed(x: Any) -> Any:
    return x * Box.scale


def permuted(x: Any) -> Any:
    return x + torch.from_numpy(np.random.permutation(3))  # noqa: NPY002 # breaks here


def permuted_fixed(x: Any) -> Any:
    return x + torch.randperm(3)


def sorted_(x: Any) -> Any:
    return torch.stack(sorted([x[1] + 1, x[0] + 1], key=lambda row: row.sum()))  # breaks here


def sorted_fixed(x: Any) -> Any:
    rows = torch.stack([x[1] + 1, x[0] + 1])
    return rows[rows.sum(1).argsort()]


def classes(x: Any) -> Any:
    return F.one_hot(x.abs().long()) + 1  # breaks here


def classes_fixed(x: Any) -> Any:
    return F.one_hot(x.abs().long(), num_classes=4) + 1


def sparse(x: Any) -> Any:
    return (x + 1).to_sparse().to_dense() * 2  # breaks here


def sparse_fixed(x: Any) -> Any:
    return torch.where(x + 1 != 0, x + 1, 0) * 2


def leaf(x: Any) -> Any:
    w = torch.ones(3, requires_grad=True)  # breaks here
    return (x * w).detach()


def leaf_fixed(x: Any, w: Any) -> Any:
    return (x * w).detach()


def parameter(x: Any) -> Any:
    w = torch.nn.Parameter(x.sum(0))  # breaks here
    return (x * w).detach()


def parameter_fixed(x: Any) -> Any:
    w = x.sum(0)
    return (x * w).detach()


def is_inference(x: Any) -> Any:
    return x * 2 if x.is_inference() else x * 3  # breaks here


def is_inference_fixed(x: Any) -> Any:
    return x * 2 if not torch.is_grad_enabled() else x * 3


def inference_mode(x: Any) -> Any:
    return x * 2 if torch.is_inference_mode_enabled() else x * 3  # breaks here


def wants_grad(x: Any) -> Any:
    y = x + 1
    y.requires_grad = True  # breaks here
    return (y * 2).detach()


def wants_grad_fixed(x: Any) -> Any:
    y = x + 1
    return (y * 2).detach()


def as_text(x: Any) -> Any:
    return x * len(repr(x + 1))  # breaks here


def as_text_fixed(x: Any) -> Any:
    return x * len(repr(tuple(x.shape)))


def formatted(x: Any) -> Any:
    name = f"{x + 1}"
    return x * len(name)  # breaks here


def formatted_fixed(x: Any) -> Any:
    name = f"{tuple(x.shape)}"
    return x * len(name)


def generator(x: Any) -> Iterator[Any]:  # breaks here
    yield x + 1


def generator_fixed(x: Any) -> Any:
    return x + 1


def address(x: Any) -> Any:
    y = x + 1
    return y * 2 if y.data_ptr() == x.data_ptr() else y * 3  # breaks here


def address_fixed(x: Any) -> Any:
    y = x + 1
    return y * 2 if y is x else y * 3


def data(x: Any) -> Any:
    y = x.clone()
    y.data = torch.ones(2, 3, dtype=torch.float64)  # breaks here
    return y * 2


def data_fixed(x: Any) -> Any:
    y = x.clone()
    y = torch.ones(2, 3, dtype=torch.float64)
    return y * 2


def seeded(x: Any) -> Any:
    g = torch.Generator()  # breaks here
    return x + torch.rand(2, 3, generator=g)


def seeded_fixed(x: Any, noise: Any) -> Any:
    return x + noise


def in_loop(x: Any) -> Any:
    for _ in range(3):
        x = x + 1
        torch._dynamo.graph_break()  # breaks here
    return x


def in_loop_fixed(x: Any) -> Any:
    for _ in range(3):
        x = x + 1
    return x


def inner_grad(x: Any) -> Any:
    y = x.detach().requires_grad_()
    return torch.autograd.grad((y * y).sum(), y)[0]  # breaks here


def inner_grad_fixed(x: Any) -> Any:
    return torch.func.grad(lambda y: (y * y).sum())(x)


def parsed(x: Any) -> Any:
    return x * json.loads("2")  # breaks here


def parsed_fixed(x: Any, scale: Any) -> Any:
    return x * scale


def new_global(x: Any) -> Any:
    global LAST  # noqa: PLW0603 - what causes the break
    LAST = x + 1  # type: ignore[name-defined]
    return LAST * 2  # type: ignore[name-defined] # breaks here


def new_global_fixed(x: Any) -> Any:
    last = x + 1
    return last * 2


def out_across(x: Any) -> Any:
    out = torch.empty(3, 2).t()
    torch.add(x, x, out=out)  # breaks here
    return out * 2


def out_across_fixed(x: Any) -> Any:
    return (x + x) * 2


def out_empty(x: Any) -> Any:
    out = torch.empty(0)
    torch.add(x, x, out=out)  # breaks here
    return out * 2


def identity(x: Any) -> Any:
    y = x + 1
    return y * 2 if id(y) == 3 else y * 3  # breaks here


def identity_fixed(x: Any) -> Any:
    y = x + 1
    return y * 3


def shared(x: Any) -> Any:
    return (x + 1).share_memory_() * 2  # breaks here


def shared_fixed(x: Any) -> Any:
    return (x + 1) * 2


def opened(x: Any) -> Any:
    y = x + 1
    handle = open(os.devnull)  # noqa: SIM115, PTH123 # breaks here
    handle.close()
    return y * 2


@torch.library.custom_op("corpus::nofake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("corpus::fake", mutates_args=())
def with_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


with_fake.register_fake(torch.empty_like)


def unfaked(x: Any) -> Any:
    return torch.ops.corpus.nofake(x + 1) + 1  # breaks here


def unfaked_fixed(x: Any) -> Any:
    return torch.ops.corpus.fake(x + 1) + 1


def doubled(x: Any) -> Any:
    y = x + 1
    return y * 2


CASES = [
    Case("GB0170", "`if` on a tensor", branch, branch_fixed),
    Case("GB0124", "`Tensor.item()`", item, item_fixed),
    Case("GB0025", "torch._dynamo.graph_break()", asked_for, asked_for_fixed),
    Case("GB0098", "torch.compiler.disable", disabled, disabled_fixed),
    Case("GB0059", "`print()`", printing, printing_fixed),
    Case("GB0291", "`logger`", logging_, doubled),
    Case("GB0007", "a clock function", clock, doubled),
    Case("GB0142", "context manager", locked, doubled),
    Case("GB0036", "`x[mask]`", masked, masked_fixed),
    Case("GB0033", "`torch.equal`", equal, equal_fixed),
    Case("GB0126", "`Tensor.resize_()`", resized, resized_fixed),
    Case("GB0107", "random_", random_in_place, random_in_place_fixed, same=False),
    Case("GB0110", "uniform_", uniform, uniform_fixed, same=False),
    Case("GB0109", "`Tensor.tolist()`", listed, listed_fixed),
    Case("GB4198", "deepcopy", deep_copy, deep_copy_fixed),
    Case("GB0014", "`GRU` or `LSTM`", recurrent, recurrent_fixed),
    Case("GB8977", "`class` is defined", class_inside, class_inside_fixed),
    Case("GB0294", "NumPy", permuted, permuted_fixed, same=False),
    Case("GB0207", "`sorted()`", sorted_, sorted_fixed),
    Case("GB0246", "num_classes", classes, classes_fixed),
    Case("GB0277", "sparse", sparse, sparse_fixed),
    Case("GB0225", "`requires_grad=True`", leaf, leaf_fixed, (torch.ones(3, requires_grad=True),)),
    Case("GB0264", "`torch.nn.Parameter`", parameter, parameter_fixed),
    Case("GB0045", "`is_inference()`", is_inference, is_inference_fixed),
    Case("GB0046", "`is_inference_mode_enabled()`", inference_mode, is_inference_fixed),
    Case("GB0206", "`requires_grad` is set", wants_grad, wants_grad_fixed),
    Case("GB0569", "`repr()`", as_text, as_text_fixed, same=False),
    Case("GB0003", "generator", generator, generator_fixed, same=False),
    Case("GB5976", "`Tensor.data_ptr()`", address, address_fixed),
    Case("GB0056", "`.data = ...`", data, data_fixed),
    Case("GB0363", "torch.Generator", seeded, seeded_fixed, (torch.rand(2, 3),), same=False),
    Case("GB7000", "inside a loop", in_loop, in_loop_fixed),
    Case("GB9186", "torch.autograd.grad", inner_grad, inner_grad_fixed),
    Case("GB0156", "text is parsed", parsed, parsed_fixed, (2,)),
    Case("GB0354", "`global` is read", new_global, new_global_fixed),
    Case("GB0242", "not contiguous", out_across, out_across_fixed),
    Case("GB0247", "different shape", out_empty, out_across_fixed),
    Case("GB9316", "`id()`", identity, identity_fixed),
    Case("GB0117", "`Tensor.share_memory_()`", shared, shared_fixed),
    Case("GB4315", "no fake implementation", unfaked, unfaked_fixed),
]
# Where another release reports the same break with another id; empty: it does not break there, or torch does not name the cause.
IDS_IN_OTHER_RELEASES = {
    "2.9": {"parsed": "GB0007", "formatted": "GB0156", "wants_grad": "", "data": "", "shared": ""},
    "2.11": {"parsed": "GB0007", "formatted": "GB0156", "seeded": "GB0007", "inner_grad": ""},
    "2.12": {"parsed": "GB0007", "seeded": "GB0007", "deep_copy": "GB0141"},
    "2.14": {"parsed": "GB4818", "new_global": "GB0088", "shared": "GB4197"},
    "2.15": {"recurrent": "GB0148", "parsed": "GB4818", "new_global": "GB0088", "shared": "GB4197", "wants_grad": ""},
}
# Where torch does not say which part of the line breaks the graph.
WITHOUT_CARET = {"2.11": {"unfaked"}, "2.12": {"unfaked"}}
# Other causes with an id from above: the reported cause must differ.
MORE = [
    Case("GB0007", "`warnings.warn()`", warned, doubled),
    Case("GB0059", "`open()`", opened, doubled),
    Case("GB0088", "an f-string", formatted, formatted_fixed, same=False),
]
