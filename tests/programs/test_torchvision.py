"""Detection models of torchvision: the number of boxes depends on the image, so a graph is right or refused."""

from typing import Any

import pytest

pytest.importorskip("torchvision")
import torch
from tests.programs.support import Comparison

REFUSED = "(host sync|host copy|data-dependent shape|side effect|argument|unsupported result type): "


def _faster_rcnn() -> Any:
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

    return fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=4, min_size=64, max_size=96, box_score_thresh=0.05
    )


def _retinanet() -> Any:
    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.mobilenetv2 import mobilenet_v2

    backbone = mobilenet_v2(weights=None).features[:8]
    backbone.out_channels = 64
    anchors = AnchorGenerator(sizes=((16, 32),), aspect_ratios=((0.5, 1.0, 2.0),))
    return RetinaNet(backbone, num_classes=4, anchor_generator=anchors, min_size=64, max_size=96, score_thresh=0.001)


def _ssdlite() -> Any:
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    return ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)


DETECTORS = {"faster_rcnn": _faster_rcnn, "retinanet": _retinanet, "ssdlite": _ssdlite}


@pytest.mark.parametrize("name", DETECTORS)
def test_detection(compare: Comparison, name: str) -> None:
    compare.module(DETECTORS[name]().eval())
    for sizes in ([(64, 64)], [(64, 64)], [(64, 64)], [(64, 80), (48, 64)], [(64, 64)]):
        compare.call([torch.rand(3, *size) for size in sizes])
    compare.change("in-place edit", lambda m: [p.data.mul_(1.01) for p in m.parameters()])
    compare.call([torch.rand(3, 64, 64)])
    compare.finish(refused=REFUSED)


@pytest.mark.parametrize("name", ["faster_rcnn", "retinanet"])
def test_backbone_of_a_detector(compare: Comparison, name: str) -> None:
    model = DETECTORS[name]().eval()
    compare.module(model.backbone)
    for rows, size in ((1, 64), (1, 64), (1, 64), (2, 64), (1, 96)):
        compare.call(torch.rand(rows, 3, size, size))
    compare.change("in-place edit", lambda m: [p.data.mul_(1.01) for p in m.parameters()])
    compare.call(torch.rand(1, 3, 64, 64))
    compare.finish()


def test_roi_align_and_nms(compare: Comparison) -> None:
    from torchvision import ops

    def crops(features: Any, boxes: Any, scores: Any) -> Any:
        return ops.roi_align(features, [boxes[ops.nms(boxes, scores, 0.5)]], output_size=4)

    import rocsolid as rs

    compare.captured, compare.eager = rs.capture(crops, backend="record"), crops
    for _ in range(4):
        corner = torch.rand(8, 2) * 20
        compare.call(
            torch.rand(1, 4, 32, 32), torch.cat([corner, corner + torch.rand(8, 2) * 10 + 1], 1), torch.rand(8)
        )
    compare.finish(refused="(host sync|host copy|data-dependent shape): ")
