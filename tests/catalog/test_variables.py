"""Families of environment variables, and variable names that no library reads."""

import pytest

from rocsolid.catalog.variables import FAMILIES, WRONG_NAMES, family, is_read, is_relevant, similar_variables


@pytest.mark.parametrize(
    "name",
    [
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        "PYTORCH_TUNABLEOP_ROTATING_BUFFER_SIZE",
        "TRITON_CACHE_DIR",
        "HIP_VISIBLE_DEVICES",
        "HSA_ENABLE_SDMA",
        "AMD_LOG_LEVEL",
        "GPU_MAX_HW_QUEUES",
        "ROCR_VISIBLE_DEVICES",
        "MIOPEN_FIND_MODE",
        "NCCL_DEBUG",
        "RCCL_MSCCL_ENABLE",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "DISABLE_ADDMM_CUDA_LT",
        "TORCH_BLAS_PREFER_HIPBLASLT",
        "AMDGCN_USE_BUFFER_OPS",
    ],
)
def test_variables_that_a_library_reads_are_known(name: str) -> None:
    assert is_relevant(name)
    assert is_read(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "COMPOSE_FILE", "MY_HIPSTER"])
def test_unrelated_variables_are_not_relevant(name: str) -> None:
    assert not is_relevant(name)


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_no_library_reads_a_wrong_name(name: str) -> None:
    assert not is_read(name)
    assert is_relevant(name)


def test_the_replacement_of_a_wrong_name_is_read() -> None:
    assert all(is_read(right) for right in WRONG_NAMES.values() if right)


def test_a_misspelled_variable_is_similar_and_an_unrelated_one_is_not() -> None:
    assert similar_variables("TORCHINDUCTOR_MAX_AUTOTUNNE") == ("TORCHINDUCTOR_MAX_AUTOTUNE",)
    assert "HIP_VISIBLE_DEVICES" in similar_variables("HIP_VISIBLE_DEVICE")
    assert similar_variables("TORCH_MY_SERVER_PORT") == ()


def test_every_expected_family_exists() -> None:
    names = "TORCH_X X_INDUCTOR X_AUTOTUNE TORCH_COMPILE_X TRITON_X OMP_X MKL_X HIP_X HSA_X ROCR_X AMD_X MIOPEN_X NCCL_X RCCL_X GPU_X"

    assert [name for name in names.split() if family(name) is None] == []
    assert len({f.name for f in FAMILIES}) == len(FAMILIES)
