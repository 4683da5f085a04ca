"""Breaks because only the device knows a value."""

from typing import Final

from rocsolid.model.known_cause import KnownCause

VALUES: Final = (
    KnownCause(
        gb_types=("Data-dependent branching", "Data-dependent branching with non-constant __bool__"),
        pattern=r"(?m)^while\b|\bwhile\b.*:",
        cause="the loop goes on or ends by a value that only the device knows",
        fix="run a fixed number of rounds and let torch.where keep what is done, or use torch.while_loop",
        before="while x.sum() < 100:\n    x = x * 2",
        after="for _ in range(ROUNDS):\n    x = torch.where(x.sum() < 100, x * 2, x)",
    ),
    KnownCause(
        gb_types=("Data-dependent branching", "Data-dependent branching with non-constant __bool__"),
        pattern=r"\bassert\b",
        cause="the assert tests a value that only the device knows, and its message is no plain string",
        fix="give the assert a plain string, or none: then torch moves it into the graph",
        before="assert x.sum() < 100, ValueError('too big')",
        after="assert x.sum() < 100, 'too big'",
    ),
    KnownCause(
        gb_types=("Data-dependent branching", "Data-dependent branching with non-constant __bool__"),
        cause="the branch depends on a value that only the device knows",
        fix="compute both and choose with torch.where; torch.cond where one side is too dear or cannot be computed",
        before="if x.sum() > 0:\n    y = x * 2\nelse:\n    y = x - 1",
        after="y = torch.where(x.sum() > 0, x * 2, x - 1)",
    ),
    KnownCause(
        gb_types=("Unsupported Tensor.item() call with capture_scalar_outputs=False",),
        cause="a tensor's value is fetched into Python, so that the device has to be waited for",
        fix="keep it a tensor, and let it broadcast; where Python must have it, fetch it before or after the compiled part",
        before="scale = x.max().item()\nreturn x / scale",
        after="scale = x.max()\nreturn x / scale",
    ),
    KnownCause(
        gb_types=("Tensor.tolist() with non-integer tensor",),
        cause="a tensor is turned into a Python list, so that the device has to be waited for",
        fix="compute on the tensor itself",
        before="total = sum(x.tolist())",
        after="total = x.sum()",
    ),
    KnownCause(
        gb_types=("Dynamic shape operator", "Dynamic shape operator (no meta kernel)"),
        pattern=r"unique",
        cause="how many different values there are decides the result's shape",
        fix="count into a tensor of fixed size, or call torch.unique outside the compiled part",
        before="kinds = torch.unique(x)",
        after="seen = torch.zeros(LARGEST + 1).index_add(0, x, torch.ones_like(x, dtype=torch.float))",
    ),
    KnownCause(
        gb_types=("Dynamic shape operator", "Dynamic shape operator (no meta kernel)"),
        cause="how many elements pass a test decides the result's shape (nonzero, or indexing by a mask)",
        fix="keep the shape and mask instead: torch.where with a neutral element",
        before="total = x[x > 0].sum()",
        after="total = torch.where(x > 0, x, 0).sum()",
    ),
    KnownCause(
        gb_types=("Data dependent operator",),
        cause="the operator answers with a Python value (torch.equal, torch.allclose, float(tensor))",
        fix="use the operator that answers with a tensor",
        before="if torch.equal(a, b): y = x * 2\nelse: y = x * 3",
        after="y = torch.where((a == b).all(), x * 2, x * 3)",
    ),
    KnownCause(
        gb_types=("Attempted to use `torch.nn.functional.one_hot` with data-dependent output shape",),
        cause="without num_classes the largest value decides the result's shape",
        fix="say how many classes there are",
        before="F.one_hot(labels)",
        after="F.one_hot(labels, num_classes=NUMBER)",
    ),
    KnownCause(
        gb_types=(
            "Dynamic slicing with Tensor arguments",
            "Indexing list with non-scalar tensor",
            "unsupported index(Tensor)",
        ),
        cause="a Python list or slice is indexed by a tensor",
        fix="keep the choices in one tensor and index that: torch.stack(choices)[i]",
        before="y = choices[i]",
        after="y = torch.stack(choices)[i]",
    ),
    KnownCause(
        gb_types=("sort with non-constant keys",),
        cause="Python's sort compares tensors, and only the device knows which is less",
        fix="sort with torch.sort, or argsort and index",
        before="torch.stack(sorted([a, b], key=lambda t: t.sum()))",
        after="rows = torch.stack([a, b])\nrows[rows.flatten(1).sum(1).argsort()]",
    ),
    KnownCause(
        gb_types=("Data pointer comparison",),
        cause="the address of a tensor is asked for, and a traced tensor has none",
        fix="decide by what you know of the tensors, not where they lie; or ask before the compiled part",
        before="if y.data_ptr() == x.data_ptr(): ...",
        after="if y is x: ...",
    ),
)
