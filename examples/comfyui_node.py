"""Nodes for ComfyUI. "Optimize (rocsolid)": a model in, the same model with a faster denoiser out.

pip install rocsolid
cp examples/comfyui_node.py ComfyUI/custom_nodes/

The first sampling step optimizes the denoiser, for at most `budget_s` seconds, and each result is verified against eager.
Steps with ControlNet, or with patches from other nodes, run as before. "Explain (rocsolid)" takes the model and what the sampler returned,
and shows what was optimized and which steps ran as before.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from comfy.patcher_extension import WrappersMP

import rocsolid as rs

KEY = "rocsolid"
log = logging.getLogger(KEY)
PASSED_ON = ("cond_or_uncond", "sigmas", "sample_sigmas")
NOT_READ = ("uuids", "callbacks", "wrappers")  # by a denoiser without wrappers of its own


class Denoiser(torch.nn.Module):
    """The network with new options for each call, because networks keep their progress in them."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Any, timestep: Any, context: Any, options: Mapping[str, Any], extra: Mapping[str, Any]) -> Any:
        """Return what the network returns."""
        return self.network(x, timestep, context=context, control=None, transformer_options=dict(options), **extra)


class OptimizedDenoiser(torch.nn.Module):
    """Stands in the network's place during a step, and has its attributes."""

    def __init__(self, network: torch.nn.Module, budget_s: float) -> None:
        super().__init__()
        self.network = network
        self.fast = rs.optimize(Denoiser(network), budget_s=budget_s)
        self.as_before: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        """Return the network's attribute."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("network"), name)

    def forward(self, x: Any, timestep: Any, context: Any = None, **kwargs: Any) -> Any:
        """Call the optimized network, or the network itself with what was not optimized."""
        options, control = kwargs.pop("transformer_options", {}), kwargs.pop("control", None)
        if why := self._why_as_before(options, control):
            if why not in self.as_before:
                log.info("steps with %s run as before", why)
                self.as_before.add(why)
            return self.network(x, timestep, context=context, control=control, transformer_options=options, **kwargs)
        return self.fast(x, timestep, context, {key: options[key] for key in PASSED_ON if key in options}, kwargs)

    def explain(self) -> str:
        """Return what was optimized, and which steps were not."""
        steps = [f"  unchanged  steps with {why}" for why in sorted(self.as_before)]
        return "\n".join((str(self.fast.explain()), *steps))

    @staticmethod
    def _why_as_before(options: Mapping[str, Any], control: Any) -> str:
        if control is not None:
            return "ControlNet"
        if options.get("wrappers", {}).get(WrappersMP.DIFFUSION_MODEL):
            return "a wrapper of another node"
        return next((f"`{key}`" for key in options if key not in PASSED_ON + NOT_READ and options[key]), "")


class ApplyModel:
    """A wrapper of ComfyUI that puts the optimized denoiser in the network's place during a step."""

    def __init__(self, denoiser: OptimizedDenoiser) -> None:
        self.denoiser = denoiser

    def __call__(self, executor: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Apply the model with the optimized denoiser."""
        model = executor.class_obj  # type: ignore[attr-defined]
        plain, model.diffusion_model = model.diffusion_model, self.denoiser
        try:
            return executor(*args, **kwargs)
        finally:
            model.diffusion_model = plain


class OptimizeModel:
    """The node that optimizes."""

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "optimize"
    CATEGORY = "model"
    DESCRIPTION = __doc__

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        """Return the node's inputs."""
        budget = {"default": 120.0, "min": 0.0, "tooltip": "the most seconds that the first step may take longer"}
        return {"required": {"model": ("MODEL",), "budget_s": ("FLOAT", budget)}}

    def optimize(self, model: Any, budget_s: float) -> tuple[Any]:
        """Return a clone of the model with the optimized denoiser."""
        clone = model.clone()
        made = OptimizedDenoiser(clone.get_model_object("diffusion_model"), budget_s)
        clone.remove_wrappers_with_key(WrappersMP.APPLY_MODEL, KEY)
        clone.add_wrapper_with_key(WrappersMP.APPLY_MODEL, KEY, ApplyModel(made))
        return (clone,)


class ExplainModel:
    """The node that shows what was done to a model. It runs after the sampler, because it gets what the sampler returned."""

    RETURN_TYPES = ("STRING",)
    FUNCTION = "explain"
    CATEGORY = "model"
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        """Return the node's inputs."""
        return {"required": {"model": ("MODEL",), "sampled": ("LATENT",)}}

    def explain(self, model: Any, sampled: Any) -> dict[str, Any]:  # noqa: ARG002 - only for the order
        """Return the report, as text for the page and for other nodes."""
        wrappers = model.get_wrappers(WrappersMP.APPLY_MODEL, KEY)
        text = wrappers[0].denoiser.explain() if wrappers else "the model was not optimized by rocsolid"
        return {"ui": {"text": (text,)}, "result": (text,)}


NODE_CLASS_MAPPINGS = {"RocsolidOptimizeModel": OptimizeModel, "RocsolidExplainModel": ExplainModel}
NODE_DISPLAY_NAME_MAPPINGS = {
    "RocsolidOptimizeModel": "Optimize (rocsolid)",
    "RocsolidExplainModel": "Explain (rocsolid)",
}
