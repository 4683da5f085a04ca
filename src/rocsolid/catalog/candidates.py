"""What `rs.optimize` tries with the fastest compiled form of a model, in this order.

The joint ones are tried together first, because most of them help, and one compile finds most of the gain. Then comes each of the
others, those with the largest expected gain first, and where a suspect one was kept, the form without it.
"""

from typing import Final

from rocsolid.model.platform import Platform
from rocsolid.model.setting import Candidate, Needs, on

_HOPPER: Final = on(Platform.CUDA, archs=("sm_9", "sm_10", "sm_12"))
_ATEN_CONVOLUTIONS: Final = ("inductor.max_autotune_conv_backends", "ATEN")  # benchmarking these takes minutes
_IN_GRAPHS: Final = ("inductor.autotune_cudagraph_benchmarking", True)

ON_GPU: Final = (
    Candidate(
        id="rocsolid.merged_projections",
        value=True,
        effect="linear layers of one input become one matrix product",
        needs=Needs.NO_GRADIENTS,
        joint=True,
    ),
    Candidate(
        id="rocsolid.packed_attention",
        value=True,
        effect="`nn.MultiheadAttention` reads Q, K and V where they are",
        needs=Needs.NO_GRADIENTS,
        joint=True,
    ),
    Candidate(
        id="rocsolid.patch_products",
        value=True,
        effect="convolutions whose windows do not overlap, as of the patches of a picture, become matrix products",
        needs=Needs.NO_GRADIENTS,
        joint=True,
    ),
    Candidate(
        id="inductor.triton.enable_pdl",
        value=True,
        effect="the next kernel starts before the last has ended",
        when=_HOPPER,
        joint=True,
    ),
    Candidate(
        id="torch.attention",
        value="flash",
        effect="flash attention where torch would choose cuDNN",
        when=_HOPPER,
        needs=Needs.CUDNN_ATTENTION,
        joint=True,
    ),
    Candidate(
        id="inductor.layout_optimization",
        value=True,
        effect="channels-last convolutions, which are the default elsewhere",
        when=on(Platform.ROCM),
        needs=Needs.CONVOLUTIONS,
        joint=True,
    ),
    Candidate(
        id="inductor.freezing",
        value=True,
        effect="weights as constants",
        needs=Needs.CONSTANT_WEIGHTS,
        setup_factor=1.2,
    ),
    Candidate(
        id="rocsolid.autotuned_products",
        value=True,
        effect="benchmarks Triton kernels for the few matrix products with many rows that take most of the time",
        when=on(Platform.CUDA),
        needs=Needs.NO_GRADIENTS,
        setup_s=15.0,
        also=(_IN_GRAPHS,),
    ),
    Candidate(
        id="inductor.combo_kernels",
        value=True,
        effect="one launch for several independent kernels",
        when=on(Platform.CUDA),
        setup_factor=1.2,
    ),
    Candidate(
        id="rocsolid.attention",
        value=True,
        effect="attention with a mask or few queries in rocsolid's kernel; causal masks become `is_causal`",
        needs=Needs.NO_GRADIENTS,
        joint=True,
        suspect=True,
    ),
    Candidate(
        id="rocsolid.fused_activations",
        value=True,
        effect="linear layers with few rows compute the activation of their result",
        needs=Needs.NO_GRADIENTS,
        joint=True,
        suspect=True,
    ),
    Candidate(
        id="rocsolid.split_products",
        value=True,
        effect="matrix products with few rows in rocsolid's kernels; in parts, so that they fill the GPU, where their sum needs no kernel",
        needs=Needs.NO_GRADIENTS,
        joint=True,
        suspect=True,
    ),
    Candidate(
        id="rocsolid.library",
        value="aiter",
        effect="the matrix products that AITER has tuned",
        when=on(Platform.ROCM, archs=("gfx94", "gfx95")),
        needs=Needs.AITER,
    ),
    Candidate(
        id="rocsolid.library",
        value="hipblaslt",
        effect="hipBLASLt for matrix products where torch would choose rocBLAS",
        when=on(Platform.ROCM, archs=("gfx90a", "gfx94", "gfx95")),
        needs=Needs.NO_GRADIENTS,
    ),
    Candidate(
        id="rocsolid.library",
        value="hipblas",
        effect="rocBLAS for matrix products where torch would choose hipBLASLt",
        when=on(Platform.ROCM),
        needs=Needs.NO_GRADIENTS,
    ),
    Candidate(
        id="torch.attention",
        value="efficient",
        effect="memory-efficient attention where torch would choose another kernel",
        when=on(Platform.CUDA),
    ),
    Candidate(
        id="torch.attention",
        value="cudnn",
        effect="attention of cuDNN where torch would choose another kernel",
        when=on(Platform.CUDA),
        needs=Needs.CUDNN_ATTENTION,
    ),
    Candidate(
        id="rocsolid.library",
        value="tunableop",
        effect="the BLAS kernel that TunableOp finds for each matrix product",
        when=on(Platform.ROCM),
        needs=Needs.BUDGET,
        setup_s=30.0,
    ),
    Candidate(
        id="inductor.max_autotune_gemm",
        value=True,
        effect="benchmarks Triton kernels for all matrix products",
        when=on(Platform.CUDA),
        needs=Needs.BUDGET,
        setup_factor=2.5,
        also=(_ATEN_CONVOLUTIONS, _IN_GRAPHS),
    ),
)

ON_CPU: Final = (
    Candidate(
        id="cpu.autocast",
        value="bfloat16",
        effect="bfloat16 under `torch.autocast`",
        needs=Needs.LOWER_PRECISION,
    ),
    Candidate(
        id="inductor.freezing",
        value=True,
        effect="weights as constants",
        needs=Needs.CONSTANT_WEIGHTS,
        setup_factor=1.2,
    ),
    Candidate(
        id="inductor.cpp_wrapper",
        value=True,
        effect="shortens the time between kernels",
        setup_factor=1.5,
    ),
    Candidate(
        id="inductor.max_autotune_gemm",
        value=True,
        effect="also tries C++ kernels for matrix products",
        setup_factor=4.0,
    ),
)
