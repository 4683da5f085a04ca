"""Breaks because a tensor is used in a way that a graph cannot hold."""

from typing import Final

from rocsolid.model.known_cause import KnownCause

TENSORS: Final = (
    KnownCause(
        gb_types=(
            "Unsupported Tensor.resize_() call",
            "Unsupported Tensor.resize_as_() call",
            "Unsupported Tensor.set_() call",
        ),
        cause="the tensor's memory is changed under it",
        fix="make a tensor of the new shape: reshape, new_empty, torch.nn.functional.pad",
        before="y.resize_(3, 2)",
        after="y = y.reshape(3, 2)",
    ),
    KnownCause(
        gb_types=(
            "Failed to mutate tensor data attribute",
            "Failed to mutate tensor data attribute to different dtype",
        ),
        cause="`.data` is given a tensor of another shape or type",
        fix="use a new name; or copy_ where shape and type are the same",
        before="y.data = y.double()",
        after="y = y.double()",
    ),
    KnownCause(
        gb_types=(
            "Attempted to call op with non-contiguous `out=` tensor",
            "Attempted to call op with non-contiguous `out=` list of tensors",
        ),
        cause="the tensor given as out= is not contiguous",
        fix="leave out= out: the compiler plans memory itself",
        before="torch.add(a, b, out=c.t())",
        after="c = (a + b).t()",
    ),
    KnownCause(
        gb_types=("Shape mismatch with out= tensor variant", "Shape mismatch with out= list of tensor variants"),
        cause="the tensor given as out= has another shape than the result",
        fix="leave out= out: the compiler plans memory itself",
        before="torch.add(a, b, out=empty)",
        after="c = a + b",
    ),
    KnownCause(
        gb_types=("Attempted to copy.deepcopy a tensor", "copy.deepcopy()"),
        cause="copy.deepcopy of a tensor",
        fix="clone it",
        before="copy.deepcopy(x)",
        after="x.clone()",
    ),
    KnownCause(
        gb_types=("Unhandled args for method", "Unsupported Tensor.share_memory_() call"),
        pattern=r"share_memory_",
        cause="a tensor is moved into shared memory, which a graph cannot do",
        fix="share it outside the compiled part",
        before="return y.share_memory_()",
        after="return y   # and share outside",
    ),
    KnownCause(
        gb_types=(
            "Attempted to wrap sparse Tensor with VariableTracker",
            "Attempted to wrap sparse Tensor",
            "Sparse tensor creation not supported",
        ),
        cause="a sparse tensor, which torch does not trace",
        fix="stay dense in the compiled part, or multiply outside",
        before="x.to_sparse().to_dense()",
        after="torch.where(mask, x, 0)",
    ),
    KnownCause(
        gb_types=("Attempted to wrap strided NestedTensor", "Attempted to use strided NestedTensor"),
        cause="a nested tensor of the strided layout, which torch does not trace",
        fix="make it with layout=torch.jagged, or pad",
        before="torch.nested.nested_tensor(rows)",
        after="torch.nested.nested_tensor(rows, layout=torch.jagged)",
    ),
    KnownCause(
        gb_types=(
            "Encountered tensor.is_inference() during tracing",
            "Encountered torch.is_inference_mode_enabled during tracing",
        ),
        cause="the code asks whether inference mode is on",
        fix="ask torch.is_grad_enabled(), which torch traces, or ask outside",
        before="if torch.is_inference_mode_enabled(): ...",
        after="if not torch.is_grad_enabled(): ...",
    ),
)
