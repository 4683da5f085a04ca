"""Tiny random pipelines of diffusers with a captured UNet or transformer in place of the plain one.

The components are those of diffusers' own fast tests. The prompts are embeddings, so that no tokenizer is needed.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion")
pytest.importorskip("transformers")
import torch
from tests.programs.support import Comparison, difference

import rocsolid as rs


def _unet(**more: Any) -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        block_out_channels=(4, 8),
        layers_per_block=1,
        sample_size=16,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        norm_num_groups=2,
        **more,
    )


def _vae(channels: int = 4, **more: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=[4, 8],
        in_channels=3,
        out_channels=3,
        down_block_types=["DownEncoderBlock2D", "DownEncoderBlock2D"],
        up_block_types=["UpDecoderBlock2D", "UpDecoderBlock2D"],
        latent_channels=channels,
        norm_num_groups=2,
        **more,
    )


def _clip(*, projected: bool = False) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        bos_token_id=0,
        eos_token_id=2,
        hidden_size=32,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        pad_token_id=1,
        vocab_size=1000,
        projection_dim=32,
    )
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config).eval()


def _t5() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(
        T5Config(d_model=32, d_ff=37, d_kv=8, num_layers=2, num_heads=4, vocab_size=99, decoder_start_token_id=0)
    ).eval()


def _sd() -> tuple[Any, str, Callable[[], dict[str, Any]]]:
    from diffusers import DDIMScheduler, StableDiffusionPipeline

    pipe = StableDiffusionPipeline(
        unet=_unet(),
        scheduler=DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False),
        vae=_vae(),
        text_encoder=_clip(),
        tokenizer=None,
        safety_checker=None,
        feature_extractor=None,
        image_encoder=None,
        requires_safety_checker=False,
    )
    return (
        pipe,
        "unet",
        lambda: {"prompt_embeds": torch.randn(1, 8, 32), "negative_prompt_embeds": torch.randn(1, 8, 32)},
    )


def _sdxl() -> tuple[Any, str, Callable[[], dict[str, Any]]]:
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline

    unet = _unet(
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=80,
    )
    pipe = StableDiffusionXLPipeline(
        unet=unet,
        scheduler=EulerDiscreteScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"),
        vae=_vae(),
        text_encoder=_clip(),
        text_encoder_2=_clip(projected=True),
        tokenizer=None,
        tokenizer_2=None,
        image_encoder=None,
        feature_extractor=None,
    )
    return (
        pipe,
        "unet",
        lambda: {
            "prompt_embeds": torch.randn(1, 8, 32),
            "negative_prompt_embeds": torch.randn(1, 8, 32),
            "pooled_prompt_embeds": torch.randn(1, 32),
            "negative_pooled_prompt_embeds": torch.randn(1, 32),
        },
    )


def _sd3() -> tuple[Any, str, Callable[[], dict[str, Any]]]:
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline

    transformer = SD3Transformer2DModel(
        sample_size=16,
        patch_size=1,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_projection_dim=32,
        joint_attention_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
    )
    pipe = StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=_vae(shift_factor=0.0609, scaling_factor=1.5035, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=_clip(projected=True),
        text_encoder_2=_clip(projected=True),
        text_encoder_3=_t5(),
        tokenizer=None,
        tokenizer_2=None,
        tokenizer_3=None,
    )
    return (
        pipe,
        "transformer",
        lambda: {
            "prompt_embeds": torch.randn(1, 8, 32),
            "negative_prompt_embeds": torch.randn(1, 8, 32),
            "pooled_prompt_embeds": torch.randn(1, 64),
            "negative_pooled_prompt_embeds": torch.randn(1, 64),
        },
    )


def _flux() -> tuple[Any, str, Callable[[], dict[str, Any]]]:
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel

    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
        guidance_embeds=True,
    )
    pipe = FluxPipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=_vae(1, shift_factor=0.0609, scaling_factor=1.5035, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=_clip(),
        text_encoder_2=_t5(),
        tokenizer=None,
        tokenizer_2=None,
    )
    return (
        pipe,
        "transformer",
        lambda: {"prompt_embeds": torch.randn(1, 8, 32), "pooled_prompt_embeds": torch.randn(1, 32)},
    )


PIPELINES = {"sd": _sd, "sdxl": _sdxl, "sd3": _sd3, "flux": _flux}
UNETS = ("sd", "sdxl")


class Pipelines:
    """A pipeline with a captured denoiser, and an eager copy of the pipeline."""

    def __init__(self, compare: Comparison, name: str) -> None:
        self.compare = compare
        pipe, self.part, self.embeddings = PIPELINES[name]()
        with torch.no_grad():  # gates and output layers that start as zero would hide differences
            for parameter in getattr(pipe, self.part).parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        pipe.set_progress_bar_config(disable=True)
        compare.model, compare.reference = pipe, copy.deepcopy(pipe)
        self.denoiser = rs.capture(getattr(pipe, self.part), backend="record")
        compare.reports = self.denoiser.report
        setattr(pipe, self.part, self.denoiser)
        compare.captured, compare.eager = pipe, compare.reference

    def change(self, name: str, change: Callable[[Any], Any]) -> None:
        self.compare.change(name, change)

    def denoisers(self, name: str, change: Callable[[Any], Any]) -> None:
        self.compare.change(name, lambda pipe: change(getattr(pipe, self.part)))

    def run(self, times: int = 1, *, steps: int = 2, guidance: float = 5.0, size: int = 32, **more: Any) -> None:
        for _ in range(times):
            arguments = self.embeddings() | more

            def run(pipe: Any, arguments: Any = arguments) -> Any:
                return pipe(
                    **copy.deepcopy(arguments),
                    num_inference_steps=steps,
                    guidance_scale=guidance,
                    height=size,
                    width=size,
                    output_type="latent",
                    generator=torch.Generator().manual_seed(self.compare.calls),
                ).images

            self.compare.both(run, run)

    def finish(self, refused: str = "") -> None:
        ours, theirs = (
            dict(getattr(pipe, self.part).state_dict()) for pipe in (self.compare.model, self.compare.reference)
        )
        self.compare.state(ours, theirs)
        model = self.compare.__dict__.pop("model")  # a pipeline has no state_dict
        try:
            self.compare.finish(refused=refused, direct=False)
        finally:
            self.compare.model = model


@pytest.fixture
def pipelines(compare: Comparison) -> Callable[[str], Pipelines]:
    return lambda name: Pipelines(compare, name)


class ScaledAttention:
    """An attention processor that does its work with the one of diffusers."""

    def __init__(self, plain: Any, scale: float) -> None:
        self.plain, self.scale = plain, scale

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = self.plain(*args, **kwargs)
        return tuple(part * self.scale for part in out) if isinstance(out, tuple) else out * self.scale


def _scaled(scale: float) -> Callable[[Any], None]:
    def change(denoiser: Any) -> None:
        plain = {name: getattr(p, "plain", p) for name, p in denoiser.attn_processors.items()}
        denoiser.set_attn_processor({name: ScaledAttention(p, scale) for name, p in plain.items()})

    return change


@pytest.mark.parametrize("name", PIPELINES)
def test_sizes_steps_and_guidance_changed(pipelines: Any, name: str) -> None:
    p = pipelines(name)
    p.run(2)
    p.run(steps=3)
    p.run(guidance=9.0)
    p.run(guidance=1.0)
    p.run(size=48)
    p.run(num_images_per_prompt=2)
    p.run()
    p.finish()


@pytest.mark.parametrize("name", UNETS)
def test_scheduler_changed(pipelines: Any, name: str) -> None:
    from diffusers import DPMSolverMultistepScheduler, EulerDiscreteScheduler, PNDMScheduler

    p = pipelines(name)
    p.run(2)
    for kind in (DPMSolverMultistepScheduler, PNDMScheduler, EulerDiscreteScheduler):

        def change(pipe: Any, kind: Any = kind) -> None:
            pipe.scheduler = kind.from_config(pipe.scheduler.config)

        p.change(kind.__name__, change)
        p.run(steps=3)
    p.finish()


@pytest.mark.parametrize("name", PIPELINES)
def test_attention_processor_changed(pipelines: Any, name: str) -> None:
    p = pipelines(name)
    p.run(2)
    p.denoisers("set_attn_processor, scale 0.5", _scaled(0.5))
    p.run(2)
    p.denoisers("set_attn_processor, scale 2", _scaled(2.0))
    p.run(2)

    def stronger(denoiser: Any) -> None:
        for processor in denoiser.attn_processors.values():
            processor.scale = 3.0

    p.denoisers("a number in the processors", stronger)
    p.run(2)
    p.finish()


@pytest.mark.parametrize("name", UNETS)
def test_default_attention_processors(pipelines: Any, name: str) -> None:
    from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

    p = pipelines(name)
    p.run(2)
    p.denoisers("AttnProcessor", lambda unet: unet.set_attn_processor(AttnProcessor()))
    p.run()
    p.change("attention slicing", lambda pipe: pipe.enable_attention_slicing(1))
    p.run()
    p.change("attention slicing off", lambda pipe: pipe.disable_attention_slicing())
    p.denoisers("AttnProcessor2_0", lambda unet: unet.set_attn_processor(AttnProcessor2_0()))
    p.run()
    p.denoisers("fuse_qkv_projections", lambda unet: unet.fuse_qkv_projections())
    p.run()
    p.denoisers("unfuse_qkv_projections", lambda unet: unet.unfuse_qkv_projections())
    p.run()
    p.finish()


@pytest.mark.parametrize("name", UNETS)
def test_freeu_switched_on_and_off(pipelines: Any, name: str) -> None:
    p = pipelines(name)
    p.run(2)
    p.change("enable_freeu", lambda pipe: pipe.enable_freeu(s1=0.9, s2=0.2, b1=1.2, b2=1.4))
    p.run(2)
    p.change("other freeu numbers", lambda pipe: pipe.enable_freeu(s1=0.5, s2=0.5, b1=2.0, b2=2.0))
    p.run(2)
    p.change("disable_freeu", lambda pipe: pipe.disable_freeu())
    p.run(2)
    p.finish()


@pytest.mark.parametrize("name", PIPELINES)
def test_lora_adapters(pipelines: Any, name: str) -> None:
    peft = pytest.importorskip("peft")
    p = pipelines(name)

    def add(adapter: str) -> Callable[[Any], None]:
        config = peft.LoraConfig(r=4, lora_alpha=4, target_modules=["to_q", "to_k", "to_v"], init_lora_weights=False)
        return lambda denoiser: denoiser.add_adapter(config, adapter_name=adapter)

    p.run(2)
    p.denoisers("add_adapter one", add("one"))
    p.run(2)
    p.denoisers("add_adapter two", add("two"))
    p.run()
    p.denoisers("set_adapters one at 0.3", lambda d: d.set_adapters(["one"], weights=[0.3]))
    p.run(2)
    p.denoisers("set_adapters one at 3", lambda d: d.set_adapters(["one"], weights=[3.0]))
    p.run()
    p.denoisers("set_adapters both", lambda d: d.set_adapters(["one", "two"], weights=[0.5, 2.0]))
    p.run()
    p.denoisers("disable_lora", lambda d: d.disable_lora())
    p.run()
    p.denoisers("enable_lora", lambda d: d.enable_lora())
    p.run()
    p.denoisers("fuse_lora", lambda d: d.fuse_lora())
    p.run()
    p.denoisers("unfuse_lora", lambda d: d.unfuse_lora())
    p.run()
    p.denoisers("delete_adapters", lambda d: d.delete_adapters(["one", "two"]))
    p.run(2)
    p.finish()


@pytest.mark.parametrize("name", UNETS)
def test_unet_layers_replaced(pipelines: Any, name: str) -> None:
    p = pipelines(name)
    p.run(2)

    def wider(unet: Any) -> None:
        unet.conv_out = copy.deepcopy(unet.conv_out)
        unet.conv_out.weight.data.mul_(1.5)

    p.denoisers("conv_out replaced", wider)
    p.run(2)
    p.denoisers("conv_in edited in place", lambda unet: unet.conv_in.weight.data.mul_(1.5))
    p.run(2)
    p.denoisers("conv_act replaced", lambda unet: setattr(unet, "conv_act", torch.nn.Tanh()))
    p.run(2)
    p.finish()


@pytest.mark.parametrize("name", PIPELINES)
def test_pipe_to_converts_the_captured_part(pipelines: Any, name: str) -> None:
    p = pipelines(name)
    p.run()
    p.change("to(float64)", lambda pipe: pipe.to(torch.float64))
    for pipe in (p.compare.model, p.compare.reference):
        assert {parameter.dtype for parameter in getattr(pipe, p.part).parameters()} == {torch.float64}
    p.change("to(float32)", lambda pipe: pipe.to(torch.float32))
    p.run(2)
    p.finish()


@pytest.mark.parametrize("name", PIPELINES)
def test_save_pretrained_writes_the_captured_part(pipelines: Any, name: str, tmp_path: Path) -> None:
    p = pipelines(name)
    p.run()
    for pipe, folder in ((p.compare.model, tmp_path / "captured"), (p.compare.reference, tmp_path / "eager")):
        pipe.save_pretrained(folder)
    ours, theirs = (
        sorted(str(path.relative_to(tmp_path / folder)) for path in (tmp_path / folder).rglob("*") if path.is_file())
        for folder in ("captured", "eager")
    )
    assert ours == theirs
    assert (tmp_path / "captured/model_index.json").read_text() == (tmp_path / "eager/model_index.json").read_text()
    loaded = [
        type(getattr(p.compare.reference, p.part)).from_pretrained(tmp_path / f / p.part) for f in ("captured", "eager")
    ]
    assert difference(dict(loaded[0].state_dict()), dict(loaded[1].state_dict())) == ""
    p.run()
    p.finish()


def test_the_captured_unet_is_the_module_it_was(pipelines: Any) -> None:
    from diffusers import UNet2DConditionModel

    p = pipelines("sd")
    unet = p.compare.model.unet
    assert isinstance(unet, torch.nn.Module)
    assert isinstance(unet, UNet2DConditionModel)
    assert unet.config.sample_size == 16
    assert unet.dtype == torch.float32
    assert list(unet.state_dict()) == list(p.compare.reference.unet.state_dict())
    assert p.compare.model.components["unet"] is unet
    p.run(2)
    p.finish()
