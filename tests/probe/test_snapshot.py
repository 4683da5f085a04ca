"""Read a machine from files in a temporary folder."""

from pathlib import Path

import pytest
from tests.support import make_env

from rocsolid.model.environment import CheckResult, CheckStatus, Container, Device
from rocsolid.model.platform import Platform
from rocsolid.model.redact import HIDDEN
from rocsolid.probe import devices, packages
from rocsolid.probe.container import find_container, image_fingerprint
from rocsolid.probe.devices import amd_devices, check_rocminfo, gfx_name, nvidia_devices
from rocsolid.probe.host import read_caches, read_host
from rocsolid.probe.packages import installed, library_copies, reported_packages, rocm_release, triton_copies
from rocsolid.probe.snapshot import ProbeOptions, take_snapshot
from rocsolid.probe.startup_files import startup_hooks
from rocsolid.probe.variables import relevant_variables
from rocsolid.process.run_command import Command, CommandResult


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


MI300X = {
    "sys/module/amdgpu/version": "6.12.12\n",
    "sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 64\ngfx_target_version 0\n",
    "sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 90402\ndrm_render_minor 128\n",
    "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 206141652992\n",
    "sys/class/kfd/kfd/topology/nodes/2/properties": "gfx_target_version 90402\ndrm_render_minor 136\n",
    "sys/class/drm/renderD128/device/product_name": "AMD Instinct MI300X\n",
}


def test_reads_amd_gpus_from_the_kernel_files(tmp_path: Path) -> None:
    first, second = amd_devices(plant(tmp_path, MI300X))

    assert first == Device(
        index=0,
        name="AMD Instinct MI300X",
        arch="gfx942",
        memory_bytes=206141652992,
        platform=Platform.ROCM,
        driver="6.12.12",
    )
    assert (second.index, second.name) == (1, "gfx942")  # no product name: the name of the chip
    assert list(amd_devices(tmp_path / "elsewhere")) == []


@pytest.mark.parametrize(
    ("target", "name"),
    [(90402, "gfx942"), (90010, "gfx90a"), (90500, "gfx950"), (110000, "gfx1100"), (120001, "gfx1201")],
)
def test_gfx_name_matches_amds_names(target: int, name: str) -> None:
    assert gfx_name(target) == name


def reply(output: str, status: CheckStatus = CheckStatus.OK) -> CommandResult:
    return CommandResult(check=CheckResult(name="tool", status=status), stdout=output, stderr="")


def test_reads_nvidia_gpus_from_nvidia_smi() -> None:
    (device,) = nvidia_devices(reply("NVIDIA H200, 9.0, 143771, 580.159.04\nodd line\n"))

    assert (device.arch, device.memory_bytes, device.driver) == ("sm_90", 143771 * 1024**2, "580.159.04")
    assert list(nvidia_devices(reply("anything", CheckStatus.HUNG))) == []


def test_reports_that_rocminfo_and_the_kernel_disagree() -> None:
    chips = list(make_env(arch="gfx942").devices)

    assert check_rocminfo(reply("  Name:                    gfx942\n"), chips).detail == ""
    assert check_rocminfo(reply("ROCk module is NOT loaded\n"), chips).detail == (
        "rocminfo lists no GPU, the kernel driver lists gfx942"
    )
    assert check_rocminfo(reply("", CheckStatus.HUNG), chips).status is CheckStatus.HUNG


@pytest.mark.parametrize(
    ("files", "variables", "expected"),
    [
        ({}, {}, None),
        ({".dockerenv": ""}, {}, Container(engine="docker")),
        (
            {"run/.containerenv": 'engine="podman-4"\nimage="docker.io/rocm/pytorch:7"\nimageid="abc"\n'},
            {},
            Container(engine="podman", image="docker.io/rocm/pytorch:7", image_id="abc"),
        ),
        ({"run/.containerenv": ""}, {}, Container(engine="podman")),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Container(engine="kubernetes")),
        ({}, {"APPTAINER_CONTAINER": "/img/a.sif"}, Container(engine="apptainer", image="/img/a.sif")),
        ({".singularity.d/x": ""}, {}, Container(engine="apptainer")),
    ],
    ids=["bare", "docker", "podman, privileged", "podman", "kubernetes", "apptainer", "singularity"],
)
def test_recognises_container_engines(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str], expected: Container | None
) -> None:
    assert find_container(variables, plant(tmp_path, files)) == expected


def test_content_id_depends_on_versions_and_file_sizes(tmp_path: Path) -> None:
    plant(tmp_path, {"a.so": "1", "b.so": "22"})
    files = [tmp_path / "b.so", tmp_path / "a.so"]

    first = image_fingerprint(["2.13.0"], files)

    assert first == image_fingerprint(["2.13.0"], reversed(files))
    assert first != image_fingerprint(["2.12.0"], files)
    (tmp_path / "a.so").write_text("longer")
    assert first != image_fingerprint(["2.13.0"], files)


def test_reads_the_host_from_its_files(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "proc/sys/kernel/numa_balancing": "1\n",
            "proc/meminfo": "MemTotal:       16 kB\n",
            "sys/devices/system/node/node0/x": "",
            "sys/devices/system/node/node1/x": "",
            "dev/kfd": "",
            "proc/driver/nvidia/version": "x",
        },
    )
    host = read_host({"CXX": "no-such-compiler"}, root)

    assert (host.numa_balancing, host.numa_nodes, host.memory_bytes) == (True, 2, 16384)
    assert (host.kfd_access, host.nvidia_driver) == ("ok", True)
    assert set(host.limits) == {"open files", "stack bytes", "locked bytes", "processes"}
    bare = read_host({}, tmp_path / "elsewhere")
    assert (bare.numa_balancing, bare.kfd_access, bare.nvidia_driver) == (None, "", False)


