"""The few facts a plan depends on, in a few milliseconds: platform, releases, chips."""

import datetime as dt
import platform as python_platform
import sys
from pathlib import Path

from rocsolid.model.environment import Environment, Route, TorchBuild
from rocsolid.model.platform import Platform
from rocsolid.probe.devices import amd_devices, has_nvidia_driver
from rocsolid.probe.nvml import nvidia_chips
from rocsolid.probe.packages import rocm_release, torch_folder, version_file
from rocsolid.probe.pretended import build_for, device_of, pretended


def surroundings(root: Path = Path("/")) -> Environment:
    """What torch is or would be here, asked of the running module when there is one, and the chips that drivers show."""
    build, named = _running() or _installed()
    devices = tuple(amd_devices(root))
    if (build is None or build.cuda) and has_nvidia_driver(root):
        devices += nvidia_chips()
    given = pretended()
    if given:
        devices, named = (device_of(given),), given.rocm
        build = build_for(given, build) if build else None
    if build:
        platform = Platform.ROCM if build.hip else Platform.CUDA if build.cuda else Platform.CPU
    else:
        platform = devices[0].platform if devices else Platform.CPU
    return Environment(
        taken_at=dt.datetime.now(tz=dt.timezone.utc).isoformat(timespec="seconds"),
        route=Route.STATIC,
        platform=platform,
        rocm_version=rocm_release(build, named, {}, root) if platform is Platform.ROCM else "",
        cuda_version=build.cuda if build else "",
        python=python_platform.python_version(),
        torch=build,
        devices=devices,
        pretended=str(given or ""),
    )


def _running() -> tuple[TorchBuild, str] | None:
    torch = sys.modules.get("torch")
    version = getattr(torch, "version", None)
    if version is None:
        return None
    said = {name: str(getattr(version, name, None) or "") for name in ("__version__", "hip", "cuda", "rocm")}
    return TorchBuild(version=said["__version__"], hip=said["hip"], cuda=said["cuda"]), said["rocm"]


def _installed() -> tuple[TorchBuild | None, str]:
    folder = torch_folder()
    if folder is None:
        return None, ""
    said = version_file(folder / "version.py")
    build = TorchBuild(version=said.get("__version__", ""), hip=said.get("hip", ""), cuda=said.get("cuda", ""))
    return build, said.get("rocm", "")
