"""The vendor library behind a call in generated code, and whether it is safe in CUDA or HIP graphs."""

import re
from dataclasses import dataclass
from typing import Final

from rocsolid.model.platform import Platform


@dataclass(frozen=True, kw_only=True)
class Library:
    """A vendor library; `capture` is a warning about using it in a graph, or empty."""

    name: str
    capture: str = ""
    problem: str = ""  # id of the known problem with the evidence


_MIOPEN: Final = Library(
    name="MIOpen",
    capture="MIOpen is not safe in HIP graphs: run every shape before the capture, with benchmark mode off",
    problem="miopen-not-graph-safe",
)
_BLAS: Final = Library(
    name="hipBLASLt or rocBLAS",
    capture=(
        "The first call in a thread creates a handle, which is not allowed during a capture: call it "
        "once per thread and stream before the capture"
    ),
    problem="hipblaslt-handle-in-capture",
)
_ATEN: Final = Library(name="ATen's own kernels")

_ROCM: Final = (
    (re.compile(r"conv|miopen|_thnn_fused|_cudnn_rnn|\blstm\b|\bgru\b|batch_norm"), _MIOPEN),
    (
        re.compile(
            r"(?:^|[._])(?:add|badd|b|_int_|_scaled_|_grouped_|_scaled_grouped_)?mm\b|linear|addmv|\bmv\b|\bdot\b"
        ),
        _BLAS,
    ),
    (re.compile(r"flash_attention|efficient_attention|scaled_dot_product"), Library(name="AOTriton")),
    (re.compile(r"fft"), Library(name="hipFFT")),
    (re.compile(r"linalg|cholesky|svd|qr\b|eigh|lu_factor"), Library(name="hipSOLVER or MAGMA")),
    (re.compile(r"sort|topk|unique|cumsum|cumprod"), Library(name="ATen on hipCUB and rocPRIM")),
    (re.compile(r"c10d|all_reduce|all_gather|reduce_scatter"), Library(name="RCCL")),
)
_CUDA: Final = (
    (re.compile(r"conv|_cudnn|\blstm\b|\bgru\b|batch_norm"), Library(name="cuDNN")),
    (_ROCM[1][0], Library(name="cuBLAS or cuBLASLt")),
    (_ROCM[2][0], Library(name="flash attention in ATen")),
    (_ROCM[3][0], Library(name="cuFFT")),
    (_ROCM[4][0], Library(name="cuSOLVER or MAGMA")),
    (_ROCM[5][0], Library(name="ATen on CUB")),
    (_ROCM[6][0], Library(name="NCCL")),
)


def library_of(call: str, platform: Platform) -> Library:
    """The library that runs a call such as `addmm` or `aten.convolution.default`."""
    namespace, _, name = call.partition(".")
    if name and namespace not in ("aten", "prims", "torch", "_c10d_functional"):
        return Library(name=f"operator of {namespace}")
    for pattern, library in _ROCM if platform is Platform.ROCM else _CUDA:
        if pattern.search(name or namespace):
            return library
    return _ATEN
