import torch
import triton

configs = [triton.Config({"BLOCK": 8192}, num_warps=16)]

NUM_WARPS = [8, 16] if torch.version.hip else [8, 16, 32]
more = [triton.Config({"BLOCK": size}, num_warps=warps) for size in (64, 128) for warps in NUM_WARPS]

if torch.version.hip is None:
    wide = [triton.Config({"BLOCK": 8192}, num_warps=32)]


def threads(num_warps):
    return num_warps * 32


def fitting(warp_size):
    return [triton.Config({}, num_warps=warps) for warps in [4, 8, 16, 32] if warps * warp_size <= 1024]
