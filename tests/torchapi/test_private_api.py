"""Every private torch name that rocsolid uses exists: if upstream moves one, its own test fails."""

import importlib
import pkgutil

import pytest

from rocsolid import torchapi
from rocsolid.errors import UnsupportedTorchError
from rocsolid.torchapi.private_api import PrivateName, all_private_names, private_name

for _info in pkgutil.walk_packages(torchapi.__path__, "rocsolid.torchapi."):
    importlib.import_module(_info.name)


@pytest.mark.torch
@pytest.mark.parametrize("shim", all_private_names(), ids=str)
def test_the_private_name_exists(shim: PrivateName) -> None:
    import torch

    if not shim.releases.holds(torch.__version__):
        pytest.skip(f"{shim} is for torch {shim.releases}")
    if shim.gpu_builds_only and not torch.backends.cuda.is_built():
        pytest.skip(f"{shim} is for builds with CUDA or ROCm")

    assert shim.exists()


@pytest.mark.torch
def test_a_missing_name_raises_an_error_with_the_name_and_its_releases() -> None:
    missing = private_name("torch.utils._config_module", "Nothing.here", "2.6..2.8")

    with pytest.raises(UnsupportedTorchError) as error:
        missing.get()

    assert "has no `torch.utils._config_module.Nothing.here`" in str(error.value)
    assert "present in torch 2.6 to 2.8" in str(error.value)
    assert not missing.exists()
