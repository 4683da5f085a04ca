"""The pretended Triton driver has everything that the real one has, for both vendors and every release of Triton."""

import ast
import inspect
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.support import in_ci

from rocsolid.catalog.chips import chip
from rocsolid.torchapi.pretend.triton_driver import _make_driver, _metadata_number

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("triton") is None and not in_ci(), reason="Triton is not installed"),
]
RECORDED: dict[str, dict[str, dict[str, list[str]]]] = json.loads(
    (Path(__file__).parent / "triton_drivers.json").read_text(encoding="utf-8")
)  # by release, vendor and class
VENDORS = [("gfx942", "amd"), ("gfx1100", "amd"), ("sm_90", "nvidia")]


def assigned(cls: type) -> set[str]:
    """The attributes that the constructors of a class and its bases assign."""
    found: set[str] = set()
    for base in cls.__mro__[:-1]:
        tree = ast.parse(Path(inspect.getfile(base)).read_text())
        (body,) = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == base.__name__]
        functions = [node for node in body.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        targets = [
            target
            for function in functions
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
        ]
        found |= {t.attr for t in targets if isinstance(t, ast.Attribute) and ast.unparse(t.value) == "self"}
    return found


def set_by_constructors(vendor: str) -> dict[str, list[str]]:
    """What the constructors of the installed release assign; the pretended classes do not call them."""
    from triton.backends import backends

    driver = backends[vendor].driver
    module = sys.modules[driver.__module__]
    classes = {
        "driver": driver,
        **{k.lower(): c for name, c in vars(module).items() for k in ("Utils", "Launcher") if name.endswith(k)},
    }
    return {kind: sorted(assigned(cls)) for kind, cls in classes.items()}


@pytest.mark.parametrize("release", RECORDED)
@pytest.mark.parametrize(("arch", "vendor"), VENDORS)
def test_every_release_finds_what_its_constructors_assign(arch: str, vendor: str, release: str) -> None:
    driver = _make_driver(chip(arch))
    pretended = {"driver": driver, "utils": driver.utils, "launcher": driver.launcher_cls(None, None)}
    recorded = RECORDED[release][vendor]

    assert {"utils", "launcher_cls", "get_current_stream"} <= set(recorded["driver"])
    assert {"load_binary", "get_device_properties"} <= set(recorded["utils"])
    assert "launch" in recorded["launcher"]
    assert [f"{kind}.{n}" for kind, names in recorded.items() for n in names if not hasattr(pretended[kind], n)] == []


def test_the_installed_release_is_recorded() -> None:
    """A new release of Triton: add what this prints to triton_drivers.json, then complete the pretended classes."""
    import triton

    release = ".".join(triton.__version__.split("+")[0].split(".")[:2])

    assert RECORDED.get(release) == {vendor: set_by_constructors(vendor) for vendor in ("amd", "nvidia")}


@pytest.mark.parametrize(("arch", "vendor"), VENDORS)
def test_the_driver_has_every_method_of_the_real_one(arch: str, vendor: str) -> None:
    from triton.backends import backends

    real = backends[vendor].driver
    driver = _make_driver(chip(arch))

    assert isinstance(driver, real)
    assert [name for name in dir(real) if not hasattr(driver, name)] == []
    assert not driver.__abstractmethods__


@pytest.mark.parametrize(("arch", "vendor"), VENDORS)
def test_every_method_works_without_a_gpu(arch: str, vendor: str) -> None:
    driver: Any = _make_driver(chip(arch))
    target = driver.get_current_target()
    properties = driver.utils.get_device_properties(driver.get_current_device())

    assert (target.backend, target.warp_size) == ("hip" if vendor == "amd" else "cuda", chip(arch).wavefront_size)
    assert driver.is_active()
    assert str(driver.get_active_torch_device()) == "cuda:0"
    assert driver.map_python_to_cpp_type("i32") == "int32_t"
    assert driver.get_device_interface().__name__ == "torch.cuda"
    assert driver.get_device_capability(0) == chip(arch).capability
    assert properties["max_shared_mem"] == chip(arch).lds_bytes
    driver.clear_cache(driver.get_empty_cache_for_benchmark())
    calls: list[int] = []
    assert driver.get_benchmarker()(lambda: calls.append(1), quantiles=(0.5, 0.2, 0.8)) == [1.0, 1.0, 1.0]
    assert calls == [1]
    driver.launcher_cls(None, None)(1, 1, 1, 0, None)


@pytest.mark.parametrize(("arch", "vendor"), VENDORS)
def test_programs_find_one_active_backend(arch: str, vendor: str) -> None:
    """In a process of its own, because nothing is undone."""
    code = (
        "from triton.backends import backends\n"
        "from rocsolid.catalog.chips import chip\n"
        "from rocsolid.torchapi.pretend.triton_driver import pretend_triton_driver\n"
        f"pretend_triton_driver(chip({arch!r}))\n"
        "print([name for name, backend in backends.items() if backend.driver.is_active()])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout == f"['{vendor}']\n"


def test_reads_registers_from_an_object_file() -> None:
    assert _metadata_number(b"..\xab.vgpr_count\x2a\xb0", b".vgpr_count") == 42
    assert _metadata_number(b"..\xab.vgpr_count\xcd\x02\x00..", b".vgpr_count") == 512
    assert _metadata_number(b"\x7fELF", b".vgpr_count") == 0
