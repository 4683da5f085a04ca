"""Compare two probes."""

from collections.abc import Iterator, Mapping

from rocsolid.model.environment import Environment
from rocsolid.model.saved_probe import ProbeDifference, ProbeRecord, ValueChange


def compare_probes(before: ProbeRecord, after: ProbeRecord) -> ProbeDifference:
    """Return the facts, settings, variables and findings that changed."""
    old, new = before.environment, after.environment
    old_keys, new_keys = {f.key for f in before.findings}, {f.key for f in after.findings}
    return ProbeDifference(
        facts=tuple(_changes(_facts(old), _facts(new))),
        settings=tuple(_setting_changes(old, new)),
        variables=tuple(_changes(old.variables, new.variables)),
        gone_findings=tuple(f for f in before.findings if f.key not in new_keys),
        new_findings=tuple(f for f in after.findings if f.key not in old_keys),
    )


def _setting_changes(old: Environment, new: Environment) -> Iterator[ValueChange]:
    """Yield the settings whose values differ.

    A setting that only one of the two torch releases has is included only if it was changed from its default.
    """
    for change in _changes(old.setting_values, new.setting_values):
        in_both = change.name in old.settings and change.name in new.settings
        if in_both or any(env.settings[change.name].changed for env in (old, new) if change.name in env.settings):
            yield change


def _facts(env: Environment) -> dict[str, object]:
    return {
        "platform": env.platform.label,
        "python": env.python,
        "torch": env.torch_version,
        "torch commit": env.torch.git_commit if env.torch else "",
        "HIP": env.torch.hip if env.torch else "",
        "ROCm": env.rocm_version,
        "CUDA": env.cuda_version,
        "driver": env.driver,
        "devices": ", ".join(f"{d.name} ({d.arch})" for d in env.devices),
        "container": env.container.engine if env.container else "",
        "image": env.container.image if env.container else "",
        "image fingerprint": env.image_fingerprint,
        **env.packages,
        **{f"torch/{f.file}": f.integrity.value for f in (env.torch.files if env.torch else ())},
    }


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[ValueChange]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield ValueChange(name=name, before=old, after=new)
