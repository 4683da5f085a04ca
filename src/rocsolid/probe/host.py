"""Read facts about the machine that matter for compiles: memory, limits, compiler, cache folders."""

import os
import platform
import resource
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rocsolid.catalog import cache_folders
from rocsolid.model.environment import CacheFolder, Host
from rocsolid.model.platform import Platform
from rocsolid.probe.read_file import read_text

_LIMITS = {
    "open files": resource.RLIMIT_NOFILE,
    "stack bytes": resource.RLIMIT_STACK,
    "locked bytes": resource.RLIMIT_MEMLOCK,
    "processes": resource.RLIMIT_NPROC,
}


def read_host(variables: Mapping[str, str], root: Path = Path("/")) -> Host:
    """Read cores, memory, limits, compiler and access to the GPU."""
    numa_balancing = read_text(root / "proc/sys/kernel/numa_balancing")
    kfd = root / "dev/kfd"
    return Host(
        system=f"{platform.system()} {platform.release()}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        memory_bytes=_total_memory(root),
        shared_memory_bytes=_free_bytes(root / "dev/shm"),
        numa_nodes=sum(1 for _ in (root / "sys/devices/system/node").glob("node[0-9]*")),
        numa_balancing=numa_balancing != "0" if numa_balancing else None,
        compiler=_compiler(variables),
        limits={name: _soft_limit(resource_id) for name, resource_id in _LIMITS.items()},
        kfd_access="" if not kfd.exists() else "ok" if os.access(kfd, os.R_OK | os.W_OK) else "denied",
        nvidia_driver=(root / "proc/driver/nvidia/version").exists(),
    )


def read_caches(variables: Mapping[str, str], torch_platform: Platform) -> Iterator[CacheFolder]:
    """Yield the folders that hold compiled code, with the free space of each."""
    home = Path(variables.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises without a home
    inductor = Path(
        variables.get(cache_folders.INDUCTOR)
        or Path(tempfile.gettempdir()) / f"torchinductor_{variables.get('USER') or _user_name()}"
    )
    folders = {"inductor": inductor, "triton": Path(variables.get(cache_folders.TRITON) or home / ".triton/cache")}
    if torch_platform is Platform.ROCM:
        folders["miopen"] = Path(variables.get("MIOPEN_CUSTOM_CACHE_DIR") or home / ".cache/miopen")
        folders["miopen user db"] = Path(variables.get("MIOPEN_USER_DB_PATH") or home / ".config/miopen")
    for name, folder in folders.items():
        existing = next((f for f in (folder, *folder.parents) if f.exists()), None)  # torch creates missing folders
        yield CacheFolder(
            name=name,
            folder=str(folder),
            free_bytes=_free_bytes(existing) if existing else None,
            writable=existing is not None and os.access(existing, os.W_OK),
        )


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user id without a name
        return str(os.getuid())


def _compiler(variables: Mapping[str, str]) -> str:
    """The C++ compiler that Inductor would use."""
    for name in (variables.get("CXX", ""), "g++", "clang++", "c++"):
        if name and (found := shutil.which(name)):
            return found
    return ""


def _total_memory(root: Path) -> int:
    for line in read_text(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _soft_limit(resource_id: int) -> int | None:
    """The soft limit; None means unlimited."""
    limit = resource.getrlimit(resource_id)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
