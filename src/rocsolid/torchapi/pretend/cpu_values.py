"""Runs a program for a GPU on CPU tensors: for programs that decide by values which kernels they launch."""

from typing import Any


def on_cpu() -> Any:
    """Return a context in which every tensor is created on the CPU, while its `device` reads `cuda:0`."""
    import torch
    from torch.overrides import TorchFunctionMode

    pretended = {torch.Tensor.device.__get__: torch.device("cuda", 0), torch.Tensor.is_cuda.__get__: True}

    def cpu(value: Any) -> Any:
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            return "cpu"
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value

    class OnCpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in pretended:
                return pretended[func]
            if func is torch.Tensor.cuda:
                return args[0]
            return func(*map(cpu, args), **{name: cpu(value) for name, value in (kwargs or {}).items()})

    return OnCpu()
