"""Find the installed packages, and describe the installed torch from its files. Nothing is imported."""

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
REPORTED_PACKAGES = (
    "aiter", "amd-aiter", "amdsmi", "ck4inductor", "composable-kernel", "flash-attn", "numpy", "pytorch-triton",
    "pytorch-triton-rocm", "rocm", "rocm-sdk-core", "rocm-sdk-devel", "sglang", "torch", "torchao", "torchaudio",
    "torchvision", "transformers", "triton", "triton-rocm", "vllm",
)  # fmt: skip
_TRITON_DISTRIBUTIONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm", "triton-nightly")
_VENDOR_LIBRARIES = ("libamdhip64", "libamd_smi", "libhipblaslt", "librocblas", "libMIOpen", "librccl")


def installed(path: Iterable[str] | None = None) -> dict[str, tuple[str, Path]]:
    """Version and metadata folder of each package, by normalised name.

    If a package is installed twice, the copy that comes first on the path is used, as for an import.
    """
    packages: dict[str, tuple[str, Path]] = {}
    for folder in sys.path if path is None else path:
        for metadata in children(Path(folder)) if folder else []:
            if metadata.suffix in (".dist-info", ".egg-info"):
                name, _, version = metadata.stem.partition("-")
                packages.setdefault(re.sub(r"[-_.]+", "-", name).lower(), (version.partition("-")[0], metadata))
    return packages


def reported_packages(packages: Mapping[str, tuple[str, Path]]) -> dict[str, str]:
    """The versions of the packages in REPORTED_PACKAGES."""
    return {name: packages[name][0] for name in REPORTED_PACKAGES if name in packages}


def triton_copies(packages: Mapping[str, tuple[str, Path]]) -> tuple[str, ...]:
    """The distributions that install a package called `triton`; two of them overwrite each other's files."""
    return tuple(f"{name} {packages[name][0]}" for name in _TRITON_DISTRIBUTIONS if name in packages)


def torch_folder() -> Path | None:
    """The folder that `import torch` would load from; None when torch is not installed."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec and spec.origin else None


def describe_torch(folder: Path, packages: Mapping[str, tuple[str, Path]]) -> tuple[TorchBuild, str]:
    """Return the build that torch/version.py describes, and the ROCm release in that file (empty if there is none)."""
    fields = read_version_file(folder / "version.py")
    version = fields.get("__version__", "")
    release = upstream(version)
    metadata = packages["torch"][1] if "torch" in packages else None
    build = TorchBuild(
        version=version,
        hip=fields.get("hip", ""),
        cuda=fields.get("cuda", ""),
        git_commit=fields.get("git_version", ""),
        folder=str(folder),
        files=tuple(_config_files(folder, metadata, release)),
        known_release=release.release if release else "",
        required_triton=tuple(_triton_requirements(metadata)),
    )
    return build, fields.get("rocm", "")


def rocm_release(
    build: TorchBuild | None, release_in_torch: str, packages: Mapping[str, str], root: Path = Path("/")
) -> str:
    """The ROCm release in use, as precisely as it can be determined.

    The third number of `torch.version.hip` is a build number, not the patch level. So only its first two numbers are
    used. The other sources (version.py, the local version tag, packages, /opt/rocm) are used only if they agree with
    these two numbers.
    """
    hip = ".".join(map(str, parts(build.hip)[:2])) if build else ""
    tag = re.search(r"\+rocm([\d.]+)", build.version) if build else None
    candidates = [
        release_in_torch,
        tag[1] if tag else "",
        packages.get("rocm-sdk-core", ""),
        *(read_text(file) for file in _rocm_files(root)),
    ]
    releases = [".".join(map(str, parts(text))) for text in candidates if parts(text)]
    agreeing = [text for text in releases if not hip or parts(text)[:2] == parts(hip)]
    return max(agreeing, key=lambda text: len(parts(text)), default=hip)


def library_copies(build: TorchBuild | None, root: Path = Path("/")) -> dict[str, tuple[str, ...]]:
    """The copies of each vendor library in the folders of ROCm and torch; two copies in one process conflict."""
    folders = [*sorted(root.glob("opt/rocm*/lib"))]
    if build:
        torch = Path(build.folder)
        folders += [torch / "lib", torch.parent / "amdsmi", torch.parent / "_rocm_sdk_core/lib"]
    copies_by_name: dict[str, set[Path]] = {}
    for folder in folders:
        for file in children(folder):
            name = file.name.partition(".so")[0]
            if name in _VENDOR_LIBRARIES and ".so" in file.name:
                copies_by_name.setdefault(name, set()).add(file.resolve())  # links to the same file are one copy
    return {name: tuple(sorted(map(str, copies))) for name, copies in sorted(copies_by_name.items())}


def identity_files(build: TorchBuild | None, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the files whose names and sizes identify an image (see `image_fingerprint`)."""
    yield from _rocm_files(root)
    if build:
        yield from (f for f in children(Path(build.folder) / "lib") if ".so" in f.name)


def _rocm_files(root: Path) -> list[Path]:
    return sorted({f.resolve() for f in root.glob("opt/rocm*/.info/version")})


def read_version_file(file: Path) -> dict[str, str]:
    """The strings that a version.py assigns, by name; with and without annotations."""
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


def _triton_requirements(metadata: Path | None) -> Iterator[str]:
    """Yield the Triton that torch's metadata requires, as name==version."""
    for line in read_text(metadata / "METADATA").splitlines() if metadata else ():
        if match := re.match(r"Requires-Dist: ([\w-]*triton[\w-]*) ?\(?==([\w.+]+)", line):
            yield f"{match[1]}=={match[2]}"


def _config_files(folder: Path, metadata: Path | None, release: UpstreamRelease | None) -> Iterator[ConfigFile]:
    recorded_hashes = _recorded_hashes(metadata)
    for owner, file in CONFIG_FILES.items():
        try:
            data = (folder / file).read_bytes()
        except OSError:
            continue
        digest = hashlib.sha256(data)
        recorded = recorded_hashes.get(f"torch/{file}", "")
        if release and release.digests.get(owner) == digest.hexdigest():
            integrity = Integrity.RELEASED
        elif recorded:
            actual = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
            integrity = Integrity.RECORDED if recorded == actual else Integrity.DIFFERS_FROM_WHEEL
        else:
            integrity = Integrity.DIFFERS_FROM_RELEASE if release else Integrity.UNKNOWN
        yield ConfigFile(owner=owner, file=file, integrity=integrity, digest=digest.hexdigest())


def _recorded_hashes(metadata: Path | None) -> dict[str, str]:
    """The SHA-256 of each config file in the RECORD of torch's wheel, by path; in some images the RECORD is empty."""
    text = read_text(metadata / "RECORD") if metadata else ""
    wanted = {f"torch/{file}" for file in CONFIG_FILES.values()}
    rows = (line.split(",") for line in text.splitlines() if line.partition(",")[0] in wanted)
    return {row[0]: row[1].removeprefix("sha256=") for row in rows if len(row) > 1 and row[1].startswith("sha256=")}
