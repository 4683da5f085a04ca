"""Every private torch name that rocsolid uses exists. Each name has its own test, which fails if torch moves or removes it."""

import importlib
import pkgutil

import pytest

from rocsolid import torchapi
from rocsolid.errors import UnsupportedTorchError
from rocsolid.torchapi.private_api import PrivateName, all_private_names, private_name

for _info in pkgutil.walk_packages(torchapi.__path__, "rocsolid.torchapi."):
    importlib.import_module(_info.name)


@pytest.mark.torch
@pytest.mark.parametrize("declared", all_private_names(), ids=str)
def test_the_private_name_exists(declared: PrivateName) -> None:
    import torch

    if not declared.releases.holds(torch.__version__):
        pytest.skip(f"{declared} is for torch {declared.releases}")
    if declared.gpu_builds_only and not torch.backends.cuda.is_built():
        pytest.skip(f"{declared} is for builds with CUDA or ROCm")

    assert declared.exists()


@pytest.mark.torch
def test_a_missing_name_raises_an_error_with_the_name_and_its_releases() -> None:
    missing = private_name("torch.utils._config_module", "Nothing.here", "2.6..2.8")

    with pytest.raises(UnsupportedTorchError) as error:
        missing.get()

    assert "has no `torch.utils._config_module.Nothing.here`" in str(error.value)
    assert "present in torch 2.6 to 2.8" in str(error.value)
    assert not missing.exists()
