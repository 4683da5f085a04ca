"""Image models of timm: heads that are swapped, weights that are edited, and dtypes that go there and back."""

import copy
from typing import Any

import pytest

pytest.importorskip("timm")
import timm
import torch
from tests.programs.support import Comparison
from torch import nn

# name: (image sizes, options of create_model)
MODELS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "resnet10t": ((64, 96), {}),
    "vit_tiny_patch16_224": ((64,), {"img_size": 64, "depth": 3}),
    "convnext_atto": ((64, 96), {"depths": (1, 1, 2, 1)}),
    "swin_tiny_patch4_window7_224": (
        (64,),
        {"img_size": 64, "window_size": 4, "depths": (1, 2, 1, 1), "embed_dim": 24},
    ),
    "swinv2_tiny_window8_256": ((64,), {"img_size": 64, "window_size": 4, "depths": (1, 2, 1, 1), "embed_dim": 24}),
    "efficientnet_b0": ((64, 96), {}),
    "mobilenetv3_small_050": ((64, 96), {}),
    "regnetx_002": ((64, 96), {}),
    "densenet121": ((64,), {"block_config": (2, 2, 2, 2)}),
    "mixer_s32_224": ((64,), {"img_size": 64}),
    "beit_base_patch16_224": ((64,), {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3}),
    "deit_tiny_distilled_patch16_224": ((64,), {"img_size": 64, "depth": 3}),
    "coat_lite_tiny": ((64,), {"img_size": 64}),
    "xcit_nano_12_p16_224": ((64, 96), {"img_size": 64, "depth": 3}),
    "maxvit_pico_rw_256": ((64,), {"img_size": 64}),
    "levit_128s": ((128,), {"img_size": 128}),  # at 64 batch norms have two values in train mode, and amplify rounding
    "poolformer_s12": ((64, 96), {}),
    "repvgg_a0": ((64, 96), {}),
    "ghostnet_050": ((64, 96), {}),
    "hrnet_w18_small": ((64,), {}),
}
# A rate above 0 in train mode draws random numbers, and the number of draws of a captured call is not that of eager.
NO_DROPOUT = {"drop_rate": 0.0, "drop_path_rate": 0.0}


@pytest.fixture(params=MODELS)
def images(request: pytest.FixtureRequest, compare: Comparison) -> Any:
    sizes, options = MODELS[request.param]
    for more in ({**NO_DROPOUT, **options}, options):
        try:
            model = timm.create_model(request.param, pretrained=False, num_classes=7, **more)
        except TypeError:  # the family has no such rate
            continue
        break
    with torch.no_grad():  # a classifier or a branch that starts as zero would hide differences
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    compare.module(model.eval())

    def run(times: int = 2, *, other: bool = False) -> None:
        size = sizes[-1] if other else sizes[0]
        for _ in range(times):
            compare.call(torch.randn(1 + other, 3, size, size))

    return run


def test_classifier_and_weights_changed(compare: Comparison, images: Any) -> None:
    images(3)
    images(other=True)
    compare.change("in-place edit", _scale_weights)
    images()
    compare.change("load_state_dict", lambda m: m.load_state_dict({n: v * 0.9 for n, v in m.state_dict().items()}))
    images()
    compare.change("reset_classifier", lambda m: m.reset_classifier(5))
    images()
    compare.change("another head module", _wrap_head)
    images()
    images(other=True)
    compare.finish()


def test_modes_and_dtypes_changed(compare: Comparison, images: Any) -> None:
    images(3)
    compare.change("dropout p", _set_dropout)
    images()
    compare.change("half and back", lambda m: m.half().float())
    images()
    compare.change("train with p 0", _train_without_dropout)
    images(other=True)
    compare.change("eval", lambda m: m.eval())
    images()
    compare.change("deep copy of the head", _copy_head)
    images()
    compare.change("activation replaced", _replace_activations)
    images()
    compare.finish()


def _scale_weights(model: Any) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.05)


def _head_name(model: Any) -> str:
    return next(
        name for name in ("head", "classifier", "fc", "head_dist") if isinstance(getattr(model, name, None), nn.Module)
    )


def _wrap_head(model: Any) -> None:
    name = _head_name(model)

    class Doubled(nn.Module):  # type: ignore[misc]
        def __init__(self, head: Any) -> None:
            super().__init__()
            self.head = head

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.head(*args, **kwargs) * 2

    setattr(model, name, Doubled(getattr(model, name)).eval())


def _copy_head(model: Any) -> None:
    name = _head_name(model)
    head = copy.deepcopy(getattr(model, name))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.1)
    setattr(model, name, head)


def _set_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.7


def _train_without_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for rate in ("drop_rate", "drop_prob", "drop_path_rate"):
            if isinstance(getattr(module, rate, None), float):
                setattr(module, rate, 0.0)
    model.train()


def _replace_activations(model: Any) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, (nn.ReLU, nn.GELU, nn.SiLU)):
                setattr(module, name, nn.Tanh())
