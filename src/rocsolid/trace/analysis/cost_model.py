"""Floating-point operations and bytes of an operator, from the shapes and types that the profiler recorded.

`docs/reference/trace.md` lists the formulas. Every tensor counts as read or written once, as if caches were perfect.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final

Shape = tuple[int, ...]

# Bytes per element, and the type of arithmetic, by the names that the profiler writes.
_TYPES: Final = {
    "c10::BFloat16": (2, "bf16"),
    "BFloat16": (2, "bf16"),
    "c10::Half": (2, "fp16"),
    "Half": (2, "fp16"),
    "float": (4, "fp32"),
    "Float": (4, "fp32"),
    "double": (8, "fp64"),
    "Double": (8, "fp64"),
    "signed char": (1, "int8"),
    "Char": (1, "int8"),
    "unsigned char": (1, "int8"),
    "Byte": (1, "int8"),
    "bool": (1, "int8"),
    "Bool": (1, "int8"),
    "short": (2, ""),
    "Short": (2, ""),
    "int": (4, ""),
    "Int": (4, ""),
    "long": (8, ""),
    "long int": (8, ""),
    "Long": (8, ""),
    "c10::complex<float>": (8, ""),
}
_GEMM: Final = {  # the positions of the two factors
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul", "aten::_scaled_mm", "aten::_int_mm"), (0, 1)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::addmm_", "aten::_addmm_activation"), (1, 2)),
}
_LINEAR: Final = (
    "aten::linear",
    "vllm::rocm_unquantized_gemm",
    "aiter::gemm_a16w16",
)  # the second factor is transposed
_ATTENTION: Final = re.compile(r"^aten::_?(scaled_dot_product_)?(flash|efficient|cudnn)?_?attention(_forward)?$")
_CONVOLUTION: Final = {  # the positions of stride, padding and dilation among the arguments, and whether a bias may be third
    "aten::cudnn_convolution": (3, 2, 4),
    "aten::miopen_convolution": (4, 3, 5),
    "aten::miopen_depthwise_convolution": (4, 3, 5),
    "aten::convolution_overrideable": (3, 4, 5),
    "aten::convolution": (3, 4, 5),
    "aten::_convolution": (3, 4, 5),
}
_ONE_PASS: Final = re.compile(  # read the inputs, write one output of the broadcast shape
    r"^aten::(mul|add|sub|rsub|div|pow|neg|exp|log|log2|sqrt|rsqrt|sigmoid|tanh|silu|gelu|relu|where|clamp|clamp_min|clamp_max|"
    r"abs|eq|ne|ge|gt|le|lt|elu|cos|sin|minimum|maximum|threshold_backward|sigmoid_backward|tanh_backward|gelu_backward|"
    r"silu_backward|masked_fill|_softmax|_log_softmax|_softmax_backward_data|_log_softmax_backward_data|reciprocal|"
    r"bitwise_\w+|logical_\w+|addcmul|addcdiv|lerp)_?$"
)
_ARGUMENTS: Final = {  # before `out`
    **{
        f"aten::{name}": 1
        for name in [
            "neg",
            "exp",
            "log",
            "log2",
            "sqrt",
            "rsqrt",
            "sigmoid",
            "tanh",
            "silu",
            "relu",
            "abs",
            "cos",
            "sin",
            "reciprocal",
        ]
    },
    **{
        f"aten::{name}": 2
        for name in [
            "mul",
            "div",
            "pow",
            "eq",
            "ne",
            "ge",
            "gt",
            "le",
            "lt",
            "minimum",
            "maximum",
            "clamp_min",
            "clamp_max",
            "gelu",
        ]
    },
    **{f"aten::{name}": 3 for name in ["add", "sub", "rsub", "where", "clamp", "masked_fill", "lerp"]},
}
_NORM: Final = re.compile(  # read the inputs, write one output like the first
    r"^aten::((native|cudnn|miopen)_(batch|layer|group)_norm|_fused_rms_norm)(_backward)?$"
)
_WITH_OUTPUTS: Final = re.compile(r"^aiter::(add_)?rmsnorm\w*$")  # the outputs are among the inputs
_OVERWRITE: Final = re.compile(r"^aten::(copy_|fill_|zero_)$")
_REDUCE: Final = re.compile(r"^aten::(sum|mean|amax|amin|max|min|argmax|argmin|any|all|var|std|linalg_vector_norm)$")
_TRITON: Final = re.compile(r"^triton_(poi|red|per)_")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one call of an operator has to do at least."""

    flops: float
    bytes: float
    arithmetic: str  # the type of the operations, such as bf16; empty when they do not matter


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The recorded inputs of an operator."""

    dims: tuple[Any, ...]  # a shape for a tensor, a tuple of shapes for a list of tensors, () for anything else
    types: tuple[str, ...]
    values: tuple[str, ...]  # of inputs that are not tensors; empty for most operators

    @property
    def text(self) -> str:
        """The shapes of the tensors, such as `8944x1024, 1024x2816`."""
        return ", ".join(_shape_text(shape) for shape in self.dims if shape)

    @property
    def element_type(self) -> str:
        """The type of the first tensor."""
        found = next((kind for shape, kind in zip(self.dims, self.types, strict=False) if shape and kind), "")
        return _TYPES.get(found, (0, found.removeprefix("c10::")))[1] or found


def _shape_text(shape: Any) -> str:  # noqa: ANN401 - a shape, or a list of them
    if shape and isinstance(shape[0], tuple):
        return f"[{len(shape)} tensors, first {_shape_text(shape[0])}]"
    return "x".join(map(str, shape))


@lru_cache(maxsize=1 << 16)
def parse_inputs(detail: str) -> Inputs:
    """Parse the text that the reader kept of an operator. What is not valid counts as not recorded."""
    parts = [*detail.split("\0"), "", "", ""][:3]
    dims, types, values = (_json_list(part) for part in parts)
    return Inputs(
        dims=tuple(_shape(entry) for entry in dims),
        types=tuple(entry if isinstance(entry, str) else "" for entry in types),
        values=tuple(str(entry) for entry in values),
    )


def _json_list(text: str) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _shape(entry: Any) -> Any:  # noqa: ANN401 - of any trace
    if not isinstance(entry, list):
        return ()
    if entry and all(isinstance(part, list) for part in entry):
        return tuple(_shape(part) for part in entry)
    return tuple(entry) if all(isinstance(n, int) and n >= 0 for n in entry) else ()


@lru_cache(maxsize=1 << 16)
def operator_cost(operator: str, detail: str) -> Cost | None:
    """Return what one call costs at least; None when there is no formula for it, or its shapes are not recorded."""
    inputs = parse_inputs(detail)
    if not any(inputs.dims):
        return None
    try:
        return _cost(operator, inputs)
    except (IndexError, ValueError, TypeError, OverflowError):
        return None


def _cost(operator: str, inputs: Inputs) -> Cost | None:
    if operator in _GEMM:
        return _gemm(inputs, *_GEMM[operator])
    if operator in _LINEAR:
        x, weight = inputs.dims[:2]
        transposed = ((prod(x[:-1]), x[-1]), (weight[1], weight[0]))
        return _gemm(Inputs(dims=transposed, types=inputs.types, values=()), 0, 1)
    if _ATTENTION.match(operator):
        return _attention(inputs, heads_first="dot_product" in operator)
    if operator in _CONVOLUTION or operator == "aten::convolution_backward":
        return _convolution(operator, inputs)
    return _cost_of_bytes(operator, inputs)


def _cost_of_bytes(operator: str, inputs: Inputs) -> Cost | None:
    """Return the cost of an operator that memory limits."""
    if _ONE_PASS.match(operator):
        shapes = [shape for shape in inputs.dims if shape]
        elements = prod(_broadcast(shapes))
        sizes = [_size(inputs, n) for n, shape in enumerate(inputs.dims) if shape]
        output = sizes[0] if operator.endswith("_") else max(sizes)
        if any(inputs.dims[_ARGUMENTS.get(operator, len(inputs.dims)) :]):
            output = 0  # the output is among the inputs, as `out`
        return Cost(flops=elements, bytes=_bytes(inputs) + elements * output, arithmetic="")
    if _NORM.match(operator):
        elements = prod(inputs.dims[0])
        return Cost(flops=elements, bytes=_bytes(inputs) + elements * _size(inputs, 0), arithmetic="")
    if _OVERWRITE.match(operator) or _WITH_OUTPUTS.match(operator):
        return Cost(flops=0, bytes=_bytes(inputs), arithmetic="")
    if _REDUCE.match(operator) or _TRITON.match(operator):
        return Cost(flops=0, bytes=_bytes(inputs), arithmetic="")
    if operator == "aten::cat":
        return Cost(flops=0, bytes=2 * sum(map(prod, inputs.dims[0])) * _size(inputs, 0), arithmetic="")
    return None


def _size(inputs: Inputs, position: int) -> int:
    """Return the bytes of an element of an input. The profiler writes `TensorList` for a list; its elements are unknown."""
    kind = inputs.types[position] if position < len(inputs.types) else ""
    if kind.startswith("c10::Float8"):
        return 1
    size = _TYPES.get(kind, (0, ""))[0]
    if not size:
        raise ValueError(kind)
    return size


def _bytes(inputs: Inputs) -> int:
    return sum(
        prod(shape) * _size(inputs, n)
        for n, shape in enumerate(inputs.dims)
        if shape and not isinstance(shape[0], tuple)
    )


def _arithmetic(inputs: Inputs, position: int) -> str:
    kind = inputs.types[position]
    return "fp8" if kind.startswith("c10::Float8") else _TYPES[kind][1]


def _gemm(inputs: Inputs, first: int, second: int) -> Cost | None:
    a, b = inputs.dims[first], inputs.dims[second]
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:  # noqa: PLR2004 - matrices
        return None
    batch = prod(_broadcast([a[:-2], b[:-2]]))
    m, k, n = a[-2], a[-1], b[-1]
    flops, size = 2 * batch * m * n * k, _size(inputs, first)
    moved = prod(a) * size + prod(b) * _size(inputs, second) + batch * m * n * _output_size(size)
    if first:  # a bias is added
        flops += batch * m * n
        moved += n * _size(inputs, 0)
    return Cost(flops=flops, bytes=moved, arithmetic=_arithmetic(inputs, first))


def _output_size(size: int) -> int:
    return max(size, 2)  # products of fp8 are written as bf16


def _attention(inputs: Inputs, *, heads_first: bool) -> Cost | None:
    q, k, v = inputs.dims[:3]
    if len(q) != 4 or len(k) != 4:  # noqa: PLR2004 - batch, heads, length and size of a head
        return None
    heads, length = (1, 2) if heads_first else (2, 1)
    pairs = q[length] * k[length]
    if "True" in inputs.values and q[length] == k[length]:  # the only flag that is True by default is none: is_causal
        pairs /= 2
    flops = 2 * q[0] * q[heads] * pairs * (q[3] + v[3])
    size = _size(inputs, 0)
    moved = (prod(q) + prod(k) + prod(v) + prod(q) // q[3] * v[3]) * size
    return Cost(flops=flops, bytes=moved, arithmetic=_arithmetic(inputs, 0))


def _convolution(operator: str, inputs: Inputs) -> Cost | None:
    backward = operator == "aten::convolution_backward"
    if backward:
        out, x, weight = inputs.dims[:3]
    else:
        x, weight = inputs.dims[:2]
        out = _convolution_output(operator, inputs, x, weight)
    size, arithmetic = _size(inputs, 0), _arithmetic(inputs, 0)
    flops = 2 * prod(out) * prod(weight[1:])
    moved = (prod(x) + prod(weight) + prod(out)) * size
    if not backward:
        bias = len(inputs.dims) > 2 and bool(inputs.dims[2])  # noqa: PLR2004 - the third input
        extra = (prod(out), out[1] * size) if bias else (0, 0)
        return Cost(flops=flops + extra[0], bytes=moved + extra[1], arithmetic=arithmetic)
    wanted = [flag == "True" for flag in re.findall("True|False", inputs.values[-1])][:2] if inputs.values else []
    gradients = sum(wanted) if wanted else 2
    return Cost(flops=gradients * flops, bytes=gradients * moved, arithmetic=arithmetic)


def _convolution_output(operator: str, inputs: Inputs, x: Shape, weight: Shape) -> Shape:
    spatial = len(x) - 2
    strides, paddings, dilations = (_numbers(inputs.values[n], spatial) for n in _CONVOLUTION[operator])
    if "transposed" in operator or (operator.endswith("convolution") and _is_transposed(operator, inputs)):
        msg = "the size of a transposed convolution also depends on its output padding"
        raise ValueError(msg)
    sizes = (
        (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for size, kernel, stride, padding, dilation in zip(x[2:], weight[2:], strides, paddings, dilations, strict=True)
    )
    return x[0], weight[0], *sizes


def _is_transposed(operator: str, inputs: Inputs) -> bool:
    return operator in ("aten::convolution", "aten::_convolution") and inputs.values[6] == "True"


def _numbers(text: str, count: int) -> list[int]:
    numbers = [int(n) for n in re.findall(r"-?\d+", text)]
    return numbers * count if len(numbers) == 1 else numbers


def _broadcast(shapes: list[Shape]) -> Shape:
    longest = max(map(len, shapes), default=0)
    padded = [(1,) * (longest - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


@dataclass(frozen=True, kw_only=True)
class Message:
    """What a collective sends, as the profiler recorded it."""

    collective: str
    bytes: int  # the larger of input and output
    ranks: int

    @property
    def bus_bytes(self) -> float:
        """The bytes that each link carries in a ring, as NCCL's tests count them."""
        share = (self.ranks - 1) / self.ranks if self.ranks > 1 else 1.0
        doubled = "reduce" in self.collective and "scatter" not in self.collective and "all" in self.collective
        shared = "gather" in self.collective or "scatter" in self.collective or "all_to_all" in self.collective
        return self.bytes * (2 * share if doubled else share if shared else 1.0)


@lru_cache(maxsize=1 << 12)
def parse_message(detail: str) -> Message | None:
    """Parse the text that the reader kept of a collective; None when it has no size."""
    parts = [part.strip('" ') for part in [*detail.split("\0"), *[""] * 5][:5]]
    name, given, returned, kind, ranks = parts
    if not name or kind not in _TYPES or not (given.isdigit() or returned.isdigit()):
        return None
    elements = max(int(number) for number in (given, returned) if number.isdigit())
    return Message(collective=name, bytes=elements * _TYPES[kind][0], ranks=int(ranks) if ranks.isdigit() else 0)
