"""Public models with random weights, made from their configurations; nothing is downloaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

import rocsolid as rs
from benchmarks.denoiser import Encoder, TenSteps
from benchmarks.loops import Generates, Stream, Trains

_WORDS: Final = 1000


class Tensor(nn.Module):  # type: ignore[misc]
    """A model from transformers as a function from tensors to one tensor."""

    def __init__(self, model: nn.Module, *names: str, **fixed: Any) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.fixed = fixed

    def forward(self, *given: Any) -> Any:
        """Its last hidden state."""
        return self.model(**dict(zip(self.names, given, strict=True)), **self.fixed).last_hidden_state


@dataclass(frozen=True, kw_only=True)
class Step:
    """How the submodule `step` is captured, for a program in which only that part is made fast."""

    trains: bool = False
    buckets: Mapping[str, rs.Bucket] | None = None


@dataclass(frozen=True)
class Built:
    """A model in float32 on the CPU, and its inputs."""

    model: nn.Module
    inputs: tuple[Any, ...]
    step: Step | None = None


def _vision(name: str) -> Callable[[], Built]:
    def build() -> Built:
        import torchvision

        model = torchvision.models.get_model(name, weights=None).eval()
        for parameter in model.parameters():
            if (
                parameter.dim() > 1 and not parameter.any()
            ):  # a head that is initialised to zero would return only zeros
                nn.init.normal_(parameter, std=0.02)
        return Built(model, (torch.randn(1, 3, 224, 224),))

    return build


def _text(kind: str, tokens: int, config: Mapping[str, Any] | None = None, **fixed: Any) -> Callable[[], Built]:
    def build() -> Built:
        import transformers

        made = getattr(transformers, f"{kind.removesuffix('Encoder')}Config")(**dict(config or {}))
        model = getattr(transformers, f"{kind}Model")(made).eval()
        return Built(Tensor(model, "input_ids", **fixed), (torch.randint(1, _WORDS, (1, tokens)),))

    return build


def _image(kind: str) -> Callable[[], Built]:
    def build() -> Built:
        import transformers

        model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")()).eval()
        size = model.config.image_size
        return Built(Tensor(model, "pixel_values"), (torch.randn(1, 3, size, size),))

    return build


def _whisper() -> Built:
    import transformers

    config = transformers.WhisperConfig(
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        decoder_ffn_dim=2048,
        encoder_ffn_dim=2048,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
    )
    model = Tensor(transformers.WhisperModel(config).eval(), "input_features", "decoder_input_ids", use_cache=False)
    return Built(model, (torch.randn(1, 80, 3000), torch.randint(1, _WORDS, (1, 8))))


def _denoiser() -> Built:
    return Built(
        TenSteps().eval(), (torch.randn(1, 50, 1024), torch.randn(18, 1, 8, 800, 128), torch.randn(18, 1, 8, 800, 128))
    )


class Layer(nn.Module):  # type: ignore[misc]
    """A layer of a diffusion transformer: the condition scales and shifts the tokens."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Any, condition: Any) -> Any:
        """Tokens in, tokens out."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.condition(condition).unsqueeze(1).chunk(6, -1)
        parts = (
            self.qkv(self.norm1(x) * (1 + scale1) + shift1).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        seen = nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        x = x + gate1 * self.out(seen)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiffusionStep(nn.Module):  # type: ignore[misc]
    """One step of a diffusion transformer of twelve layers over 256 patches."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x: Any, time: Any) -> Any:
        """The predicted noise."""
        rates = torch.exp(torch.arange(128, device=x.device) * -0.072)
        angles = time[:, None] * rates
        condition = self.time(torch.cat([angles.cos(), angles.sin()], -1).to(x.dtype))
        for layer in self.layers:
            x = layer(x, condition)
        return x


