"""The torch and Python releases that rocsolid supports and is tested with."""

from typing import Final

from rocsolid.model.release import Span

SUPPORTED_TORCH: Final = Span("2.9", "2.15")
TESTED_TORCH: Final = {"2.13": "CPU, in every run of the tests", "2.11": "CUDA on an H200, before each release"}
SUPPORTED_PYTHON: Final = Span("3.10", "3.14")

# What must hold on ROCm for the support table to say "run": name, statement, and the check of `rocsolid prove`.
ROCM_SUPPORT: Final = (
    ("torch", "Every private torch name that rocsolid uses works on torch 2.9 to 2.15.", "private-names"),
    ("python", "rocsolid runs on Python 3.10 to 3.14.", "versions"),
    ("probe", "The probe finds the same GPUs, architecture and ROCm or CUDA release as torch.", "probe"),
    ("gemm", "Matrix products on this GPU are as exact as their dtype allows.", "active:gemm"),
    ("compile", "torch.compile returns what eager returns.", "active:compile"),
    (
        "guard",
        "On ROCm, rs.guard refuses unsafe values on every route into the compiler; elsewhere it changes nothing.",
        "routes",
    ),
    ("capture", "rs.capture replays what eager computes, for new values, shapes and random numbers.", "capture"),
    ("rng", "Random numbers in a graph are new in each replay, and the seed decides them.", "rng"),
    ("capture-cases", "All capture tests that need a GPU pass.", "gpu-tests:tests/runtime/capture"),
    ("operator-cases", "All tests of operators that need a GPU pass.", "gpu-tests:tests/ops"),
    ("optimize", "rs.optimize returns a form whose results match eager.", "optimize"),
    ("observe", "rs.record_compiles and rs.breaks report a compile and a graph break.", "observe"),
    ("dryrun", "A dry run predicts registers, spills and LDS of the kernels that this machine compiles.", "dryrun"),
    ("aiter", "The operators that use AITER return what the same computation in float64 returns.", "vendor:aiter"),
    ("flash-attn", "flash_attn returns what attention in float64 returns.", "vendor:flash_attn"),
    ("composable-kernel", "Matrix products of Inductor's CK backend are right.", "vendor:ck4inductor"),
)
KERNELS: Final = tuple(
    (name, f"The shipped operator {name} is as exact as its reference, compared with float64.")
    for name in ("rms_norm", "add_rms_norm", "silu_mul", "gelu_mul", "attention", "linear")
)
COSTS: Final = (
    ("launch", "Launching a small kernel costs the CPU between 1 and 50 microseconds."),
    ("graph-node", "A kernel in a graph costs the CPU less time than its launch."),
    ("copy", "Copying many small tensors with one grouped copy takes less time than with one copy each."),
    ("replay-states", "A graph of 2,000 small kernels replays more slowly after eight kernels ran on another stream."),
    ("whole-call", "A captured call of a model with many small kernels is faster than eager, with the same results."),
    ("autotune", "A compile with max-autotune takes longer than with mode default."),
)
_SAME: Final = "returns what eager returns"
MODELS: Final = tuple(
    (name, f"rs.optimize of {what} {result}, and is not slower than torch.compile with mode reduce-overhead.")
    for name, what, result in (
        ("encoder", "an encoder of 12 layers with a padding mask, 128 tokens", _SAME),
        ("decoder", "a causal decoder of 12 layers, 128 tokens", _SAME),
        ("patches", "a vision transformer of 12 layers, one image", _SAME),
        ("convolutions", "24 convolutions with batch norm, one image", _SAME),
        ("denoiser", "ten steps of six layers over 50 tokens with a prefix of 800", _SAME),
        # Eager in bfloat16 is 6 % from float64 here: two correct results may differ by more than a compiled one may from eager.
        ("layers", "24 linear layers, four rows,", "is as close to float64 as eager"),
    )
)
