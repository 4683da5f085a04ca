"""The stand-in for `torch.cuda.get_device_properties()` next to the object of a real GPU; the other tests are in tests/pretend."""

import pytest

from rocsolid.catalog.chips import CHIPS
from rocsolid.torchapi.pretend.fake_device_info import device_properties

pytestmark = pytest.mark.torch


@pytest.mark.gpu
def test_the_stand_in_has_every_attribute_of_a_real_gpu() -> None:
    import torch

    real = {name for name in dir(torch.cuda.get_device_properties(0)) if not name.startswith("_")}

    assert real <= set(dir(device_properties(CHIPS[0])))
