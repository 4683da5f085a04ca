"""Find AMD GPUs in the files of the kernel driver, and NVIDIA GPUs with nvidia-smi. No vendor library is loaded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rocsolid.model.environment import CheckResult, CheckStatus, Device
from rocsolid.model.platform import Platform
from rocsolid.probe.read_file import children, read_text
from rocsolid.process.run_command import Command, CommandResult

NVIDIA_SMI = Command(
    name="nvidia-smi",
    command=("nvidia-smi", "--query-gpu=name,compute_cap,memory.total,driver_version", "--format=csv,noheader,nounits"),
)
ROCMINFO = Command(name="rocminfo", command=("rocminfo",))


def amd_devices(root: Path = Path("/")) -> Iterator[Device]:
    """Yield the GPUs that the kernel driver lists. This needs neither ROCm nor access to the GPU."""
    driver = read_text(root / "sys/module/amdgpu/version") or read_text(root / "sys/module/amdgpu/srcversion")
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    index = 0
    for node in sorted(children(nodes), key=lambda n: int(n.name) if n.name.isdigit() else 0):
        properties = _properties(node / "properties")
        target = properties.get("gfx_target_version", 0)
        if not target:
            continue  # this node is a CPU
        banks = (_properties(bank / "properties") for bank in children(node / "mem_banks"))
        yield Device(
            index=index,
            name=_product(root, properties.get("drm_render_minor", 0)) or gfx_name(target),
            arch=gfx_name(target),
            memory_bytes=sum(bank.get("size_in_bytes", 0) for bank in banks),
            platform=Platform.ROCM,
            driver=driver,
        )
        index += 1


def gfx_name(target: int) -> str:
    """The chip's name for a `gfx_target_version`: 90402 is gfx942, 90010 is gfx90a, 110000 is gfx1100."""
    major, minor, step = target // 10000, target // 100 % 100, target % 100
    return f"gfx{major}{minor:x}{step:x}"


def has_nvidia_driver(root: Path = Path("/")) -> bool:
    """Whether an NVIDIA driver is loaded."""
    return (root / "proc/driver/nvidia").exists() or (root / "dev/nvidiactl").exists()


def has_driver(root: Path = Path("/")) -> bool:
    """Whether any GPU driver is loaded, including the drivers of Jetson and WSL, which list no GPUs."""
    return has_nvidia_driver(root) or any((root / "dev" / name).exists() for name in ("kfd", "dxg", "nvhost-ctrl"))


def nvidia_devices(reply: CommandResult) -> Iterator[Device]:
    """Yield the devices in the output of nvidia-smi."""
    if reply.check.status is not CheckStatus.OK:
        return
    for index, line in enumerate(filter(None, map(str.strip, reply.stdout.splitlines()))):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 4:  # noqa: PLR2004 - the number of columns in the query
            continue
        name, capability, megabytes, driver = fields
        yield Device(
            index=index,
            name=name,
            arch=f"sm_{capability.replace('.', '')}",
            memory_bytes=int(float(megabytes) * 1024**2) if megabytes.replace(".", "").isdigit() else 0,
            platform=Platform.CUDA,
            driver=driver,
        )


def check_rocminfo(reply: CommandResult, devices: list[Device]) -> CheckResult:
    """Return the result of rocminfo. If it lists other chips than the kernel driver, `detail` names them."""
    result = reply.check
    if result.status is not CheckStatus.OK:
        return result
    listed = sorted(
        line.split()[-1]
        for line in reply.stdout.splitlines()
        if line.strip().startswith("Name:") and line.split()[-1].startswith("gfx")
    )
    expected = sorted(d.arch for d in devices)
    detail = ""
    if listed != expected:
        detail = (
            f"rocminfo lists {', '.join(listed) or 'no GPU'}, the kernel driver lists {', '.join(expected) or 'none'}"
        )
    return replace(result, detail=detail, measurements={"chips": listed})


def _product(root: Path, render_minor: int) -> str:
    return read_text(root / f"sys/class/drm/renderD{render_minor}/device/product_name") if render_minor else ""


def _properties(file: Path) -> dict[str, int]:
    pairs = (line.split() for line in read_text(file).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}  # noqa: PLR2004 - name, value
