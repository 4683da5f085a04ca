"""Finds the category of a kernel: from the operator that launched it if that is clear, otherwise from its name.

The examples of each pattern are kernel names from real traces that it must match.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from rocsolid.model.trace import Category


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A pattern for the kernel names of one family. The first pattern that matches decides the category."""

    family: str
    category: Category
    pattern: str
    examples: tuple[str, ...]


# Operators whose kernels all serve one purpose. The kernels of compiled regions and of large custom operators do not.
OPERATORS: Final = (
    (Category.COLLECTIVE, r"record_param_comms|^c10d::|^nccl:|^symm_mem::|all_?reduce|all_?gather|reduce_?scatter"),
    (
        Category.COPY,
        r"^aten::(_?copy_?|_to_copy|clone|contiguous|fill_|zero_|cat|_foreach_copy_|index_copy_)$|store_cache|reshape_and_cache",
    ),
    (Category.ATTENTION, r"^(?!triton).*(attention|mha_(fwd|bwd|batch|varlen)|flash_attn|sage_?attn|(^|::)mla_)"),
    (Category.CONVOLUTION, r"^aten::\w*conv"),
    (
        Category.GEMM,
        r"^aten::(_?mm|addmm|bmm|baddbmm|matmul|linear|mv|addmv|dot|_scaled_mm|_grouped_mm|_int_mm|_addmm_activation)(_out|_)?$",
    ),
    (Category.NORM, r"^(?!triton).*((layer|batch|group|rms)_?norm)"),
    (
        Category.REDUCTION,
        r"^aten::(_?(log_)?softmax|sum|mean|cumsum|sort|topk|arg(max|min)|max|min|amax|amin|any|all|var|std|nonzero|linalg_vector_norm|logsumexp|nll_loss|norm)(_backward|_backward_data|_forward)?$",
    ),
    (
        Category.ELEMENTWISE,
        r"^aten::(_foreach_)?(mul|add|sub|div|pow|neg|exp|log|log2|sqrt|rsqrt|sigmoid|tanh|silu|gelu|relu|where|clamp|clamp_min|abs|eq|ge|gt|le|lt|elu|cos|sin|bucketize|threshold|normal|nan_to_num)_?(_backward)?$",
    ),
)
# The order matters: specific patterns come first, and prefixes of libraries come before words that any name may contain.
PATTERNS: Final = (
    Pattern(
        family="pointwise kernels that Inductor generated; their names list the operators that are fused",
        category=Category.ELEMENTWISE,
        pattern=r"^triton_(poi|for)_|^triton__\d",
        examples=("triton_poi_fused__scaled_dot_product_efficient_attention_add_3", "triton__0d1d2d3d"),
    ),
    Pattern(
        family="normalisations that Inductor generated",
        category=Category.NORM,
        pattern=r"^triton_(red|per)_.*native_(layer|group|batch)_norm",
        examples=("triton_red_fused_add_addmm_mul_native_layer_norm_split_unsqueeze_view_16",),
    ),
    Pattern(
        family="reductions that Inductor generated",
        category=Category.REDUCTION,
        pattern=r"^triton_(red|per|split_scan)_",
        examples=("triton_red_fused_add_mean_mul_pow_rsqrt_0",),
    ),
    Pattern(
        family="NCCL and RCCL",
        category=Category.COLLECTIVE,
        pattern=r"nccl(Dev)?Kernel|rccl|msccl|cross_device_reduce|quick_?reduce|custom_?all_?reduce|all_reduce_|all_gather_|reduce_scatter_|one_shot_all|two_shot_all|nvshmem",
        examples=(
            "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        ),
    ),
    Pattern(
        family="copies and fills",
        category=Category.COPY,
        pattern=r"^Mem(cpy|set)|__amd_rocclr_(copy|fill)|^(Copy|Fill)Buffer|direct_copy_kernel|CatArrayBatchedCopy|FillFunctor|(^|\W)memcpy|recat_copy_async|reshape_and_cache|store_kvcache|copy_device_to_device|MEMORY_COPY",
        examples=(
            "__amd_rocclr_copyBuffer",
            "__amd_rocclr_fillBufferAligned",
            "Memcpy HtoD (Pinned -> Device)",
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>",
            "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16",
        ),
    ),
    Pattern(
        family="attention",
        category=Category.ATTENTION,
        pattern=r"flash_?(fwd|bwd|attn)|[Ff]mha|sage_(fwd|bwd|quant)|attn_fwd|attn_bwd|paged_attention|unified_attention|(^|_)attention|mha_|(^|\W)mla_|FlashAttn|bwd_kernel_fuse|bwd_preprocess|sdpa|efficient_attention|AttentionKernel|kv_indices|_fwd_kernel_stage|sage_?attn|splitkv",
        examples=(
            "attn_fwd",
            "sage_fwd",
            "_ZN7ck_tile6kentryINS_6gfx9_tELi1ENS_13FmhaFwdKernelINS_23BlockFmhaPipelineQRKSVSINS_24BlockFmhaPipeline",
            "bwd_kernel_fuse",
            "kernel_unified_attention_2d",
            "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16",
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128",
        ),
    ),
    Pattern(
        family="convolution",
        category=Category.CONVOLUTION,
        pattern=r"grouped_conv|igemm_(fwd|bwd|wrw)|gtcx|naive_conv|miopenSp3|MIOpenConv|Winograd|winograd|scudnn|cudnn_(infer|train)|cask_cudnn|implicit_convolve|conv\d?d|(^|\W)conv_|dgrad|wgrad|batched_gemm_xdlops_bwd_weight|convolution|fprop|depthwise_conv|Im2(d2)?Col|Col2Im|im2col",
        examples=(
            "igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x2x1_1x4x1x64",
            "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm",
            "cudnn_infer_volta_scudnn_128x128_relu_medium_nn_v1",
            "void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int, int",
        ),
    ),
    Pattern(
        family="normalisation",
        category=Category.NORM,
        pattern=r"(layer|batch|group|instance)_?norm|[Rr]ms_?[Nn]orm|RMSNorm|LayerNorm|BatchNorm|RowwiseMoments|GammaBeta|FusedParamsCUDAKernel|InternalGradientsCUDAKernel|(^|\W)bn_(fw|bw)|MIOpenBatchNorm|_norm_kernel|_norm_fwd|_norm_bwd",
        examples=(
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
            "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsnorm2dFwdPipelineProblem",
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
            "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>",
        ),
    ),
    Pattern(
        family="rocBLAS, hipBLASLt and Tensile, CK, AITER, cuBLAS, CUTLASS",
        category=Category.GEMM,
        pattern=r"Cijk_|gemm|GEMM|Gemm|gemv|(^|_)matmul|wvSplitK|cublas|splitKreduce|xmma_|cutlass|nvjet|_mm_|(^|_)b?mm_|moe_(?:(?!moe_).)*(stage|ck2)|fmoe|fused_moe_kernel|bf16gemm|dot_kernel|skinny|scaled_mm",
        examples=(
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x256_MI16x16x1_SN_LDSB1_AFC1_AFEM1",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>",
            "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1",
            "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false, false",
            "volta_sgemm_128x32_nt",
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut",
        ),
    ),
    Pattern(
        family="reductions, sorts and scans",
        category=Category.REDUCTION,
        pattern=r"reduce_kernel|softmax|SoftMax|Softmax|RadixSort|radix_sort|DeviceScan|scan_kernel|lookback_scan|topk|ReduceByKey|reduce_segments|device_block_merge|device_reduce|cunn_|lpnorm|_sum_|argmax|cumsum|DeviceReduce|nll_loss|routing|segment|compute_grad_weight|rocprim|[Hh]istogram|searchsorted",
        examples=(
            "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<",
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>",
            "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, float, int>::Policy800",
        ),
    ),
    Pattern(
        family="elementwise, by torch, Triton and others",
        category=Category.ELEMENTWISE,
        pattern=r"elementwise|triton_(fused|_)|multi_tensor_apply|dropout|rotary_embedding|act_and_mul|silu|gelu|activation|index|Index|gather|scatter|transpose|Transpose|SubTensorOp|permute|nchwToNhwc|nhwcToNchw|TensorOp|OpTensor|where_kernel|distribution|masked|embedding|arange|upsample|pool|clamp|fbgemm_gpu|quant|bounds_check|scalePackedTensor|to_dense|compute_position|indices|token_ids",
        examples=(
            "void at::native::vectorized_elementwise_kernel<2, at::native::AUnaryFunctor<float, float, float",
            "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*",
            "SubTensorOpWithScalar1d",
            "batched_transpose_16x32_half",
        ),
    ),
)


@cache
def _compiled(kind: str) -> tuple[tuple[re.Pattern[str], Category], ...]:
    if kind == "operator":
        return tuple((re.compile(pattern), category) for category, pattern in OPERATORS)
    return tuple((re.compile(entry.pattern), entry.category) for entry in PATTERNS)


@lru_cache(maxsize=1 << 15)  # the ranks of a job have the same kernel names
def _match(kind: str, text: str) -> Category:
    for pattern, matched_category in _compiled(kind):
        if pattern.search(text):
            return matched_category
    return Category.OTHER


def operator_category(operator: str) -> Category | None:
    """Return the category of all work of an operator; None when it is not clear."""
    found = _match("operator", operator)
    return found if found is not Category.OTHER else None


def category(name: str, operator: str = "") -> Category:
    """Return the category of a kernel; `OTHER` when neither its operator nor its name is known."""
    return (operator_category(operator) if operator else None) or _match("name", name)
