"""NVIDIA's chips by its management library: a library of our own stands in for it where there is none."""

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
from rocsolid.probe.nvml import nvidia_chips

# Two chips as a driver would show them, and between them one that has fallen off the bus.
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
SEEN = """
import json, sys, types
from pathlib import Path

torch = types.ModuleType("torch")
torch.version = types.SimpleNamespace(__version__="2.11.0", cuda=sys.argv[2] or None, hip=None)
sys.modules["torch"] = torch
from rocsolid.probe.quick_facts import surroundings

env = surroundings(Path(sys.argv[1]))
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


def test_chips_are_named_with_their_memory_and_one_that_is_lost_is_left_out(tmp_path: Path) -> None:
    file = str(built(tmp_path))
    first, second = nvidia_chips(file)

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


def test_a_chip_that_shares_the_hosts_memory_is_one_all_the_same(tmp_path: Path) -> None:
    assert [chip.memory_bytes for chip in nvidia_chips(str(built(tmp_path, "-USHARED", "-DSHARED=1")))] == [0, 0]


@pytest.mark.parametrize("flags", [("-UINIT", "-DINIT=9"), ("-DOLD",)], ids=["no driver", "an old library"])
def test_where_it_cannot_answer_there_are_none(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert nvidia_chips(str(built(tmp_path, *flags))) == ()
    assert nvidia_chips(str(tmp_path / "missing.so")) == ()


def test_what_a_plan_depends_on_has_them_where_torch_is_built_for_them(tmp_path: Path) -> None:
    built(tmp_path / "lib")
    root = tmp_path / "root"
    (root / "dev").mkdir(parents=True)
    env = clean_environ(LD_LIBRARY_PATH=str(tmp_path / "lib"))

    def seen(cuda: str) -> list[str]:
        found: list[str] = json.loads(run_python("-c", SEEN, str(root), cuda, env=env).out)
        return found

    assert seen("13.0") == []  # no driver: nobody is asked
    (root / "dev/nvidiactl").touch()
    assert seen("13.0") == ["sm_80", "sm_90"]
    assert seen("") == []


@pytest.mark.gpu
def test_it_is_what_torch_sees() -> None:
    import torch

    if torch.version.cuda is None:
        pytest.skip("this is about NVIDIA's")
    chip, here = nvidia_chips()[0], torch.cuda.get_device_properties(0)

    assert chip.name == here.name
    assert chip.arch == f"sm_{here.major}{here.minor}"
    assert chip.memory_bytes == pytest.approx(here.total_memory, rel=0.05)


@pytest.mark.parametrize("node", ["nvidiactl", "kfd", "dxg", "nvhost-ctrl"])
def test_a_driver_is_found_also_where_nobody_lists_its_chips(tmp_path: Path, node: str) -> None:
    assert not has_driver(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / node).touch()
    assert has_driver(tmp_path)
