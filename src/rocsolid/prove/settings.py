"""Checks that read: settings, profiles, variables in libraries, and source files that the catalogue cites."""

import importlib.util
import inspect
import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from rocsolid.catalog.claims import CITED
from rocsolid.catalog.registry import find, setting
from rocsolid.model.environment import Environment
from rocsolid.model.platform import Platform
from rocsolid.model.proof import Claim, ClaimResult, ClaimVerdict
from rocsolid.model.release import compare
from rocsolid.model.setting import Channel, Owner, Setting
from rocsolid.probe.packages import torch_folder
from rocsolid.prove.check import CannotDecide, Task, check, plain, result
from rocsolid.torchapi.config.source import UNREADABLE, Build, SourceEntry, read_configs

_NAME: Final = re.compile(r"`?\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b")
# Which files read a variable, by the start of its name. Library names are without `lib` and `.so`.
_READERS: Final = {
    ("HIP_", "AMD_", "DEBUG_", "GPU_", "HSA_", "ROCR_"): ("amdhip64", "hsa-runtime64", "amdocl64"),
    ("MIOPEN_",): ("MIOpen",),
    ("TRITON_", "AMDGCN_"): ("triton",),
    ("CUDA_",): ("amdhip64", "cuda", "cudart"),
    ("OMP_",): ("gomp", "omp", "iomp5", "torch_cpu"),
    ("",): ("torch", "c10", "c10_hip", "c10_cuda", "torch_hip", "torch_cuda", "torch_cpu"),
}
_ROCM_ONLY: Final = ("HIP_", "AMD_", "DEBUG_", "GPU_", "HSA_", "ROCR_", "MIOPEN_")


@check(
    "settings",
    "the installed torch has the setting, with this type, and its variable works as declared",
    rank=10,
    estimate_s=5,
)
def settings(task: Task) -> Iterator[ClaimResult]:
    """Read torch's config files, and compare each declaration with them."""
    folder, build = torch_folder(), task.env.torch
    if folder is None or build is None:
        msg = "torch is not installed"
        raise CannotDecide(msg)
    (entries,) = read_configs(
        folder, [{}], Build(version=build.version, hip=build.hip or None, cuda=build.cuda or None)
    )
    for claim in task.claims:
        named = claim.id.removeprefix("setting:") if claim.id.startswith("setting:") else "inductor.group_fusion"
        yield judge_setting(claim, setting(named), entries.get(named), task.env, folder)


def judge_setting(
    claim: Claim, declared: Setting, entry: SourceEntry | None, env: Environment, folder: Path
) -> ClaimResult:
    """Compare one declaration with the entry of torch's config file."""
    if declared.owner is Owner.COMPILE:
        import torch

        return result(claim, declared.name in inspect.signature(torch.compile).parameters, "argument of torch.compile")
    if not declared.valid.holds(env):
        if entry is not None and env.platform in (declared.valid.platforms or {env.platform}):
            return result(claim, False, f"declared for {declared.valid}, but this torch has it")
        return result(claim, ClaimVerdict.NOT_APPLICABLE, f"declared for {declared.valid}")
    if entry is None and declared.id == "inductor.compile_threads":
        return result(claim, True, "computed when torch's config is loaded")
    if entry is None:
        return result(claim, False, "this torch does not have the setting")
    if declared.no_effect:
        readers = [file.name for file in _python_files(folder) if f"config.{declared.name}" in _text(file)]
        return result(claim, not readers, f"read by {', '.join(readers)}" if readers else "no file of torch reads it")
    value = entry.value
    if value is not UNREADABLE and value is not None and not isinstance(value, declared.value_type):
        return result(claim, False, f"its default is {value!r}, declared as {declared.value_type.__name__}")
    variable = declared.variable
    if variable and variable.torch.holds(env.torch.version if env.torch else ""):
        names = entry.forcing_variables if variable.overrides_config else entry.variables
        if variable.name not in names:
            return result(claim, False, f"torch reads {names or 'no variable'}, declared: {variable.name}")
    return result(claim, True, f"default {value!r}", default=plain(value))


@check(
    "profiles",
    "the profile's plan contains the value, and torch's config has it while the plan is applied",
    rank=11,
    estimate_s=15,
)
def profiles(task: Task) -> Iterator[ClaimResult]:
    """Apply the plan of each profile, and read torch's config."""
    import rocsolid as rs
    from rocsolid.torchapi.config.live import imported_modules, read_entries
    from rocsolid.torchapi.config.scope import settings_scope

    with settings_scope({"inductor.max_autotune": False, "dynamo.verbose": False}):  # imports torch's config modules
        pass
    for profile in dict.fromkeys(claim.refs[1] for claim in task.claims):
        plan = rs.resolve(profile, task.env)
        with rs.apply(plan):
            entries = read_entries(imported_modules())
        for claim in (c for c in task.claims if c.refs[1] == profile):
            name, _, wanted = claim.refs
            decision = plan.get(name)
            if not claim.when.holds(task.env):
                yield result(claim, ClaimVerdict.NOT_APPLICABLE, f"stated for {claim.when}")
            elif decision is None:
                yield result(claim, False, f"the plan of {profile} does not contain {name}")
            elif decision.channel in (Channel.OPTION, Channel.SCOPE) and name in entries:
                with rs.apply(plan):
                    value = read_entries(imported_modules())[name].value
                yield result(claim, repr(value) == wanted, f"in effect: {value!r}", value=plain(value))
            else:
                yield result(claim, repr(decision.value) == wanted, f"in the plan: {decision.value!r}")


