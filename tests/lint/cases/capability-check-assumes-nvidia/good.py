import torch

IS_AMD = torch.version.hip is not None


def has_tma(device):
    if torch.version.hip:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


def has_bf16():
    return torch.cuda.get_device_capability()[0] >= 8


def has_clusters():
    use = not IS_AMD
    return use and torch.cuda.get_device_capability()[0] >= 9


if not IS_AMD:

    def choose(x):
        major, _ = torch.cuda.get_device_capability(x.device)
        return "hopper" if major >= 9 else "ampere"


capability = torch.cuda.get_device_capability()


def has_fp8(current_platform):
    return current_platform.has_device_capability(89)


def block_size(current_platform, device):
    if current_platform.is_cuda_alike():
        return 64 if torch.cuda.get_device_capability(device) >= (9, 0) else 32
    return 16


def is_ampere():
    return torch.cuda.get_device_capability()[0] == 8


def rows_per_block(device):
    return 32 if torch.cuda.get_device_capability(device)[0] >= 9 else 64


def has_fp8_by_two_digits():
    major, minor = torch.cuda.get_device_capability()
    if major * 10 + minor >= 89:
        return "fp8"
    return "bf16"


def choose_by_two_digits_on_nvidia():
    major, minor = torch.cuda.get_device_capability()
    if torch.version.hip is None and major * 10 + minor >= 90:
        return "hopper"
    return "ampere"


def show():
    print("Hopper:", torch.cuda.get_device_properties(0).major >= 9)
