import torch


def has_tma(device):
    return torch.cuda.get_device_capability(device) >= (9, 0)


def is_hopper():
    return torch.cuda.get_device_capability()[0] == 9


def _sm():
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


def choose(x):
    major, _ = torch.cuda.get_device_capability(x.device)
    if major < 9:
        return "ampere"
    return "fast" if _sm() >= 100 else "hopper"


def uses_clusters(current_platform):
    return current_platform.has_device_capability(90)


def supports_tma(device_type):
    if device_type == "xpu":
        return False
    major, _ = torch.cuda.get_device_capability()
    return major >= 9


def choose_by_two_digits():
    major, minor = torch.cuda.get_device_capability()
    if major * 10 + minor >= 90:
        return "hopper"
    return "ampere"


def choose_by_reassigned_number():
    cc = torch.cuda.get_device_capability()
    cc = cc[0] * 10 + cc[1]
    if cc >= 90:
        return "hopper"
    return "ampere"


def choose_by_properties():
    props = torch.cuda.get_device_properties(0)
    if props.major * 10 + props.minor >= 90:
        return "hopper"
    return "ampere"


def choose_by_text():
    major, minor = torch.cuda.get_device_capability()
    sm = int(f"{major}{minor}")
    if sm >= 90:
        return "hopper"
    return "ampere"


def choose_by_decimal():
    major, minor = torch.cuda.get_device_capability()
    if major + minor / 10 >= 9.0:
        return "hopper"
    return "ampere"


def configure(set_fp8):
    set_fp8(torch.cuda.get_device_properties(0).major >= 9)
