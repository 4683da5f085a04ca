import triton

configs = [triton.Config({"BLOCK": 8192}, num_warps=16)]


def threads(num_warps, warp_size):
    return num_warps * warp_size
