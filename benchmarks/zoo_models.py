"""The models of `benchmarks.zoo`: the names in each library, and small models with random weights and inputs for them.

A builder yields attempts, `(model, make_inputs)`. The benchmark uses the first one that runs in eager.
"""

import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
Attempt = tuple[Any, Callable[[], Inputs]]
_MAX_PARAMETERS: Final = 300_000_000
_VOCABULARY: Final = 256
_ROWS, _TOKENS = 2, 8
_LAYERS_KEPT: Final = 2
_NOT_GIVEN: Final = {"vocab_size": _VOCABULARY, "pad_token_id": 0, "head_dim": 16, "num_key_value_heads": 4}

# Config values of transformers by name, for a model of a few MB: a larger value is replaced.
_SIZES: Final = (
    (r"vocab_size|.*_vocab_size|vocab_size_.*", _VOCABULARY),
    (r".*(key_value|kv)_heads", 2),
    (r".*heads?", 4),
    (r".*experts_per_tok|.*top_k|moe_topk|moe_k|topk_group|n_group", 2),
    (r".*experts|moe_num_.*|num_local_experts", 4),
    (r".*head_dim|d_kv|head_size|.*attention_head_size|.*lora_rank", 16),
    (r".*(intermediate|ffn|d_ff|inner|mlp).*(size|dim)|d_ff|n_inner|ffn_dim", 96),
    (r".*hidden_size|d_model|n_embd|.*embed_dim|.*hidden_dim|dim|.*embedding_size|width|projection_dim|d_embed", 64),
    (r"(max|n)_position.*|.*seq_len|max_.*_positions|n_positions|max_sequence_length", 512),
)
_HEADS_KEPT: Final = 4
_HEAD_DIM: Final = 16
_LAYERS: Final = re.compile(r"(?!num_feat_extract).*(layers|n_layer|depth|num_blocks|_blocks)$")
_TOKEN: Final = re.compile(r".*token_(id|index|ids)$|.*_token$")
# If that fails: heads as wide as in the original, for lists such as the sections of a rotary embedding; then all widths.
_WIDE_HEADS: Final = tuple(
    (name, 512 if "hidden_size" in name else size) for name, size in _SIZES if "head_dim" not in name
)
_ONLY_DEPTH: Final = tuple((name, size) for name, size in _SIZES if size in (_VOCABULARY, 2) or "experts" in name)


