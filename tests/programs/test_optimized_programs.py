"""`rs.optimize` of a pipeline of diffusers and of a policy, compared with a plain copy."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.programs.support import captured_part

import rocsolid as rs
from rocsolid.integrations import policies


class Policy(torch.nn.Module):  # type: ignore[misc]
    """A policy with a queue, like those of lerobot."""

    def __init__(self, chunk: int = 3) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(4, 8)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2 * chunk))
        self.flatten = torch.nn.Flatten()
        self.queue: list[Any] = []

    def select_action(self, batch: dict[str, Any]) -> Any:
        if not self.queue:
            chunk = self.net(self.encoder(self.flatten(batch["state"]))).unflatten(1, (-1, 2))
            self.queue = list(chunk.transpose(0, 1))
        return self.queue.pop(0)


@torch.no_grad()
def test_networks_of_a_policy_are_found_by_its_first_action() -> None:
    plain = Policy().eval()
    fast = policies.optimize_policy(copy.deepcopy(plain), captured_part)
    assert isinstance(fast, Policy)
    assert "select_action: was not called yet" in str(fast.explain())
    for _ in range(12):
        batch = {"state": torch.randn(1, 4)}
        torch.testing.assert_close(fast.select_action(batch), plain.select_action(batch))
        assert len(fast.queue) == len(plain.queue)
    assert [part.name for part in fast.explain().parts if part.optimized] == ["encoder", "net"]
    assert (
        fast.net.captured.report().replays == 1
    )  # the third chunk: the first finds the networks, the second is the example
    policies.optimize_policy(fast, captured_part)  # optimized again: the plain networks, once
    assert type(fast.net) is torch.nn.Sequential
    assert fast.undo() is fast
    assert "undo() was called" in str(fast.explain())
    batch = {"state": torch.randn(1, 4)}
    torch.testing.assert_close(fast.select_action(batch), plain.select_action(batch))


@torch.no_grad()
def test_policy_in_training_mode_waits() -> None:
    fast = rs.optimize(Policy(), budget_s=0)
    fast.select_action({"state": torch.randn(1, 4)})
    assert "was not called yet" in str(fast.explain())
    fast.eval().queue.clear()
    fast.select_action({"state": torch.randn(1, 4)})
    assert "net: eager, waiting for the first call" in str(fast.explain())


@pytest.mark.parametrize("kind", ["act", "diffusion"])
@torch.no_grad()
def test_policy_of_lerobot(kind: str) -> None:
    pytest.importorskip("lerobot")
    from tests.programs import test_lerobot

    plain = (test_lerobot._act if kind == "act" else test_lerobot._diffusion)()
    fast = policies.optimize_policy(copy.deepcopy(plain), captured_part)
    for episode in range(2):
        for step in range(9):
            batch = test_lerobot._observation(1)
            results = []
            for policy in (plain, fast):
                torch.manual_seed(100 * episode + step)
                results.append(policy.select_action(dict(batch)))
            torch.testing.assert_close(*results)
        for policy in (plain, fast):
            policy.reset()
    optimized = [part.name for part in fast.explain().parts if part.optimized]
    assert optimized == (["model"] if kind == "act" else ["diffusion.rgb_encoder", "diffusion.unet"])
    replayed = fast.model if kind == "act" else fast.diffusion.unet
    assert replayed.captured.report().replays > 0, replayed.captured.report()


@pytest.fixture(params=["sd", "sdxl", "sd3", "flux"])
def pipes(request: pytest.FixtureRequest) -> tuple[Any, Any, Callable[[], dict[str, Any]]]:
    pytest.importorskip("diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion")
    pytest.importorskip("transformers")
    from tests.programs import test_diffusers

    from rocsolid.integrations import diffusers

    torch.manual_seed(0)
    plain, _, inputs = test_diffusers.PIPELINES[request.param]()
    plain.set_progress_bar_config(disable=True)
    return plain, diffusers.optimize_pipeline(copy.deepcopy(plain), captured_part), inputs


def _images(pipe: Any, inputs: dict[str, Any], **more: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    size = {"height": 32, "width": 32, "num_inference_steps": 3, "output_type": "pt", "guidance_scale": 2.0}
    return pipe(**inputs, **{**size, **more}, generator=generator).images


def _same(plain: Any, fast: Any, inputs: dict[str, Any], **more: Any) -> None:
    torch.testing.assert_close(_images(fast, inputs, **more), _images(plain, inputs, **more))


def _optimized(pipe: Any) -> list[str]:
    return [part.name for part in pipe.explain().parts if part.optimized]


def test_pipeline(pipes: Any) -> None:
    plain, fast, inputs = pipes
    denoiser = "unet" if hasattr(plain, "unet") else "transformer"
    assert isinstance(fast, type(plain))
    for _ in range(2):
        _same(plain, fast, inputs())
    assert {denoiser, "vae.decoder"} <= set(_optimized(fast))
    assert getattr(fast, denoiser).captured.report().replays > 0
    steps: list[int] = []

    def count(_pipe: Any, step: int, _time: Any, values: dict[str, Any]) -> dict[str, Any]:
        steps.append(step)
        return values

    _same(plain, fast, inputs(), num_inference_steps=4, callback_on_step_end=count)
    assert steps == [0, 1, 2, 3] * 2
    assert fast.undo() is fast
    assert type(getattr(fast, denoiser)) is type(getattr(plain, denoiser))
    assert type(fast.vae.decoder) is type(plain.vae.decoder)
    assert _optimized(fast) == []
    _same(plain, fast, inputs())


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_text_encoder_and_saving(pipes: Any, tmp_path: Any) -> None:
    plain, fast, inputs = pipes
    ids = torch.randint(3, 900, (1, 8))
    with torch.no_grad():
        for _ in range(5):
            torch.testing.assert_close(fast.text_encoder(ids)[0], plain.text_encoder(ids)[0])
    assert fast.text_encoder.captured.report().replays > 0
    fast.save_pretrained(tmp_path)
    missing = dict.fromkeys(("tokenizer", "safety_checker", "feature_extractor", "image_encoder"))
    loaded = type(plain).from_pretrained(tmp_path, **missing)
    loaded.set_progress_bar_config(disable=True)
    _same(plain, loaded, inputs())


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_lora_is_loaded_into_the_plain_modules_and_learned_again(pipes: Any, tmp_path: Any) -> None:
    peft = pytest.importorskip("peft")
    plain, fast, inputs = pipes
    _same(plain, fast, inputs())
    donor = copy.deepcopy(plain)
    donor.unet.add_adapter(peft.LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False))
    layers = peft.get_peft_model_state_dict(donor.unet)
    type(plain).save_lora_weights(tmp_path, unet_lora_layers=layers)
    before = _images(plain, values := inputs())
    for pipe in (plain, fast):
        pipe.load_lora_weights(tmp_path, adapter_name="one")
    assert "unet: eager, waiting for the first call" in str(fast.explain())
    for _ in range(2):
        _same(plain, fast, values)
    assert not torch.allclose(before, _images(fast, values))
    for name, arguments in (
        ("fuse_lora", ()),
        ("unfuse_lora", ()),
        ("set_adapters", ("one", 0.5)),
        ("unload_lora_weights", ()),
    ):
        for pipe in (plain, fast):
            getattr(pipe, name)(*arguments)
        _same(plain, fast, values)
        _same(plain, fast, values)
    assert "unet" in _optimized(fast)


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_offload_undoes_it_and_is_refused_afterwards(
    pipes: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, fast, inputs = pipes
    called = []

    def enable_model_cpu_offload(self: Any) -> None:
        called.append(self)

    monkeypatch.setattr(type(plain), "enable_model_cpu_offload", enable_model_cpu_offload)
    _same(plain, fast, inputs())
    fast.enable_model_cpu_offload()
    assert called == [fast]
    assert "enable_model_cpu_offload() was called" in caplog.text
    assert type(fast.unet) is type(plain.unet)
    _same(plain, fast, inputs())
    plain.unet._hf_hook = object()
    with pytest.raises(rs.UsageError, match="enable_model_cpu_offload"):
        rs.optimize(plain)


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_optimize_finds_the_pipeline_by_its_class(pipes: Any) -> None:
    plain, _, inputs = pipes
    reference = copy.deepcopy(plain)
    pipe = rs.optimize(plain, budget_s=0)
    assert pipe is plain
    assert rs.optimize(pipe, budget_s=0) is pipe
    assert type(pipe.unet.rocsolid.model) is type(reference.unet)
    _same(reference, pipe, inputs())
    assert pipe.unet.report().example_count == 1