class Int8Linear(nn.Module):  # type: ignore[misc]
    """A linear layer with int8 weights and a scale for each row."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        weight = torch.randn(outputs, inputs) / inputs**0.5
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.squeeze(1))

    def forward(self, x: Any) -> Any:
        """As a linear layer."""
        return nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale


def _quantised() -> Built:
    layers = [part for _ in range(8) for part in (Int8Linear(2048, 2048), nn.ReLU())]
    return Built(nn.Sequential(*layers).eval(), (torch.randn(1, 2048),))


def _generates() -> Built:
    import transformers

    config = transformers.LlamaConfig(**LLAMA)
    model = Generates(transformers.LlamaForCausalLM(config).eval())
    return Built(model, (torch.randint(1, _WORDS, (1, 16)),), Step())


def _stream() -> Built:
    longest = 256
    sizes = {name: rs.Bucket.multiples_of(64, longest, dim=1, pad=0) for name in ("ids", "mask")}
    inputs = (torch.randint(1, _WORDS, (1, longest)), torch.ones(1, longest, dtype=torch.bool))
    return Built(Stream(Encoder(layers=6, width=512, heads=8).eval(), longest=longest), inputs, Step(buckets=sizes))


def _trains() -> Built:
    width = 512
    layers = [part for _ in range(8) for part in (nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())]
    return Built(Trains(nn.Sequential(*layers)), (torch.randn(16, width),), Step(trains=True))


_SMALL: Final = {"hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 16, "intermediate_size": 2816}
_BASE: Final = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
LLAMA: Final = {**_SMALL, "num_key_value_heads": 4, "vocab_size": 32000}
MODELS: Final[Mapping[str, Callable[[], Built]]] = {
    "resnet50": _vision("resnet50"),
    "mobilenet_v3_large": _vision("mobilenet_v3_large"),
    "efficientnet_b0": _vision("efficientnet_b0"),
    "vit_b_16": _vision("vit_b_16"),
    "swin_t": _vision("swin_t"),
    "convnext_tiny": _vision("convnext_tiny"),
    "regnet_y_3_2gf": _vision("regnet_y_3_2gf"),
    "densenet121": _vision("densenet121"),
    "bert": _text("Bert", 128),
    "gpt2": _text("GPT2", 64, use_cache=False),
    "llama": _text("Llama", 32, LLAMA, use_cache=False),
    "qwen3": _text(
        "Qwen3", 16, {**_SMALL, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 32000}, use_cache=False
    ),
    "whisper": _whisper,
    "clip_vision": _image("CLIPVision"),
    "t5_encoder": _text("T5Encoder", 64),
    "mamba": _text("Mamba", 32, {"hidden_size": 512, "num_hidden_layers": 8, "vocab_size": 32000}, use_cache=False),
    "electra": _text("Electra", 128),
    "distilbert": _text("DistilBert", 128),
    "siglip_vision": _image("SiglipVision"),
    "modernbert": _text("ModernBert", 128),
    "mpnet": _text("MPNet", 128),
    "opt": _text("OPT", 64, use_cache=False),
    "gpt_neox": _text("GPTNeoX", 64, _BASE, use_cache=False),
    "gemma": _text(
        "Gemma", 32, {**_SMALL, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000}, use_cache=False
    ),
    "phi": _text("Phi", 32, {**_SMALL, "vocab_size": 32000}, use_cache=False),
    "dinov2": _image("Dinov2"),
    "mobilenet_v2": _vision("mobilenet_v2"),
    "efficientnet_v2_s": _vision("efficientnet_v2_s"),
    "swin_v2_t": _vision("swin_v2_t"),
    "resnext50_32x4d": _vision("resnext50_32x4d"),
    "ten_step_denoiser": _denoiser,
    "diffusion_transformer": lambda: Built(DiffusionStep().eval(), (torch.randn(1, 256, 768), torch.rand(1))),
    "int8_linears": _quantised,
    "llama_generate": _generates,
    "changing_lengths": _stream,
    "training_step": _trains,
}


def built_on(name: str, device: str, dtype: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model and its inputs, created on the device; random weights are fast to create on a GPU."""
    wanted: torch.dtype = getattr(torch, dtype)
    torch.manual_seed(0)
    with torch.device(device):
        built = MODELS[name]()
    inputs = (x.to(device, wanted if x.is_floating_point() else x.dtype) for x in built.inputs)
    return built.model.to(device, wanted), tuple(inputs)
