"""Take a snapshot of the machine."""

import datetime as dt
import os
import platform as python_platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocsolid.model.environment import (
    CheckResult,
    CheckStatus,
    Device,
    Environment,
    ProbeMode,
    SettingValue,
    TorchBuild,
)
from rocsolid.model.platform import Platform
from rocsolid.model.release import parts
from rocsolid.probe import devices as devices_
from rocsolid.probe import packages as packages_
from rocsolid.probe import settings as settings_
from rocsolid.probe.container import find_container, image_fingerprint
from rocsolid.probe.host import read_caches, read_host
from rocsolid.probe.pretended import pretended_build, pretended_chip, pretended_device
from rocsolid.probe.startup_files import startup_hooks
from rocsolid.probe.variables import relevant_variables
from rocsolid.process.run_command import Command, CommandResult, run_all_with_deadline


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """How to read the settings, and the environment and file system to probe."""

    mode: ProbeMode = ProbeMode.STATIC
    imports: Sequence[str] = ()  # packages that the live probe imports, to find the settings that they assign
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")  # the root of the file system; another folder in tests


def take_snapshot(options: ProbeOptions) -> Environment:
    """Probe the machine. What cannot be determined is not guessed but listed in `unknowns`."""
    installed = packages_.installed()
    folder = packages_.torch_folder()
    build, release_in_torch = packages_.describe_torch(folder, installed) if folder else (None, "")
    packages = packages_.reported_packages(installed)
    devices, tools = _devices(options)
    pretended = pretended_chip()
    if pretended:
        devices, release_in_torch = [pretended_device(pretended)], pretended.rocm
        build = pretended_build(pretended, build) if build else None
    settings, more_tools, unknowns = _settings(build, options)
    platform = _platform(build, devices)
    container = find_container(options.variables, options.root)
    rocm = packages_.rocm_release(build, release_in_torch, packages, options.root)
    return Environment(
        taken_at=dt.datetime.now(tz=dt.timezone.utc).isoformat(timespec="seconds"),
        probe_mode=options.mode,
        platform=platform,
        rocm_version=rocm if platform is Platform.ROCM else "",
        cuda_version=build.cuda if build else "",
        driver=next((d.driver for d in devices if d.driver), ""),
        python=python_platform.python_version(),
        torch=build,
        devices=tuple(devices),
        container=container,
        image_fingerprint=image_fingerprint(
            [build.version, build.git_commit, rocm] if build else [rocm], packages_.identity_files(build, options.root)
        ),
        host=read_host(options.variables, options.root),
        packages=packages,
        triton_copies=packages_.triton_copies(installed),
        libraries=packages_.library_copies(build, options.root),
        caches=tuple(read_caches(options.variables, platform)),
        variables=relevant_variables(options.variables),
        settings=settings,
        startup_hooks=tuple(startup_hooks()),
        tools=(*tools, *more_tools),
        unknowns=tuple(unknowns),
        pretended=str(pretended or ""),
    )


def _platform(build: TorchBuild | None, devices: Sequence[Device]) -> Platform:
    if build and build.hip:
        return Platform.ROCM
    if build and build.cuda:
        return Platform.CUDA
    if build:
        return Platform.CPU
    return devices[0].platform if devices else Platform.CPU


def _devices(options: ProbeOptions) -> tuple[list[Device], list[CheckResult]]:
    """Return all GPUs and the results of the vendors' tools; a tool runs only if the driver of its vendor is loaded."""
    amd = list(devices_.amd_devices(options.root))
    commands: list[Command] = []
    if amd:
        commands.append(devices_.ROCMINFO)
    if devices_.has_nvidia_driver(options.root):
        commands.append(devices_.NVIDIA_SMI)
    replies: dict[str, CommandResult] = {reply.check.name: reply for reply in run_all_with_deadline(commands)}
    tools = []
    if reply := replies.get(devices_.ROCMINFO.name):
        tools.append(devices_.check_rocminfo(reply, amd))
    nvidia: list[Device] = []
    if reply := replies.get(devices_.NVIDIA_SMI.name):
        nvidia = list(devices_.nvidia_devices(reply))
        tools.append(reply.check)
    return [*amd, *nvidia], [tool for tool in tools if tool.status is not CheckStatus.MISSING]


def _settings(
    build: TorchBuild | None, options: ProbeOptions
) -> tuple[dict[str, SettingValue], list[CheckResult], list[str]]:
    """Return the settings, the result of the live probe (if it ran), and what this probe mode could not determine."""
    if build is None:
        return {}, [], ["torch is not installed in this Python: no settings to read"]
    if len(parts(build.version)) < 2:  # noqa: PLR2004 - a version has at least two numbers
        return {}, [], [f"the version of torch in {build.folder} cannot be read: no settings to read"]
    tools, unknowns = [], []
    live = None
    if options.mode is ProbeMode.LIVE:
        result, live = settings_.read_in_fresh_interpreter(options.imports)
        tools.append(result)
        if live is None:
            unknowns.append(
                f"the live probe ended with status `{result.status.value}`: {result.detail}; "
                "settings are read from torch's source instead"
            )
        else:
            unknowns += [f"import {name} failed: {why}" for name, why in live.failed_imports.items()]
    elif options.mode is ProbeMode.THIS_PROCESS:
        live = settings_.read_in_this_process()
    settings, unreadable = settings_.read_settings(build, options.variables, live)
    if unreadable:
        unknowns.append(f"{len(unreadable)} settings that can only be read by importing torch: {', '.join(unreadable)}")
    if options.mode is ProbeMode.STATIC:
        unknowns.append("settings that start-up files and libraries assign (use --live to read them)")
    return settings, tools, unknowns
