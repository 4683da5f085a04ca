"""Find NVIDIA GPUs with NVML; a small library compiled here replaces it."""

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support import clean_environ, run_python

from rocsolid.model.environment import Device
from rocsolid.model.platform import Platform
from rocsolid.probe.devices import has_driver
from rocsolid.probe.nvml import nvml_devices

# Two GPUs, and between them one that does not respond.
LIBRARY = """
#include <string.h>
static int up = 0;
int nvmlInit_v2(void) { up++; return INIT; }
int nvmlShutdown(void) { up--; return 0; }
int left_up(void) { return up; }
int nvmlSystemGetDriverVersion(char *to, unsigned most) { strncpy(to, "580.159.04", most); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **chip) {
    *chip = (void *)(0x7fff00000000ul + index);  /* as wide as a pointer */
    return index == 1 ? 15 : 0;
}
int nvmlDeviceGetName(void *chip, char *to, unsigned most) {
    strncpy(to, (unsigned long)chip == 0x7fff00000002ul ? "NVIDIA H200" : "NVIDIA A100-SXM4-80GB", most);
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *chip, int *major, int *minor) {
    *major = (unsigned long)chip == 0x7fff00000002ul ? 9 : 8;
    *minor = 0;
    return 0;
}
#ifndef OLD
int nvmlDeviceGetMemoryInfo(void *chip, unsigned long long *amounts) {
    if (SHARED) return 3;
    amounts[0] = (unsigned long)chip == 0x7fff00000002ul ? 150754820096ull : 85899345920ull;
    amounts[1] = amounts[2] = 1;
    return 0;
}
#endif
"""
LIST_DEVICES = """
import json, sys, types
from pathlib import Path

torch = types.ModuleType("torch")
torch.version = types.SimpleNamespace(__version__="2.11.0", cuda=sys.argv[2] or None, hip=None)
sys.modules["torch"] = torch
from rocsolid.probe.quick_facts import quick_environment

env = quick_environment(Path(sys.argv[1]))
print(json.dumps([device.arch for device in env.devices]))
"""


def built(folder: Path, *flags: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "the tests need a C compiler"
    folder.mkdir(parents=True, exist_ok=True)
    source, file = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(LIBRARY)
    subprocess.run(
        [compiler, "-DINIT=0", "-DSHARED=0", *flags, "-shared", "-fPIC", str(source), "-o", str(file)], check=True
    )
    return file


def test_lists_gpus_with_memory_and_skips_one_that_does_not_respond(tmp_path: Path) -> None:
    file = str(built(tmp_path))
    first, second = nvml_devices(file)

    assert ctypes.CDLL(file).left_up() == 0
    assert first == Device(
        index=0,
        name="NVIDIA A100-SXM4-80GB",
        arch="sm_80",
        memory_bytes=85899345920,
        platform=Platform.CUDA,
        driver="580.159.04",
    )
    assert (second.index, second.name, second.arch, second.memory_bytes) == (2, "NVIDIA H200", "sm_90", 150754820096)


def test_lists_a_gpu_that_shares_the_memory_of_the_host(tmp_path: Path) -> None:
    assert [chip.memory_bytes for chip in nvml_devices(str(built(tmp_path, "-USHARED", "-DSHARED=1")))] == [0, 0]


@pytest.mark.parametrize("flags", [("-UINIT", "-DINIT=9"), ("-DOLD",)], ids=["no driver", "an old library"])
def test_lists_nothing_without_a_working_library(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert nvml_devices(str(built(tmp_path, *flags))) == ()
    assert nvml_devices(str(tmp_path / "missing.so")) == ()


def test_quick_environment_lists_them_for_a_cuda_build(tmp_path: Path) -> None:
    built(tmp_path / "lib")
    root = tmp_path / "root"
    (root / "dev").mkdir(parents=True)
    env = clean_environ(LD_LIBRARY_PATH=str(tmp_path / "lib"))

    def listed(cuda: str) -> list[str]:
        found: list[str] = json.loads(run_python("-c", LIST_DEVICES, str(root), cuda, env=env).out)
        return found

    assert listed("13.0") == []  # no driver: NVML is not used
    (root / "dev/nvidiactl").touch()
    assert listed("13.0") == ["sm_80", "sm_90"]
    assert listed("") == []


@pytest.mark.gpu
def test_lists_the_same_gpu_as_torch() -> None:
    import torch

    if torch.version.cuda is None:
        pytest.skip("needs an NVIDIA GPU")
    chip, here = nvml_devices()[0], torch.cuda.get_device_properties(0)

    assert chip.name == here.name
    assert chip.arch == f"sm_{here.major}{here.minor}"
    assert chip.memory_bytes == pytest.approx(here.total_memory, rel=0.05)


@pytest.mark.parametrize("node", ["nvidiactl", "kfd", "dxg", "nvhost-ctrl"])
def test_has_driver_finds_drivers_that_list_no_gpus(tmp_path: Path, node: str) -> None:
    assert not has_driver(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / node).touch()
    assert has_driver(tmp_path)
