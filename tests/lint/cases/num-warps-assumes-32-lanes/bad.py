import triton

configs = [triton.Config({"BLOCK": 8192}, num_warps=32)]


def threads(num_warps):
    return num_warps * 32
