"""Every private name we lean on, by name: the day upstream moves one, a test says which."""

import importlib
import pkgutil

import pytest

from rocsolid import torchapi
from rocsolid.errors import UnsupportedTorchError
from rocsolid.torchapi.private_api import Door, all_doors, door

for _info in pkgutil.iter_modules(torchapi.__path__, "rocsolid.torchapi."):
    if not _info.name.endswith(".child"):
        importlib.import_module(_info.name)


@pytest.mark.torch
@pytest.mark.parametrize("private", all_doors(), ids=str)
def test_the_name_is_where_we_look_for_it(private: Door) -> None:
    import torch

    if not private.seen.holds(torch.__version__):
        pytest.skip(f"{private} is for {private.seen}")
    if private.device_build and not torch.backends.cuda.is_built():
        pytest.skip(f"{private} is for builds with CUDA or ROCm")

    assert private.is_open()


@pytest.mark.torch
def test_a_closed_door_says_which_name_is_gone() -> None:
    closed = door("torch.utils._config_module", "Nothing.here", "2.6..2.8")

    with pytest.raises(UnsupportedTorchError) as error:
        closed.reach()

    assert str(error.value) == "this torch has no torch.utils._config_module.Nothing.here; it was seen in 2.6 to 2.8"
    assert not closed.is_open()