def shrink(config: dict[str, Any], sizes: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """Return a config as a dictionary with fewer layers of each kind, and with sizes that are not larger than these."""
    layers = {key: value for key, value in config.items() if _LAYERS.match(key) and type(value) is int}
    count = max(layers.values(), default=0)
    per_layer = {key: v for key, v in config.items() if isinstance(v, list) and len(v) == count > _LAYERS_KEPT}
    kinds = {repr([v[i] for v in per_layer.values()]): i for i in reversed(range(count if per_layer else 0))}
    kept = sorted({*sorted(kinds.values())[:4], *range(_LAYERS_KEPT)})
    patch = config.get("patch_size")
    image = {"image_size": 4 * patch if isinstance(patch, int) else 64} if sizes is _SIZES else {}
    small: dict[str, Any] = {}
    heads = config.get("num_attention_heads")
    for key, value in config.items():
        if key == "per_layer_config" and isinstance(value, dict):  # by the numbers of layers
            small[key] = {index: one for index, one in value.items() if int(index) < len(kept)}
        elif isinstance(value, dict) and all(isinstance(name, str) for name in value):
            small[key] = shrink(value, sizes)
        elif key in per_layer:
            small[key] = [value[index] for index in kept]
        elif key in ("depths", "layers", "num_layers") and isinstance(value, list):
            small[key] = [min(item, _LAYERS_KEPT) if isinstance(item, int) else item for item in value]
        elif type(value) is int:
            size = next((size for pattern, size in sizes if re.fullmatch(pattern, key)), value)
            size = _HEADS_KEPT if re.fullmatch(".*(key_value|kv)_heads", key) and value == heads else size
            small[key] = min(value, image.get(key, len(kept) if key in layers else size))
            if _TOKEN.match(key) and value >= _VOCABULARY:
                small[key] = _VOCABULARY - 1 - len(key) % 50  # another one for each name
        elif not re.fullmatch("_?out_(features|indices)", key):  # the names of layers that are no longer there
            unknown = {} if sizes is not _SIZES and key == "head_dim" else _NOT_GIVEN
            small[key] = unknown.get(key) if value is None else value
    return _consistent(small) if sizes is _SIZES else small


def _sections(rope: dict[str, Any]) -> list[int]:
    """Return the sections of a rotary embedding for pictures: they divide half the rotated width of a head."""
    total = int(_HEAD_DIM * (rope.get("partial_rotary_factor") or 1) / 2)
    first = max(total // 4, 1)
    return [first, (total - first) // 2, total - first - (total - first) // 2]


def _consistent(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config whose values fit the reduced ones."""
    for count, width in (("mamba_n_heads", "mamba_d_head"), ("n_mamba_heads", "mamba_headdim")):
        if isinstance(config.get(width), int) and config.get(count):
            config[width] = config.get("mamba_expand", 2) * config["hidden_size"] // config[count]
    return config


def transformers_names() -> list[str]:
    """Every model type of transformers that has a model."""
    from transformers.models.auto import modeling_auto

    return sorted(modeling_auto.MODEL_MAPPING_NAMES | modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


_HEADS: Final = ("SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MASKED_LM", "CAUSAL_LM", "CTC",
                 "OBJECT_DETECTION", "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION")  # fmt: skip


def transformers_models(name: str) -> Iterator[Attempt]:
    """A model with its usual head, or without one."""
    import transformers
    from transformers.models.auto import modeling_auto

    config_class = transformers.AutoConfig.for_model(name).__class__
    default = config_class().to_dict()
    names = [getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES").get(name) for head in _HEADS]
    names += [modeling_auto.MODEL_MAPPING_NAMES.get(name)]
    chosen = [found for found in names if found][:1] + names[-1:]
    error: Exception | None = None
    for class_name in dict.fromkeys(found[0] if isinstance(found, tuple) else found for found in chosen if found):
        for sizes in (_SIZES, _WIDE_HEADS, _ONLY_DEPTH, None):
            try:
                config = config_class.from_dict(shrink(default, sizes)) if sizes else config_class()
                home = importlib.import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
                rope = getattr(config.get_text_config(), "rope_parameters", None) or {}
                if sizes is _SIZES and "rope_theta" in rope:  # some models have sections, which are not in the config
                    rope["mrope_section"] = _sections(rope)
                model = _built(getattr(home, class_name), config)
            except Exception as failed:  # noqa: BLE001 - the next attempt may work
                error = error or failed
                continue
            if hasattr(model, "set_default_language"):
                model.set_default_language(config.languages[0])
            yield from ((model, inputs) for inputs in _transformers_inputs(model, config))
    if error:
        raise error


def _built(kind: Any, *args: Any, **kwargs: Any) -> Any:
    with torch.device("meta"):
        parameters = sum(p.numel() for p in kind(*args, **kwargs).parameters())
    if parameters > _MAX_PARAMETERS:
        msg = f"{parameters / 1e6:.0f} million parameters"
        raise ValueError(msg)
    return kind(*args, **kwargs)


def _find(config: Any, *names: str, default: Any) -> Any:
    """The first of these values in a config or in the configs that it contains."""
    parts = [config, *(part for key in ("vision_config", "audio_config", "text_config", "encoder", "backbone_config")
                       if (part := getattr(config, key, None)) is not None)]  # fmt: skip
    return next(
        (value for name in names for part in parts if (value := getattr(part, name, None)) is not None), default
    )


def _transformers_inputs(model: Any, config: Any) -> Iterator[Callable[[], Inputs]]:
    accepted = inspect.signature(model.forward).parameters
    size = _find(config, "image_size", "input_size", "img_size", default=64)
    height, width = (size if isinstance(size, (list, tuple)) else (size, size))[-2:]
    channels, mels = _find(config, "num_channels", "in_channels", default=3), _mels(config)
    frames = _find(config, "num_frames", default=0)
    text = {"input_ids": (_ROWS, _TOKENS), "attention_mask": (_ROWS, _TOKENS)}
    decoder = {"decoder_input_ids": (_ROWS, _TOKENS)} if getattr(config, "is_encoder_decoder", False) else {}
    pixels = [(_ROWS, channels, height, width), (_ROWS, frames, channels, height, width), (_ROWS, channels, 64, 64)]
    length = _find(config, "max_source_positions", default=64)
    audio = [(_ROWS, mels, 2 * length), (_ROWS, length, mels), (_ROWS, 64, mels), (_ROWS, 1, 4096)]
    waves = [(_ROWS, 4096), (_ROWS, 1, 4096), (_ROWS, _find(config, "max_length", default=64), mels)]
    series = _find(config, "context_length", default=32)
    channel_count = _find(config, "num_input_channels", default=1)
    attempts: list[dict[str, tuple[int, ...]]] = [{**text, **decoder}]
    attempts += [{**text, "bbox": (_ROWS, _TOKENS, 4)}]
    attempts += [{**more, "pixel_values": shape} for more in ({}, text) for shape in pixels]
    attempts += [{"pixel_values": pixels[0], "task_inputs": (_ROWS, _find(config, "task_seq_len", default=77))}]
    patch = _find(config, "patch_size", default=16)
    if isinstance(patch, int):
        width = channels * patch**2 * _find(config, "temporal_patch_size", default=1)
        attempts += [{"hidden_states": (math.prod(_GRID), width), "grid_thw": (1, 3)}]
    attempts += [{"input_features": shape, **decoder} for shape in audio]
    attempts += [{"input_values": shape, **decoder} for shape in waves]
    attempts += [{"past_values": shape} for shape in ((_ROWS, series, channel_count), (_ROWS, series))]
    attempts += [{**text, "input_features": audio[0]}, {**text, "input_values": waves[0]}]
    for attempt in attempts:
        shapes = {name: shape for name, shape in attempt.items() if name in accepted}
        if len(shapes) == len({*attempt} - {"attention_mask", "decoder_input_ids"} | {*shapes}):
            yield partial(_named_inputs, shapes)


_GRID: Final = (1, 4, 4)  # patches of a picture
_MELS: Final = ("feature_projection_input_dim", "num_mel_bins", "feature_size", "input_feat_per_channel", "input_dim")


def _mels(config: Any) -> int:
    return int(_find(config, *_MELS, default=80))


def _named_inputs(shapes: dict[str, tuple[int, ...]]) -> Inputs:
    made = {}
    for name, shape in shapes.items():
        if name.endswith("input_ids"):
            made[name] = torch.randint(5, _VOCABULARY // 2, shape)
        elif name == "grid_thw":
            made[name] = torch.tensor([_GRID])
        elif name == "task_inputs":
            made[name] = torch.randint(0, _VOCABULARY // 2, shape)
        elif name == "attention_mask":
            made[name] = torch.ones(shape, dtype=torch.int64)
            made[name][0, :2] = 0  # as a tokenizer pads a batch on the left
        elif name == "bbox":
            made[name] = torch.randint(0, 50, (*shape[:-1], 2)).repeat(1, 1, 2) + torch.tensor([0, 0, 9, 9])
        else:
            made[name] = torch.randn(shape)
    return (), made


def torchvision_names() -> list[str]:
    """Every model of torchvision."""
    import torchvision

    return sorted(torchvision.models.list_models())


def torchvision_models(name: str) -> Iterator[Attempt]:
    """A model, with inputs of its task."""
    import torchvision
    from torchvision.models import detection, optical_flow, quantization, video

    kinds = {"weights_backbone": None} if "weights_backbone" in _parameters(name) else {}
    builder = torchvision.models.get_model_builder(name)
    home = builder.__module__
    options = {"image_size": 64} if "vision_transformer" in home else {}
    if home.startswith(quantization.__name__):
        options = {"quantize": True}
    model = torchvision.models.get_model(name, weights=None, **kinds, **options)
    if home.startswith(detection.__name__):
        yield model, lambda: (([torch.rand(3, 128, 128), torch.rand(3, 128, 96)],), {})
    elif home.startswith(optical_flow.__name__):
        yield model, lambda: ((torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)), {})
    elif home.startswith(video.__name__):
        for shape in ((1, 3, 8, 64, 64), (1, 3, 16, 224, 224)):
            yield model, partial(_images, shape)
    else:
        for size in (64, 128, 224):
            yield model, partial(_images, (2, 3, size, size))


def _parameters(name: str) -> Any:
    from torchvision.models import get_model_builder

    return inspect.signature(get_model_builder(name)).parameters


def _images(shape: tuple[int, ...]) -> Inputs:
    return (torch.randn(shape),), {}


_SMALL: Final = (
    "test_",
    "atto",
    "femto",
    "pico",
    "nano",
    "tiny",
    "xxs",
    "xs",
    "small",
    "_s",
    "micro",
    "18",
    "lite",
    "b0",
)


def timm_names() -> list[str]:
    """A small model of each of timm's modules, at most 100."""
    import timm

    def size(name: str) -> tuple[int, int, str]:
        return next((i for i, word in enumerate(_SMALL) if word in name), len(_SMALL)), len(name), name

    by_module = {module: timm.list_models(module=module) for module in timm.list_modules()}
    return sorted({min(names, key=size) for names in by_module.values() if names})[:100]


def timm_models(name: str) -> Iterator[Attempt]:
    """A model, with images of the smallest size that works."""
    import timm

    for size in (64, 128, None):
        for options in ({"img_size": size, "depth": 2}, {"img_size": size}, {}):
            try:
                model = timm.create_model(name, pretrained=False, **options)
            except (TypeError, ValueError):  # it has no such argument
                continue
            channels, height, width = model.pretrained_cfg["input_size"]
            yield model, partial(_images, (2, channels, size or height, size or width))
            break


_BLOCKS: Final = {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "block_out_channels": (32, 64),
                  "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "layers_per_block": 1}  # fmt: skip
_VAE: Final = {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2, "latent_channels": 4,
               "up_block_types": ("UpDecoderBlock2D",) * 2}  # fmt: skip
_DIT: Final = {"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16, "patch_size": 2}
_VIDEO: Final = {"base_dim": 16, "z_dim": 4, "dim_mult": [1, 2], "num_res_blocks": 1, "temperal_downsample": [True]}
_LATENT, _IMAGE, _STEPS = (2, 4, 16, 16), (2, 3, 32, 32), (2,)
# For each class of diffusers: its options, and the shape of each input. Integers below 100 where the name says steps.
_DIFFUSERS: Final[dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]]] = {
    "UNet2DModel": (
        {"block_out_channels": (32, 64), "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
         "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "sample_size": 32, "norm_num_groups": 8},
        {"sample": _IMAGE, "timestep": _STEPS},
    ),
    "UNet2DConditionModel": (
        {**_BLOCKS, "cross_attention_dim": 32, "sample_size": 16, "attention_head_dim": 8},
        {"sample": _LATENT, "timestep": _STEPS, "encoder_hidden_states": (2, 7, 32)},
    ),
    "ControlNetModel": (
        {**{k: v for k, v in _BLOCKS.items() if k != "up_block_types"}, "cross_attention_dim": 32,
         "conditioning_embedding_out_channels": (16, 32)},
        {"sample": _LATENT, "timestep": _STEPS, "encoder_hidden_states": (2, 7, 32), "controlnet_cond": (2, 3, 32, 32)},
    ),
    "DiTTransformer2DModel": (
        {**_DIT, "in_channels": 4, "sample_size": 16, "num_embeds_ada_norm": 100, "norm_type": "ada_norm_zero"},
        {"hidden_states": _LATENT, "timestep": _STEPS, "class_labels": _STEPS},
    ),
    "PixArtTransformer2DModel": (
        {**_DIT, "in_channels": 4, "sample_size": 16, "cross_attention_dim": 32, "caption_channels": 8},
        {"hidden_states": _LATENT, "timestep": _STEPS, "encoder_hidden_states": (2, 7, 8)},
    ),
    "SD3Transformer2DModel": (
        {**_DIT, "sample_size": 16, "in_channels": 4, "joint_attention_dim": 32, "caption_projection_dim": 32,
         "pooled_projection_dim": 64, "out_channels": 4},
        {"hidden_states": _LATENT, "timestep": _STEPS, "encoder_hidden_states": (2, 7, 32), "pooled_projections": (2, 64)},
    ),
    "FluxTransformer2DModel": (
        {**_DIT, "patch_size": 1, "in_channels": 4, "num_single_layers": 1, "joint_attention_dim": 32,
         "pooled_projection_dim": 32, "axes_dims_rope": (4, 4, 8)},
        {"hidden_states": (2, 16, 4), "timestep": _STEPS, "encoder_hidden_states": (2, 7, 32),
         "pooled_projections": (2, 32), "img_ids": (16, 3), "txt_ids": (7, 3)},
    ),
    "SanaTransformer2DModel": (
        {"in_channels": 4, "out_channels": 4, "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 8,
         "num_cross_attention_heads": 2, "cross_attention_head_dim": 8, "cross_attention_dim": 16,
         "caption_channels": 8, "sample_size": 16},
        {"hidden_states": _LATENT, "timestep": _STEPS, "encoder_hidden_states": (2, 7, 8)},
    ),
    "AuraFlowTransformer2DModel": (
        {"sample_size": 16, "in_channels": 4, "num_mmdit_layers": 1, "num_single_dit_layers": 1, "out_channels": 4,
         "num_attention_heads": 2, "attention_head_dim": 16, "joint_attention_dim": 32, "caption_projection_dim": 32},
        {"hidden_states": _LATENT, "timestep": _STEPS, "encoder_hidden_states": (2, 7, 32)},
    ),
    "WanTransformer3DModel": (
        {"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4,
         "text_dim": 16, "freq_dim": 32, "ffn_dim": 32, "cross_attn_norm": True},
        {"hidden_states": (1, 4, 2, 16, 16), "timestep": (1,), "encoder_hidden_states": (1, 7, 16)},
    ),
    "LTXVideoTransformer3DModel": (
        {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2,
         "cross_attention_dim": 16, "caption_channels": 16},
        {"hidden_states": (1, 32, 4), "timestep": (1,), "encoder_hidden_states": (1, 7, 16),
         "encoder_attention_mask": (1, 7), "num_frames": (-2,), "height": (-4,), "width": (-4,)},
    ),
    "CogVideoXTransformer3DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "num_layers": 2,
         "text_embed_dim": 8, "sample_width": 8, "sample_height": 8, "sample_frames": 5, "max_text_seq_length": 8,
         "time_embed_dim": 2},
        {"hidden_states": (1, 2, 4, 8, 8), "timestep": (1,), "encoder_hidden_states": (1, 8, 8)},
    ),
    "AutoencoderKL": ({**_VAE}, {"sample": _IMAGE}),
    "AutoencoderTiny": ({"encoder_block_out_channels": (32, 32), "decoder_block_out_channels": (32, 32),
                         "num_encoder_blocks": (1, 2), "num_decoder_blocks": (2, 1)}, {"sample": _IMAGE}),
    "AsymmetricAutoencoderKL": (
        {"down_block_types": ("DownEncoderBlock2D",) * 2, "down_block_out_channels": (32, 64),
         "up_block_types": ("UpDecoderBlock2D",) * 2, "up_block_out_channels": (32, 64)}, {"sample": _IMAGE},
    ),
    "VQModel": ({**_VAE, "num_vq_embeddings": 64}, {"sample": _IMAGE}),
    "AutoencoderKLWan": ({**_VIDEO}, {"sample": (1, 3, 5, 16, 16)}),
    "AutoencoderKLTemporalDecoder": ({"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2},
                                     {"sample": _IMAGE, "num_frames": (-2,)}),
    "AutoencoderDC": (
        {"in_channels": 3, "latent_channels": 4, "attention_head_dim": 2, "encoder_block_types": ("ResBlock",) * 2,
         "decoder_block_types": ("ResBlock",) * 2, "encoder_block_out_channels": (8, 8),
         "decoder_block_out_channels": (8, 8), "encoder_qkv_multiscales": ((), ()), "decoder_qkv_multiscales": ((), ()),
         "encoder_layers_per_block": (1, 1), "decoder_layers_per_block": (1, 1),
         "downsample_block_type": "conv", "upsample_block_type": "interpolate"}, {"sample": _IMAGE},
    ),
    "UNet1DModel": (
        {"block_out_channels": (8, 8), "in_channels": 4, "out_channels": 4, "use_timestep_embedding": True,
         "down_block_types": ("DownResnetBlock1D",) * 2, "up_block_types": ("UpResnetBlock1D",), "act_fn": "swish",
         "mid_block_type": "MidResTemporalBlock1D", "out_block_type": "OutConv1DBlock", "layers_per_block": 1,
         "time_embedding_type": "positional", "flip_sin_to_cos": False, "freq_shift": 1.0, "sample_size": 16},
        {"sample": (2, 4, 16), "timestep": _STEPS},
    ),
}  # fmt: skip


def diffusers_names() -> list[str]:
    """Denoisers and VAEs of diffusers."""
    return list(_DIFFUSERS)


def diffusers_models(name: str) -> Iterator[Attempt]:
    """A tiny denoiser or VAE."""
    import diffusers

    options, shapes = _DIFFUSERS[name]

    def make() -> Inputs:
        made: dict[str, Any] = {}
        for key, shape in shapes.items():
            steps = key in ("timestep", "class_labels")
            made[key] = torch.randint(0, 99, shape) if steps else -shape[0] if shape[0] < 0 else torch.randn(shape)
            if key.endswith("mask"):
                made[key] = torch.ones(shape)
        return (), made

    model = getattr(diffusers, name)(**options)
    model.config  # noqa: B018 - a class without a config is not a model of diffusers
    yield model, make


LIBRARIES: dict[str, tuple[Callable[[], list[str]], Callable[[str], Iterator[Attempt]]]] = {
    "transformers": (transformers_names, transformers_models),
    "torchvision": (torchvision_names, torchvision_models),
    "timm": (timm_names, timm_models),
    "diffusers": (diffusers_names, diffusers_models),
}
