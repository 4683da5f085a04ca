"""What happens to numbers: copies into fixed buffers, padding, limits, low precision."""

from typing import Any

from facts.declare import Seen, error_of, fact, kind_of

TERMS = 4096


@fact(
    "copy_ of (1, 3) into (4, 3) succeeded and spread the row, of (2, 3) raised RuntimeError; floats were truncated "
    "into an int32 buffer; zip over too few inputs left the last buffer as it was; a tuple has no clone.",
    expect={
        "broadcast_sum": 12.0,
        "wrong_rows": "RuntimeError",
        "float_into_int": [1, 2, 3],
        "missing_input": [1.0, 0.0],
        "tuple_clone": "AttributeError",
    },
)
def static_copy_hazards() -> Seen:
    """Fill buffers the way a hand-written graph wrapper does, with inputs that do not fit."""
    import torch

    def result(output: Any) -> Any:
        return output.clone()

    rows, whole = torch.zeros(4, 3), torch.zeros(3, dtype=torch.int32)
    rows.copy_(torch.ones(1, 3))
    whole.copy_(torch.tensor([1.7, 2.2, 3.9]))
    buffers = [torch.zeros(1), torch.zeros(1)]
    for buffer, given in zip(buffers, [torch.ones(1)], strict=False):
        buffer.copy_(given)
    return {
        "broadcast_sum": rows.sum().item(),
        "wrong_rows": kind_of(error_of(lambda: rows.copy_(torch.ones(2, 3)))),
        "float_into_int": whole.tolist(),
        "missing_input": [buffer.item() for buffer in buffers],
        "tuple_clone": kind_of(error_of(lambda: result((torch.ones(2),)), AttributeError)),
    }


@fact(
    "The mean over 100 rows changed when they were padded with zeros to 128.",
    expect={"changed": True, "ratio": 0.78125},
)
def padding_changes_mean() -> Seen:
    """Take a mean with and without padding."""
    import torch

    rows = torch.ones(100, 8)
    padded = torch.nn.functional.pad(rows, (0, 0, 0, 28))
    ratio = (padded.mean(0) / rows.mean(0)).mean().item()
    return {"changed": not torch.equal(padded.mean(0), rows.mean(0)), "ratio": ratio, "rows": list(padded.shape)}


@fact(
    "0.1 added {terms} times gave {bfloat16} in bfloat16 and {float32} in float32.",
    expect={"bfloat16": 32.0, "float32": 410.0},
)
def bf16_accumulate() -> Seen:
    """Add one number many times, keeping the sum in either type."""
    import torch

    values = torch.full((TERMS,), 0.1, dtype=torch.bfloat16)
    total = torch.zeros((), dtype=torch.bfloat16)
    for value in values:
        total = total + value
    return {"terms": TERMS, "bfloat16": total.item(), "float32": values.float().sum().item()}


@fact(
    "tanh written with exp(2x) gave NaN at 50, and 1.0 with x limited to [-10, 10]; softmax of (0, 12, 20) gave "
    "{softmax}, with the same limit {softmax_limited}.",
    expect={"tanh_is_nan": True, "tanh_limited": 1.0, "softmax_limited": [0.0, 0.5, 0.5]},
)
def clamp_exp() -> Seen:
    """Limit the input of exp in a tanh and in a softmax."""
    import torch

    def tanh(x: Any) -> Any:
        power = torch.exp(2 * x)
        return (power - 1) / (power + 1)

    def rounded(values: Any) -> list[float]:
        return [round(value, 4) for value in torch.softmax(values, 0).tolist()]

    large, scores = torch.tensor(50.0), torch.tensor([0.0, 12.0, 20.0])
    return {
        "tanh_is_nan": bool(tanh(large).isnan()),
        "tanh_limited": round(tanh(large.clamp(-10, 10)).item(), 6),
        "softmax": rounded(scores),
        "softmax_limited": rounded(scores.clamp(-10, 10)),
    }
