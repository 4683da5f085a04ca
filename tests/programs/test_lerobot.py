"""Policies of lerobot: their `select_action` pops actions from a deque and runs the network when the deque is empty."""

import copy
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lerobot")
import torch
from tests.programs import import_torchvision  # noqa: F401 - before lerobot imports it
from tests.programs.support import Comparison

import rocsolid as rs


def _without_the_other_policies() -> None:
    """`lerobot.policies` imports every policy, and some of them fail with newer versions of transformers."""
    if "lerobot.policies" not in sys.modules:
        spec = importlib.util.find_spec("lerobot")
        assert spec is not None
        assert spec.origin is not None
        package = types.ModuleType("lerobot.policies")
        package.__path__ = [str(Path(spec.origin).parent / "policies")]
        sys.modules["lerobot.policies"] = package


_without_the_other_policies()
pytest.importorskip("lerobot.policies.act.modeling_act", exc_type=ImportError)
pytest.importorskip("lerobot.policies.diffusion.modeling_diffusion", exc_type=ImportError)


def _features() -> dict[str, Any]:
    from lerobot.configs.types import FeatureType, PolicyFeature

    return {
        "input_features": {
            "observation.state": PolicyFeature(type=FeatureType.STATE, shape=(4,)),
            "observation.images.front": PolicyFeature(type=FeatureType.VISUAL, shape=(3, 32, 32)),
        },
        "output_features": {"action": PolicyFeature(type=FeatureType.ACTION, shape=(2,))},
    }


def _act(**more: Any) -> Any:
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    config = ACTConfig(
        **_features(),
        chunk_size=4,
        n_action_steps=more.pop("n_action_steps", 3),
        pretrained_backbone_weights=None,
        dim_model=16,
        n_heads=2,
        dim_feedforward=16,
        n_encoder_layers=1,
        n_vae_encoder_layers=1,
        latent_dim=4,
        device="cpu",
        **more,
    )
    return ACTPolicy(config).eval()


def _diffusion(**more: Any) -> Any:
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    config = DiffusionConfig(
        **_features(),
        horizon=8,
        n_action_steps=3,
        crop_shape=None,
        down_dims=(16, 32),
        n_groups=4,
        kernel_size=3,
        diffusion_step_embed_dim=8,
        spatial_softmax_num_keypoints=4,
        noise_scheduler_type="DDIM",
        num_train_timesteps=10,
        num_inference_steps=2,
        device="cpu",
        **more,
    )
    return DiffusionPolicy(config).eval()


def _smolvla(**more: Any) -> Any:
    """With a tiny random model in the place of the one that the config names, which would be downloaded."""
    from lerobot.policies.smolvla import smolvlm_with_expert
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
    from transformers import SmolVLMConfig

    text = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "head_dim": 8, "vocab_size": 50}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "pad_token_id": 0}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 32, "patch_size": 8}
    vlm = SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=2, pad_token_id=0)
    tokenizer = types.SimpleNamespace(fake_image_token_id=1, global_image_token_id=2)
    config = SmolVLAConfig(
        **_features(),
        chunk_size=4,
        n_action_steps=3,
        max_state_dim=8,
        max_action_dim=8,
        resize_imgs_with_padding=(32, 32),
        num_steps=3,
        num_vlm_layers=2,
        expert_width_multiplier=0.5,
        device="cpu",
        **more,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smolvlm_with_expert.AutoConfig, "from_pretrained", lambda _: vlm)
        processor = types.SimpleNamespace(tokenizer=tokenizer)
        patch.setattr(smolvlm_with_expert.AutoProcessor, "from_pretrained", lambda _: processor)
        return SmolVLAPolicy(config).eval()


