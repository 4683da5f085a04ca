"""The node for ComfyUI, with ComfyUI's own sampler and patcher. COMFYUI is the folder of a ComfyUI checkout."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

import rocsolid as rs

UNET = {
    "image_size": 32, "in_channels": 4, "out_channels": 4, "model_channels": 32, "num_res_blocks": [1], "channel_mult": [1],
    "num_heads": 2, "use_spatial_transformer": True, "transformer_depth": [1], "transformer_depth_output": [1, 1],
    "transformer_depth_middle": 1, "context_dim": 16, "use_linear_in_transformer": False, "adm_in_channels": None,
    "use_temporal_attention": False, "legacy": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def comfy() -> Any:
    folder = os.environ.get("COMFYUI")
    if not folder:
        pytest.skip("COMFYUI is not set to the folder of a ComfyUI checkout")
    sys.path.insert(0, folder)
    arguments, sys.argv = sys.argv, [sys.argv[0], "--cpu"]  # ComfyUI reads them when it is imported
    importlib.import_module("comfy.options").enable_args_parsing()
    names = ("model_base", "model_patcher", "sample", "supported_models")
    found = SimpleNamespace(**{name: importlib.import_module(f"comfy.{name}") for name in names})
    sys.argv = arguments
    return found


@pytest.fixture(scope="module")
def node(comfy: Any) -> Any:  # noqa: ARG001 - the node imports it
    path = Path(__file__).parents[2] / "examples/comfyui_node.py"
    spec = importlib.util.spec_from_file_location("comfyui_node", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plain(comfy: Any) -> Any:
    config = comfy.supported_models.SD15(UNET)
    config.set_inference_dtype(torch.float32, None)
    model = comfy.model_base.BaseModel(config)
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))


def sample(model: Any, seed: int = 1, steps: int = 3) -> Any:
    random = torch.Generator().manual_seed(seed)
    noise = torch.randn(1, 4, 16, 16, generator=random)
    prompts = [[[torch.randn(1, 7, 16, generator=random), {}]] for _ in range(2)]
    latent = torch.zeros_like(noise)
    return sys.modules["comfy.sample"].sample(
        model, noise, steps, 5.0, "euler", "normal", *prompts, latent, seed=seed, disable_pbar=True
    )


def denoiser(model: Any) -> Any:
    """The optimized denoiser within a model's wrapper."""
    (wrapper,) = model.wrappers["apply_model"]["rocsolid"]
    return next(cell.cell_contents for cell in wrapper.__closure__ if isinstance(cell.cell_contents, torch.nn.Module))


def test_pictures_are_the_same_and_the_model_is_put_back(node: Any, plain: Any) -> None:
    network = plain.model.diffusion_model
    (fast,) = node.OptimizeModel().optimize(plain, 60.0)
    for seed, steps in ((1, 3), (2, 3), (3, 5)):
        torch.testing.assert_close(sample(fast, seed, steps), sample(plain, seed, steps), rtol=1e-3, atol=1e-3)
    assert plain.model.diffusion_model is network
    report = denoiser(fast).fast.report()
    assert report.example_count == 1
    assert not denoiser(fast).as_before


def test_a_patch_of_another_node_is_kept(node: Any, plain: Any) -> None:
    (fast,) = node.OptimizeModel().optimize(plain, 0.0)
    without = sample(plain)
    for model in (fast, plain):
        model.set_model_attn1_patch(lambda query, key, value, _extra: (query, key, value * 0.5))
    patched = sample(plain)
    assert not torch.equal(patched, without)
    assert torch.equal(sample(fast), patched)
    assert denoiser(fast).as_before == {"`patches`"}


def test_the_node_is_declared_as_comfyui_expects(node: Any) -> None:
    (kind,) = node.NODE_CLASS_MAPPINGS.values()
    assert set(node.NODE_DISPLAY_NAME_MAPPINGS) == set(node.NODE_CLASS_MAPPINGS)
    assert kind.RETURN_TYPES == ("MODEL",)
    assert set(kind.INPUT_TYPES()["required"]) == {"model", "budget_s"}
    assert callable(getattr(kind, kind.FUNCTION))


def test_the_denoiser_is_captured(node: Any, plain: Any) -> None:
    (fast,) = node.OptimizeModel().optimize(plain, 0.0)
    made = denoiser(fast)
    made.fast = rs.capture(node.Denoiser(made.network), backend="record")
    for seed in (1, 2):
        assert torch.equal(sample(fast, seed), sample(plain, seed))
    assert (made.fast.report().refusals, made.fast.report().replays) == ((), 5)
