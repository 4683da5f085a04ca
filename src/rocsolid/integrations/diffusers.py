"""diffusers: the denoiser, the text encoders and the decoder of a pipeline, optimized in place.

The pipeline itself is not changed: each part is replaced by a module of the same class that is optimized by its first call.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from diffusers import DiffusionPipeline

from rocsolid.errors import UsageError
from rocsolid.integrations.parts import OptimizePart, Parts, add_methods, plain_class
from rocsolid.model.log import log as _log
from rocsolid.model.program_report import ProgramReport
from rocsolid.optimize.optimized import OptimizedModule

_PARTS: Final = (
    "unet", "transformer", "transformer_2", "controlnet", "prior", "text_encoder", "text_encoder_2", "text_encoder_3",
)  # fmt: skip
_DECODERS: Final = ("AutoencoderKL", "AutoencoderTiny")  # of these the decoder is one call of a module
_ADAPTERS: Final = (
    "load_lora_weights", "unload_lora_weights", "fuse_lora", "unfuse_lora", "set_adapters", "disable_lora", "enable_lora",
    "delete_adapters", "load_ip_adapter", "unload_ip_adapter", "load_textual_inversion", "enable_freeu", "disable_freeu",
)  # fmt: skip
_OFFLOADS: Final = ("enable_model_cpu_offload", "enable_sequential_cpu_offload", "enable_group_offload")


def is_pipeline(program: Any) -> bool:
    """Whether this is a pipeline of diffusers."""
    return isinstance(program, DiffusionPipeline)


def optimize_pipeline(pipe: Any, optimize_part: OptimizePart) -> Any:
    """Optimize the parts of a pipeline in place, and return the pipeline."""
    if any(hasattr(part, "_hf_hook") for part in pipe.components.values()) or getattr(pipe, "hf_device_map", None):
        msg = (
            "rs.optimize cannot optimize a pipeline that is offloaded: its weights move between CPU and GPU with every call.\n"
            "fix: do not call enable_model_cpu_offload and similar methods, or use the pipeline without rs.optimize"
        )
        raise UsageError(msg)
    parts = Parts(pipe, optimize_part)

    def explain(_: Any) -> ProgramReport:
        """Return what was optimized, and what was left alone and why."""
        return parts.explain()

    def undo(_: Any) -> Any:
        """Put the plain modules back, free the graphs, and return the pipeline."""
        parts.restore("undo() was called")
        return pipe

    def change_adapters(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        optimized = bool(parts)
        parts.restore("the adapters are being changed")
        try:
            return original(*args, **kwargs)
        finally:
            if optimized:
                _attach(pipe, parts)  # learns again from the next call

    def offload(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if parts:  # diffusers calls it again after each call of the pipeline
            why = f"{original.__name__}() was called, which moves the weights with every call"
            _log.warning("%s: %s; rs.optimize is undone", type(pipe).__name__, why)
            parts.restore(why)
        return original(*args, **kwargs)

    def to(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = _dtypes_and_devices(pipe)
        original(*args, **kwargs)
        if parts and before != _dtypes_and_devices(pipe):
            parts.restore("dtype or device changed")
            _attach(pipe, parts)  # learns again from the next call
        return pipe

    methods = dict.fromkeys(_ADAPTERS, change_adapters) | dict.fromkeys(_OFFLOADS, offload)
    methods = {name: method for name, method in methods.items() if hasattr(pipe, name)}
    add_methods(pipe, {"explain": explain, "undo": undo, "to": to, **methods}, components=_plain_components(pipe))
    _attach(pipe, parts)
    return pipe


def _plain_components(pipe: Any) -> property:
    """Return the property `components` with the plain modules: `from_pipe` compares their types, and another pipeline has its own `undo`."""
    original = plain_class(pipe).components

    def components(self: Any) -> dict[str, Any]:
        found = original.fget(self).items()
        return {name: x.rocsolid.model if isinstance(x, OptimizedModule) else x for name, x in found}

    return property(components, doc=original.__doc__)


def _dtypes_and_devices(pipe: Any) -> list[Any]:
    modules = [part for part in pipe.components.values() if isinstance(part, torch.nn.Module)]
    return [(tensor.dtype, tensor.device) for module in modules for tensor in module.parameters()]


def _attach(pipe: Any, parts: Parts) -> None:
    parts.forget()
    for name in _PARTS:
        if isinstance(getattr(pipe, name, None), torch.nn.Module):
            parts.optimize(name, pipe, name)
    vae = getattr(pipe, "vae", None)
    if vae is not None and type(vae).__name__ in _DECODERS:
        parts.optimize("vae.decoder", vae, "decoder")
    elif vae is not None:
        parts.leave("vae", f"{type(vae).__name__} keeps state between the calls of its decoder, or has none")
    for name, part in pipe.components.items():
        if isinstance(part, torch.nn.Module) and name not in (*_PARTS, "vae"):
            parts.leave(name, "is not called in every step")
