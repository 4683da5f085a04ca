"""Find installed packages, and describe torch from its files, without importing anything."""

import ast
import base64
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rocsolid.model.environment import ConfigFile, Integrity, TorchBuild
from rocsolid.model.release import parts
from rocsolid.probe.read_file import children, read_text
from rocsolid.torchapi.config.source import CONFIG_FILES
from rocsolid.torchapi.config.upstream import UpstreamRelease, upstream

# The packages whose versions the probe reports.
REPORTED = (
    "aiter", "amd-aiter", "amdsmi", "ck4inductor", "composable-kernel", "flash-attn", "numpy", "pytorch-triton",
    "pytorch-triton-rocm", "rocm", "rocm-sdk-core", "rocm-sdk-devel", "sglang", "torch", "torchao", "torchaudio",
    "torchvision", "transformers", "triton", "triton-rocm", "vllm",
)  # fmt: skip
_TRITONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm", "triton-nightly")
_LIBRARIES = ("libamdhip64", "libamd_smi", "libhipblaslt", "librocblas", "libMIOpen", "librccl")


def installed(path: Iterable[str] | None = None) -> dict[str, tuple[str, Path]]:
    """Version and metadata folder by normalised name; the first on the path wins, as for an import."""
    found: dict[str, tuple[str, Path]] = {}
    for folder in sys.path if path is None else path:
        for info in children(Path(folder)) if folder else []:
            if info.suffix in (".dist-info", ".egg-info"):
                name, _, version = info.stem.partition("-")
                found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), (version.partition("-")[0], info))
    return found


def reported_packages(packages: Mapping[str, tuple[str, Path]]) -> dict[str, str]:
    """The versions of the packages in REPORTED."""
    return {name: packages[name][0] for name in REPORTED if name in packages}


def triton_copies(packages: Mapping[str, tuple[str, Path]]) -> tuple[str, ...]:
    """The distributions that install a package called `triton`; two of them overwrite each other's files."""
    return tuple(f"{name} {packages[name][0]}" for name in _TRITONS if name in packages)


def torch_folder() -> Path | None:
    """The folder that `import torch` would load from; None when torch is not installed."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec and spec.origin else None


def describe_torch(folder: Path, packages: Mapping[str, tuple[str, Path]]) -> tuple[TorchBuild, str]:
    """The build that torch/version.py describes, and the ROCm release in that file, if any."""
    fields = read_version_file(folder / "version.py")
    version = fields.get("__version__", "")
    table = upstream(version)
    info = packages["torch"][1] if "torch" in packages else None
    build = TorchBuild(
        version=version,
        hip=fields.get("hip", ""),
        cuda=fields.get("cuda", ""),
        git=fields.get("git_version", ""),
        folder=str(folder),
        files=tuple(_integrity(folder, info, table)),
        known_release=table.release if table else "",
        pinned=tuple(_pins(info)),
    )
    return build, fields.get("rocm", "")


def rocm_release(build: TorchBuild | None, named: str, packages: Mapping[str, str], root: Path = Path("/")) -> str:
    """The ROCm release in use, as precisely as it can be determined.

    The third number of `torch.version.hip` is a build number, not the patch level. So only its first two numbers are
    used, and the other sources count only when they agree with them.
    """
    hip = ".".join(map(str, parts(build.hip)[:2])) if build else ""
    tag = re.search(r"\+rocm([\d.]+)", build.version) if build else None
    candidates = [
        named,
        tag[1] if tag else "",
        packages.get("rocm-sdk-core", ""),
        *(read_text(info) for info in _rocm_files(root)),
    ]
    known = [".".join(map(str, parts(text))) for text in candidates if parts(text)]
    agreeing = [text for text in known if not hip or parts(text)[:2] == parts(hip)]
    return max(agreeing, key=lambda text: len(parts(text)), default=hip)


def library_copies(build: TorchBuild | None, root: Path = Path("/")) -> dict[str, tuple[str, ...]]:
    """All copies of vendor libraries where a loader looks; two copies of one library in a process conflict."""
    folders = [*sorted(root.glob("opt/rocm*/lib"))]
    if build:
        torch = Path(build.folder)
        folders += [torch / "lib", torch.parent / "amdsmi", torch.parent / "_rocm_sdk_core/lib"]
    found: dict[str, set[Path]] = {}
    for folder in folders:
        for file in children(folder):
            name = file.name.partition(".so")[0]
            if name in _LIBRARIES and ".so" in file.name:
                found.setdefault(name, set()).add(file.resolve())  # symlinks to one file are one copy
    return {name: tuple(sorted(map(str, copies))) for name, copies in sorted(found.items())}


def identity_files(build: TorchBuild | None, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the files whose names and sizes identify an image (see `content_id`)."""
    yield from _rocm_files(root)
    if build:
        yield from (f for f in children(Path(build.folder) / "lib") if ".so" in f.name)


def _rocm_files(root: Path) -> list[Path]:
    return sorted({f.resolve() for f in root.glob("opt/rocm*/.info/version")})


def read_version_file(file: Path) -> dict[str, str]:
    """The string assignments of a version.py, annotated or not."""
    try:
        tree = ast.parse(read_text(file))
    except SyntaxError:
        return {}
    fields = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                fields[name] = text
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text))):
                fields[name] = text
    return fields


def _pins(info: Path | None) -> Iterator[str]:
    """Yield the Triton requirement in torch's metadata."""
    for line in read_text(info / "METADATA").splitlines() if info else ():
        if match := re.match(r"Requires-Dist: ([\w-]*triton[\w-]*) ?\(?==([\w.+]+)", line):
            yield f"{match[1]}=={match[2]}"


def _integrity(folder: Path, info: Path | None, table: UpstreamRelease | None) -> Iterator[ConfigFile]:
    recorded = _record(info)
    for owner, file in CONFIG_FILES.items():
        try:
            data = (folder / file).read_bytes()
        except OSError:
            continue
        digest = hashlib.sha256(data)
        record = recorded.get(f"torch/{file}", "")
        if table and table.digests.get(owner) == digest.hexdigest():
            integrity = Integrity.RELEASED
        elif record:
            actual = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
            integrity = Integrity.RECORDED if record == actual else Integrity.CHANGED
        else:
            integrity = Integrity.DIFFERENT if table else Integrity.UNKNOWN
        yield ConfigFile(owner=owner, file=file, integrity=integrity, digest=digest.hexdigest())


def _record(info: Path | None) -> dict[str, str]:
    """SHA-256 by file from the RECORD of torch's wheel; some images ship it empty."""
    text = read_text(info / "RECORD") if info else ""
    wanted = {f"torch/{file}" for file in CONFIG_FILES.values()}
    rows = (line.split(",") for line in text.splitlines() if line.partition(",")[0] in wanted)
    return {row[0]: row[1].removeprefix("sha256=") for row in rows if len(row) > 1 and row[1].startswith("sha256=")}
