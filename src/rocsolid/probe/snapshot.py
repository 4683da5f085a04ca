"""Takes the snapshot."""

import datetime as dt
import os
import platform as python_platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocsolid.model.environment import Answer, Device, Ending, Environment, Observed, Route, TorchBuild
from rocsolid.model.platform import Platform
from rocsolid.model.release import parts
from rocsolid.probe import devices as devices_
from rocsolid.probe import packages as packages_
from rocsolid.probe import settings as settings_
from rocsolid.probe.container import content_id, find_container
from rocsolid.probe.host import read_caches, read_host
from rocsolid.probe.pretended import build_for, device_of, pretended
from rocsolid.probe.startup_files import startup_hooks
from rocsolid.probe.variables import concerning
from rocsolid.process.run_command import Command, CommandResult, run_all_with_deadline


@dataclass(frozen=True, kw_only=True)
class Look:
    """How and where to look."""

    route: Route = Route.STATIC
    imports: Sequence[str] = ()  # packages whose import is watched on the live route
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")


def take(look: Look) -> Environment:
    """Look once at everything; what cannot be found out is listed, never guessed."""
    installed = packages_.installed()
    folder = packages_.torch_folder()
    build, named_rocm = packages_.describe_torch(folder, installed) if folder else (None, "")
    packages = packages_.watched(installed)
    devices, tools = _devices(look)
    given = pretended()
    if given:
        devices, named_rocm = [device_of(given)], given.rocm
        build = build_for(given, build) if build else None
    settings, more_tools, gaps = _settings(build, look)
    platform = _platform(build, devices)
    container = find_container(look.variables, look.root)
    rocm = packages_.rocm_release(build, named_rocm, packages, look.root)
    return Environment(
        taken_at=dt.datetime.now(tz=dt.timezone.utc).isoformat(timespec="seconds"),
        route=look.route,
        platform=platform,
        rocm_version=rocm if platform is Platform.ROCM else "",
        cuda_version=build.cuda if build else "",
        driver=next((d.driver for d in devices if d.driver), ""),
        python=python_platform.python_version(),
        torch=build,
        devices=tuple(devices),
        container=container,
        content_id=content_id(
            [build.version, build.git, rocm] if build else [rocm], packages_.identity_files(build, look.root)
        ),
        host=read_host(look.variables, look.root),
        packages=packages,
        triton_copies=packages_.triton_copies(installed),
        libraries=packages_.library_copies(build, look.root),
        caches=tuple(read_caches(look.variables, platform)),
        variables=concerning(look.variables),
        settings=settings,
        hooks=tuple(startup_hooks()),
        tools=(*tools, *more_tools),
        gaps=tuple(gaps),
        pretended=str(given or ""),
    )


def _platform(build: TorchBuild | None, devices: Sequence[Device]) -> Platform:
    if build and build.hip:
        return Platform.ROCM
    if build and build.cuda:
        return Platform.CUDA
    if build:
        return Platform.CPU
    return devices[0].platform if devices else Platform.CPU


def _devices(look: Look) -> tuple[list[Device], list[Answer]]:
    """AMD's from the kernel, NVIDIA's from its tool; each vendor is asked only where its driver is loaded."""
    amd = list(devices_.amd_devices(look.root))
    questions: list[Command] = []
    if amd:
        questions.append(devices_.ROCMINFO)
    if devices_.has_nvidia_driver(look.root):
        questions.append(devices_.NVIDIA_SMI)
    replies: dict[str, CommandResult] = {reply.check.name: reply for reply in run_all_with_deadline(questions)}
    tools = []
    if reply := replies.get(devices_.ROCMINFO.name):
        tools.append(devices_.agreement(reply, amd))
    nvidia: list[Device] = []
    if reply := replies.get(devices_.NVIDIA_SMI.name):
        nvidia = list(devices_.nvidia_devices(reply))
        tools.append(reply.check)
    return [*amd, *nvidia], [tool for tool in tools if tool.ending is not Ending.MISSING]


def _settings(build: TorchBuild | None, look: Look) -> tuple[dict[str, Observed], list[Answer], list[str]]:
    """The settings by the route asked for, and what that route cannot see."""
    if build is None:
        return {}, [], ["torch is not installed for this Python: no settings to read"]
    if len(parts(build.version)) < 2:  # noqa: PLR2004 - a version has at least two numbers
        return {}, [], [f"torch in {build.folder} has no readable version: no settings to read"]
    tools, gaps = [], []
    live = None
    if look.route is Route.LIVE:
        answer, live = settings_.live_from_child(look.imports)
        tools.append(answer)
        if live is None:
            gaps.append(f"the live reading {answer.ending.value}: {answer.detail}; values are from the source instead")
        else:
            gaps += [f"import {name} failed: {why}" for name, why in live.failed.items()]
    elif look.route is Route.PROCESS:
        live = settings_.live_from_here()
    settings, missed = settings_.observe(build, look.variables, live)
    if missed:
        gaps.append(f"{len(missed)} settings can only be read by importing torch: {', '.join(missed)}")
    if look.route is Route.STATIC:
        gaps.append("what start-up files and libraries assign is seen only on the live route (--live)")
    return settings, tools, gaps
