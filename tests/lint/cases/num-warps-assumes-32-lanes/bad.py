import triton

configs = [triton.Config({"BLOCK": 8192}, num_warps=32)]

NUM_WARPS = [8, 16, 32]
more = [triton.Config({"BLOCK": size}, num_warps=warps) for size in (64, 128) for warps in NUM_WARPS]