def test_cache_folders_follow_their_variables(tmp_path: Path) -> None:
    given = {"HOME": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "USER": "me"}
    caches = {c.name: c for c in read_caches(given, Platform.ROCM)}

    assert caches["inductor"].folder == str(tmp_path / "inductor")
    assert caches["triton"].folder == str(tmp_path / ".triton/cache")
    assert caches["inductor"].writable
    assert set(caches) == {"inductor", "triton", "miopen", "miopen user db"}
    assert {c.name for c in read_caches(given, Platform.CPU)} == {"inductor", "triton"}


def test_finds_packages_without_importing_them(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "torch-2.13.0+rocm7.2.dist-info/METADATA": "",
            "pytorch_triton_rocm-3.5.1.dist-info/METADATA": "",
            "triton-3.7.1.dist-info/METADATA": "",
            "unheard_of-1.dist-info/METADATA": "",
        },
    )
    found = installed([str(tmp_path), "", str(tmp_path / "nowhere")])

    assert reported_packages(found) == {"pytorch-triton-rocm": "3.5.1", "torch": "2.13.0+rocm7.2", "triton": "3.7.1"}
    assert triton_copies(found) == ("triton 3.7.1", "pytorch-triton-rocm 3.5.1")


@pytest.mark.parametrize(
    ("hip", "version", "named", "file", "expected"),
    [
        ("7.2.53211", "2.13.0", "", "7.2.1-43\n", "7.2.1"),  # the installed release, which HIP agrees with
        ("7.2.53211", "2.13.0", "", "6.4.0\n", "7.2"),  # not the release that torch was built with
        ("7.2.53211", "2.13.0+rocm7.2.3", "", "", "7.2.3"),
        ("7.2.53211", "2.13.0", "7.2.4", "", "7.2.4"),
        ("7.14.60850", "2.15.0+rocm7.14.0", "", "", "7.14.0"),
        ("7.14.60850", "2.15.0", "", "7.1.4-12\n", "7.14"),  # 7.1.4 is another release
        ("10.2.70011", "2.15.0", "10.2.0a20261101", "", "10.2.0"),
        ("10.0.70000", "2.15.0+rocm10.0", "", "10.0.1-3\n", "10.0.1"),
        ("", "2.13.0", "", "", ""),
    ],
)
def test_finds_the_most_precise_rocm_release(
    tmp_path: Path, hip: str, version: str, named: str, file: str, expected: str
) -> None:
    from rocsolid.model.environment import TorchBuild

    root = plant(tmp_path, {"opt/rocm/.info/version": file} if file else {})

    assert rocm_release(TorchBuild(version=version, hip=hip), named, {}, root) == expected


def test_counts_each_copy_of_a_vendor_library_once(tmp_path: Path) -> None:
    from rocsolid.model.environment import TorchBuild

    plant(tmp_path, {"opt/rocm-7.2/lib/libamd_smi.so.26": "a", "site/amdsmi/libamd_smi.so": "b", "site/torch/x": ""})
    (tmp_path / "opt/rocm-7.2/lib/libamd_smi.so").symlink_to("libamd_smi.so.26")
    copies = library_copies(TorchBuild(version="2.13.0", folder=str(tmp_path / "site/torch")), tmp_path)

    assert len(copies["libamd_smi"]) == 2


def test_lists_startup_files(tmp_path: Path) -> None:
    plant(tmp_path, {"sitecustomize.py": "", "usercustomize.py": ""})

    assert [h.kind for h in startup_hooks([str(tmp_path)])] == ["sitecustomize", "usercustomize"]


def test_hides_secret_variables() -> None:
    seen = relevant_variables(
        {
            "TORCHINDUCTOR_REDIS_URL": "redis://me:pass@host:1/0",
            "TORCH_API_TOKEN": "s3cret",
            "TORCH_PASSWORD": "s3cret",
            "TORCH_CREDENTIALS": "s3cret",
            "TORCH_TRACE_URL": "https://host/x?token=abc&y=1",
            "TORCHINDUCTOR_DISABLED_PASSES": "a,b",
            "PATH": "/bin",
            "HIP_VISIBLE_DEVICES": "0",
        }
    )

    assert seen == {
        "HIP_VISIBLE_DEVICES": "0",
        "TORCHINDUCTOR_REDIS_URL": "redis://host:1/0",
        "TORCHINDUCTOR_DISABLED_PASSES": "a,b",
        "TORCH_API_TOKEN": HIDDEN,
        "TORCH_PASSWORD": HIDDEN,
        "TORCH_CREDENTIALS": HIDDEN,
        "TORCH_TRACE_URL": f"https://host/x?token={HIDDEN}&y=1",
    }


def test_describes_a_machine_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "torch_folder", lambda: None)
    env = take_snapshot(ProbeOptions(variables={}, root=plant(tmp_path, MI300X)))

    assert env.torch is None
    assert env.platform is Platform.ROCM
    assert env.unknowns == ("torch is not installed in this Python: no settings to read",)


def test_survives_a_vendor_tool_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rocminfo that never ends, on a machine with the files of an AMD driver."""
    tool = tmp_path / "bin/rocminfo"
    plant(tmp_path, {"bin/rocminfo": "#!/bin/sh\ntrap '' TERM\nsleep 60\n"})
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(devices, "ROCMINFO", Command(name="rocminfo", command=("rocminfo",), deadline_s=0.5))
    env = take_snapshot(ProbeOptions(variables={}, root=plant(tmp_path, MI300X)))

    (result,) = [t for t in env.tools if t.name == "rocminfo"]
    assert result.status is CheckStatus.HUNG
    assert len(env.devices) == 2
