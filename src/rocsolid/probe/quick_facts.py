"""Read only the facts that a plan depends on (platform, releases, GPUs). This takes a few milliseconds."""

import datetime as dt
import platform as python_platform
import sys
from pathlib import Path

from rocsolid.model.environment import Environment, ProbeMode, TorchBuild
from rocsolid.model.platform import Platform
from rocsolid.new_torch import check_new_torch
from rocsolid.probe.devices import amd_devices, has_nvidia_driver
from rocsolid.probe.nvml import nvml_devices
from rocsolid.probe.packages import read_version_file, rocm_release, torch_folder
from rocsolid.probe.pretended import pretended_build, pretended_chip, pretended_device


def quick_environment(root: Path = Path("/")) -> Environment:
    """Return the torch build, from the imported module or the installed files, and the GPUs that the drivers list.

    Every call that uses torch's private names starts here, so a torch that rocsolid does not know is probed here.
    """
    check_new_torch()
    build, release_in_torch = _imported_torch() or _installed_torch()
    devices = tuple(amd_devices(root))
    if (build is None or build.cuda) and has_nvidia_driver(root):
        devices += nvml_devices()
    pretended = pretended_chip()
    if pretended:
        devices, release_in_torch = (pretended_device(pretended),), pretended.rocm
        build = pretended_build(pretended, build) if build else None
    if build:
        platform = Platform.ROCM if build.hip else Platform.CUDA if build.cuda else Platform.CPU
    else:
        platform = devices[0].platform if devices else Platform.CPU
    return Environment(
        taken_at=dt.datetime.now(tz=dt.timezone.utc).isoformat(timespec="seconds"),
        probe_mode=ProbeMode.STATIC,
        platform=platform,
        rocm_version=rocm_release(build, release_in_torch, {}, root) if platform is Platform.ROCM else "",
        cuda_version=build.cuda if build else "",
        python=python_platform.python_version(),
        torch=build,
        devices=devices,
        pretended=str(pretended or ""),
    )


def _imported_torch() -> tuple[TorchBuild, str] | None:
    torch = sys.modules.get("torch")
    version = getattr(torch, "version", None)
    if version is None:
        return None
    fields = {name: str(getattr(version, name, None) or "") for name in ("__version__", "hip", "cuda", "rocm")}
    return TorchBuild(version=fields["__version__"], hip=fields["hip"], cuda=fields["cuda"]), fields["rocm"]


def _installed_torch() -> tuple[TorchBuild | None, str]:
    folder = torch_folder()
    if folder is None:
        return None, ""
    fields = read_version_file(folder / "version.py")
    build = TorchBuild(version=fields.get("__version__", ""), hip=fields.get("hip", ""), cuda=fields.get("cuda", ""))
    return build, fields.get("rocm", "")
