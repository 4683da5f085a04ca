"""The nodes for ComfyUI. COMFYUI is the folder of a ComfyUI checkout: then its own sampler and patcher are used as well."""

import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from tests.programs.support import captured_part

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
def node(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The module of the nodes; without a checkout, with the names that it imports from ComfyUI."""
    if os.environ.get("COMFYUI"):
        request.getfixturevalue("comfy")
        yield _imported_node()
        return
    comfy, extension = (types.ModuleType(name) for name in ("comfy", "comfy.patcher_extension"))
    vars(extension)["WrappersMP"] = SimpleNamespace(APPLY_MODEL="apply_model", DIFFUSION_MODEL="diffusion_model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "comfy", comfy)
        patch.setitem(sys.modules, "comfy.patcher_extension", extension)
        yield _imported_node()


def _imported_node() -> Any:
    path = Path(__file__).parents[2] / "examples/comfyui_node.py"
    spec = importlib.util.spec_from_file_location("comfyui_node", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Network(torch.nn.Module):  # type: ignore[misc]
    """A denoiser that is called as those of ComfyUI, and keeps its progress in the options."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.dtype = torch.float32

    def forward(
        self, x: Any, timestep: Any, context: Any = None, control: Any = None, transformer_options: Any = None
    ) -> Any:
        transformer_options["block"] = 1
        made = self.layer(x) * timestep + context
        return made if control is None else made + control


class Patcher:
    """What the nodes use of a model of ComfyUI."""

    def __init__(self, model: Any, wrappers: Any = None) -> None:
        self.model, self.wrappers = model, wrappers or {}

    def clone(self) -> "Patcher":
        return Patcher(self.model, dict(self.wrappers))

    def get_model_object(self, name: str) -> Any:
        return getattr(self.model, name)

    def add_wrapper_with_key(self, kind: str, key: str, wrapper: Any) -> None:
        self.wrappers.setdefault((kind, key), []).append(wrapper)

    def remove_wrappers_with_key(self, kind: str, key: str) -> None:
        self.wrappers.pop((kind, key), None)

    def get_wrappers(self, kind: str, key: str) -> list[Any]:
        return list(self.wrappers.get((kind, key), []))

    def step(self, x: Any, **options: Any) -> Any:
        def apply(x: Any) -> Any:
            control = options.pop("control", None)
            return self.model.diffusion_model(
                x, torch.tensor(0.5), context=x * 2, control=control, transformer_options=options
            )

        apply.class_obj = self.model  # type: ignore[attr-defined]
        call: Any = apply
        for wrapper in self.get_wrappers("apply_model", "rocsolid"):
            call = partial(wrapper, call)
        with torch.no_grad():
            return call(x)


def test_nodes_optimize_and_explain_a_model(node: Any) -> None:
    """Without ComfyUI itself."""
    plain = Patcher(SimpleNamespace(diffusion_model=Network().eval()))
    (fast,) = node.OptimizeModel().optimize(plain, 0.0)
    (fast,) = node.OptimizeModel().optimize(fast, 0.0)  # once
    assert not plain.wrappers
    made = fast.get_wrappers("apply_model", "rocsolid")[0].denoiser
    assert made.dtype is torch.float32
    made.fast = captured_part(node.Denoiser(made.network))
    for _ in range(4):
        x = torch.randn(1, 4)
        assert torch.equal(fast.step(x, sigmas=torch.ones(1), callbacks={1: 2}), plain.step(x))
    x = torch.randn(1, 4)
    for options in ({"control": x}, {"patches": {"attn1": 1}}, {"wrappers": {"diffusion_model": {"other": [1]}}}):
        assert torch.equal(fast.step(x, **options), plain.step(x, **options))
    assert isinstance(plain.model.diffusion_model, Network)
    shown = node.ExplainModel().explain(fast, None)
    (text,) = shown["result"]
    assert shown["ui"]["text"] == (text,)
    assert text.splitlines() == [
        "Denoiser",
        "  optimized  the model: eager + graph, a test; 1 graph, 2 replays",
        "  unchanged  steps with ControlNet",
        "  unchanged  steps with `patches`",
        "  unchanged  steps with a wrapper of another node",
    ]
    assert node.ExplainModel().explain(plain, None)["result"] == ("the model was not optimized by rocsolid",)


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
    return wrapper.denoiser


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


def test_the_nodes_are_declared_as_comfyui_expects(node: Any) -> None:
    optimize, explain = node.NODE_CLASS_MAPPINGS.values()
    assert set(node.NODE_DISPLAY_NAME_MAPPINGS) == set(node.NODE_CLASS_MAPPINGS)
    assert (optimize.RETURN_TYPES, explain.RETURN_TYPES) == (("MODEL",), ("STRING",))
    assert set(optimize.INPUT_TYPES()["required"]) == {"model", "budget_s"}
    assert set(explain.INPUT_TYPES()["required"]) == {"model", "sampled"}
    for kind in (optimize, explain):
        assert callable(getattr(kind, kind.FUNCTION))


def test_the_denoiser_is_captured(node: Any, plain: Any) -> None:
    (fast,) = node.OptimizeModel().optimize(plain, 0.0)
    made = denoiser(fast)
    made.fast = rs.capture(node.Denoiser(made.network), backend="record")
    for seed in (1, 2):
        assert torch.equal(sample(fast, seed), sample(plain, seed))
    assert (made.fast.report().refusals, made.fast.report().replays) == ((), 5)