@check("variables", "a library or package that is installed here contains the variable's name", rank=12, estimate_s=30)
def variables(task: Task) -> Iterator[ClaimResult]:
    """Search the name of each variable in the files that should read it."""
    for claim in task.claims:
        names = [claim.id.removeprefix("setting:process.").partition("/")[0]] if claim.id.startswith("setting:") else []
        for name in names or dict.fromkeys(_NAME.findall(claim.statement.partition("We say")[0])):
            yield judge_variable(claim, name, task.env)
            break


def judge_variable(claim: Claim, name: str, env: Environment) -> ClaimResult:
    """Whether a file contains the name, as declared."""
    if name.startswith(_ROCM_ONLY) and env.platform is not Platform.ROCM:
        return result(claim, ClaimVerdict.NOT_APPLICABLE, "the libraries that read it are part of ROCm")
    files = list(_readers(name))
    if not files:
        return result(claim, ClaimVerdict.COULD_NOT_RUN, "none of the libraries that would read it was found")
    found = next((file.name for file in files if _contains(file, name)), "")
    declared = find(f"process.{name}")
    unread = bool(declared and declared.no_effect)
    if not found and not unread and declared and not declared.valid.holds(env):
        return result(claim, ClaimVerdict.NOT_APPLICABLE, f"declared for {declared.valid}")
    if not found and not unread and env.platform is Platform.CPU:
        return result(claim, ClaimVerdict.COULD_NOT_RUN, "not in this CPU build; the libraries for GPUs may read it")
    detail = f"{name} is in {found}" if found else f"{name} is in none of {len(files)} files"
    return result(claim, bool(found) != unread, detail, found=found)


def _readers(name: str) -> Iterator[Path]:
    stems = next(stems for prefixes, stems in _READERS.items() if name.startswith(prefixes))
    torch = torch_folder()
    for package in ("torch", "triton"):
        if package in stems and (spec := importlib.util.find_spec(package)) and spec.origin:
            yield from _python_files(Path(spec.origin).parent)
            yield from Path(spec.origin).parent.glob("_C/*.so")
    folders = [torch / "lib"] if torch else []
    folders += [*Path("/opt").glob("rocm*/lib"), Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu")]
    folders += sorted(torch.parent.glob("nvidia/*/lib")) if torch else []
    for stem in stems:
        yield from (file for folder in folders for file in sorted(folder.glob(f"lib{stem}*.so*"))[:1])


def _python_files(folder: Path) -> Iterable[Path]:
    return sorted(folder.rglob("*.py"))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _contains(file: Path, name: str) -> bool:
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(name.encode()) >= 0
    except (OSError, ValueError):  # ValueError: an empty file
        return False


@check(
    "cited-source",
    "the installed torch or Triton has the file and the symbol that the evidence cites",
    rank=13,
    estimate_s=5,
)
def cited_source(task: Task) -> Iterator[ClaimResult]:
    """Look up every cited file and symbol."""
    folders = {
        name: Path(spec.origin).parent
        for name in ("torch", "triton")
        if (spec := importlib.util.find_spec(name)) and spec.origin
    }
    versions = {"torch": task.env.torch.version if task.env.torch else "", "triton": _version("triton")}
    for claim in task.claims:
        yield judge_source(claim, folders, versions)


def judge_source(claim: Claim, folders: dict[str, Path], versions: dict[str, str]) -> ClaimResult:
    """Whether everything that the claim cites is in the installed files."""
    missing: list[str] = []
    elsewhere: list[str] = []
    for ref in claim.refs:
        match = CITED.fullmatch(ref)
        if match is None:
            continue
        project, release, path, symbol = match.groups()
        if project not in folders:
            return result(claim, ClaimVerdict.COULD_NOT_RUN, f"{project} is not installed")
        file = folders[project] / path
        words = [symbol.rpartition(".")[2]] if symbol and symbol not in ("to", "and", "in") else []
        if not file.exists() or any(word not in _text(file) for word in words):
            (missing if compare(versions[project], release) == 0 else elsewhere).append(ref)
    if missing:
        return result(claim, False, f"not found: {'; '.join(missing)}")
    if elsewhere:
        return result(
            claim, ClaimVerdict.NOT_APPLICABLE, f"another release is installed, without {'; '.join(elsewhere)}"
        )
    return result(claim, True, f"found: {'; '.join(claim.refs)}")


def _version(package: str) -> str:
    from importlib import metadata

    for name in (package, "pytorch-triton-rocm", "pytorch-triton"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""