def _pi0(**more: Any) -> Any:
    """A tiny random model. What lerobot 0.4.4 needs of its own fork of transformers is adapted to a release of transformers."""
    import transformers.models.siglip
    from lerobot.policies.pi0 import modeling_pi0
    from lerobot.policies.pi0.configuration_pi0 import PI0Config

    gemma = modeling_pi0.GemmaConfig(width=32, depth=2, mlp_dim=32, num_heads=4, num_kv_heads=1, head_dim=8)
    vision = {"model_type": "siglip_vision_model", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    kinds = {
        "gemma": modeling_pi0.CONFIG_MAPPING["gemma"],
        "paligemma": lambda: modeling_pi0.PaliGemmaForConditionalGeneration.config_class(
            vision_config={**vision, "patch_size": 8}
        ),
    }
    config = PI0Config(
        **_features(),
        chunk_size=4,
        n_action_steps=3,
        max_state_dim=8,
        max_action_dim=8,
        image_resolution=(32, 32),
        num_inference_steps=3,
        device="cpu",
        **more,
    )
    with pytest.MonkeyPatch.context() as patch:
        correct = types.SimpleNamespace(check_whether_transformers_replace_is_installed_correctly=lambda: True)
        patch.setattr(transformers.models.siglip, "check", correct, raising=False)
        patch.setattr(modeling_pi0, "get_gemma_config", lambda _: gemma)
        real, modeling_pi0.CONFIG_MAPPING = modeling_pi0.CONFIG_MAPPING, kinds
        try:
            policy = modeling_pi0.PI0Policy(config).eval()
        finally:
            modeling_pi0.CONFIG_MAPPING = real
    paligemma = policy.model.paligemma_with_expert.paligemma
    paligemma.model.multi_modal_projector.linear = torch.nn.Linear(16, 32)
    paligemma.language_model = paligemma.model.language_model
    policy.model.paligemma_with_expert.__class__ = _paligemma_of_a_release(modeling_pi0.PaliGemmaWithExpertModel)
    return policy


def _paligemma_of_a_release(kind: Any) -> Any:
    class PaliGemma(kind):  # type: ignore[misc]
        def embed_image(self, image: Any) -> Any:
            return self.paligemma.model.get_image_features(image).pooler_output

        def forward(self, past_key_values: Any = None, **kwargs: Any) -> Any:
            """A release adds to the cache also with `use_cache=False`: it gets a cache of its own in each step."""
            return super().forward(past_key_values=copy.deepcopy(past_key_values), **kwargs)

    return PaliGemma


def _observation(rows: int) -> dict[str, Any]:
    return {"observation.state": torch.randn(rows, 4), "observation.images.front": torch.rand(rows, 3, 32, 32)}


def _instructed(rows: int) -> dict[str, Any]:
    """An observation with the tokens of an instruction."""
    tokens = {"observation.language.tokens": torch.randint(3, 50, (rows, 5))}
    return _observation(rows) | tokens | {"observation.language.attention_mask": torch.ones(rows, 5, dtype=torch.bool)}


class Rollout:
    """A policy in which something is captured, and an eager copy; both see the same observations."""

    def __init__(self, compare: Comparison, policy: Any) -> None:
        self.compare = compare
        compare.model, compare.reference = policy, copy.deepcopy(policy)

    def capture_select_action(self) -> "Rollout":
        self.compare.captured = rs.capture(self.compare.model.select_action, backend="record")
        self.compare.eager = self.compare.reference.select_action
        return self

    def capture_part(self, *path: str) -> "Rollout":
        policy = self.compare.model
        parent = policy.get_submodule(".".join(path[:-1]))
        part = rs.capture(getattr(parent, path[-1]), backend="record")
        self.compare.reports = part.report
        setattr(parent, path[-1], part)
        self.compare.captured, self.compare.eager = policy.select_action, self.compare.reference.select_action
        return self

    def step(self, steps: int = 5, rows: int = 1) -> None:
        for _ in range(steps):
            self.compare.call(_observation(rows))
            self.compare.state(*(self._queues(policy) for policy in (self.compare.model, self.compare.reference)))

    @staticmethod
    def _queues(policy: Any) -> Any:
        names = ("_action_queue", "_queues", "temporal_ensembler")
        return {name: getattr(policy, name) for name in names if hasattr(policy, name)}

    def episodes(self) -> None:
        self.step(7)
        self.compare.change("reset", lambda policy: policy.reset())
        self.step()
        self.compare.change("reset", lambda policy: policy.reset())
        self.step(rows=2)
        self.compare.change("reset and in-place edit", _reset_and_edit)
        self.step()


def _reset_and_edit(policy: Any) -> None:
    policy.reset()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.1)


POLICIES: dict[str, Callable[[], Any]] = {
    "act": _act,
    "act-ensembled": lambda: _act(temporal_ensemble_coeff=0.01, n_action_steps=1),
    "diffusion": _diffusion,
}


@pytest.mark.parametrize("name", POLICIES)
def test_select_action_as_a_function(compare: Comparison, name: str) -> None:
    rollout = Rollout(compare, POLICIES[name]()).capture_select_action()
    rollout.episodes()
    compare.finish(refused="side effect: .*(queue|ensembl)")


@pytest.mark.parametrize("name", ["act", "act-ensembled"])
def test_model_of_act(compare: Comparison, name: str) -> None:
    rollout = Rollout(compare, POLICIES[name]()).capture_part("model")
    rollout.episodes()
    compare.finish(direct=False)


def test_diffusion_model(compare: Comparison) -> None:
    """The policy calls `diffusion.generate_actions`, and not the module: the report must not be silent about it."""
    rollout = Rollout(compare, _diffusion()).capture_part("diffusion")
    rollout.episodes()
    assert not compare.differences
    assert "never called; if the program calls another method" in str(compare.report())


def test_unet_of_the_diffusion_model(compare: Comparison) -> None:
    rollout = Rollout(compare, _diffusion()).capture_part("diffusion", "unet")
    rollout.episodes()
    compare.finish(direct=False)


def test_encoder_of_the_diffusion_model(compare: Comparison) -> None:
    rollout = Rollout(compare, _diffusion()).capture_part("diffusion", "rgb_encoder")
    rollout.episodes()
    compare.finish(direct=False)


def test_predict_action_chunk_as_a_function(compare: Comparison) -> None:
    """The usual advice: capture the function without the queue."""
    rollout = Rollout(compare, _act())
    compare.captured = rs.capture(compare.model.predict_action_chunk, backend="record")
    compare.eager = compare.reference.predict_action_chunk
    for rows in (1, 1, 1, 2, 1):
        compare.call(_observation(rows))
    compare.change("train", lambda policy: policy.train())
    compare.call(_observation(1))
    compare.state(rollout.compare.model.training, rollout.compare.reference.training)
    compare.change("in-place edit", _reset_and_edit)
    compare.call(_observation(1))
    compare.finish()
