"""The real HIP runtimes on a machine without a GPU, in a separate folder.

Debian's packages of the runtime are unpacked there, with the C library and Python that they need. The model of a chip is built
from idle_gpu.c. The kernel that is launched is compiled by Triton for the chip that the topology describes.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hip.debian import Package, closure, package_list, unpack
from tests.hip.topology import write_topology

from rocsolid.prove.capture_answers import run_cases

HERE = Path(__file__).parent
CASES = str(HERE.parents[1] / "src/rocsolid/prove/capture_cases.py")
LIBRARIES = {"hip-6.4": "libamdhip64.so.6", "hip-7.2": "libamdhip64.so.7"}
WANTED = ("python3", "libamdhip64-6", "libamdhip64-7", "libhipblaslt1")
# The newer runtime, and the packages it needs in the same version; the older one runs on the same ROCr.
NEWER = ("libamdhip64-7", "libamd-comgr3", "libhsa-runtime64-1", "libhipblaslt1")
REPORTED = (*WANTED[1:], *NEWER, "libc6")
MODES = ("global", "thread_local", "relaxed")
DEADLINE_S = 240
_KERNEL = """
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def touch(pointer):
    tl.store(pointer, 1.0)


made = triton.compile(ASTSource(fn=touch, signature={"pointer": "*fp32"}), target=GPUTarget("hip", "gfx942", 64))
Path(sys.argv[1]).write_bytes(made.asm["hsaco"])
"""


@dataclass(frozen=True, kw_only=True)
class Rig:
    """A folder in which the runtimes run."""

    folder: Path
    versions: dict[str, str]

    def run(self, script: str, *args: str, stack_kb: int = 8192, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a script with the runtimes and a stack of this size; it is killed at the deadline."""
        root = self.folder / "root"
        libraries = root / "usr/lib/x86_64-linux-gnu"
        python = next((root / "usr/bin").glob("python3.[0-9]*"))
        start = [str(root / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", str(libraries), str(python), "-S"]
        limit = f'ulimit -s {stack_kb}; exec "$@"'
        return subprocess.run(
            ["sh", "-c", limit, "sh", *start, str(HERE / script), *args],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONHOME": str(root / "usr"),
                "PYTHONPATH": f"{HERE.parents[1]}:{HERE.parents[1] / 'src'}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "HSA_MODEL_LIB": str(self.folder / "libidle_gpu.so"),
                "HSA_MODEL_TOPOLOGY": str(self.folder / "topology"),
                "HSA_ENABLE_SDMA": "0",
                "HSA_ENABLE_INTERRUPT": "0",
                "HSA_ENABLE_DXG_DETECTION": "0",
                **environ,
            },
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    @property
    def kernel(self) -> str:
        return str(self.folder / "touch.hsaco")

    def measure(self, runtime: str, mode: str, cases: Sequence[str]) -> Iterator[dict[str, Any]]:
        """What the runtime did in each case; a case that kills the process is reported by its exit code."""
        return run_cases(lambda left: self.run(CASES, LIBRARIES[runtime], self.kernel, mode, *left), cases)


def missing_tool() -> str:
    """What the rig needs from this machine and does not find; empty when nothing is missing."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "the packages of the HIP runtime are for Linux on x86-64"
    if not (shutil.which("cc") or shutil.which("gcc")):
        return "a C compiler is needed to build the model of the chip"
    return ""


def make(folder: Path) -> Rig:
    """Set everything up, or use what is already there."""
    versions = folder / "versions.json"
    if not versions.exists():
        shutil.rmtree(folder / "root", ignore_errors=True)
        newer = package_list("experimental")
        known = {**package_list("sid"), **{name: newer[name] for name in NEWER}}
        packages = closure(WANTED, known)
        unpack(packages, folder / "root", folder / "packages")
        versions.write_text(json.dumps(_versions(packages), indent=1))
    write_topology(folder / "topology")
    compiler = shutil.which("cc") or "gcc"
    flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")
    built = str(folder / "libidle_gpu.so")
    subprocess.run([compiler, *flags, str(HERE / "idle_gpu.c"), "-o", built], check=True)
    source = folder / "kernel.py"
    source.write_text(_KERNEL)
    subprocess.run([sys.executable, str(source), str(folder / "touch.hsaco")], check=True)
    return Rig(folder=folder, versions=json.loads(versions.read_text()))


def _versions(packages: Sequence[Package]) -> dict[str, str]:
    return {package.name: package.version for package in packages if package.name in REPORTED}
