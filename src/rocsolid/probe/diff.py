"""Compares two probes."""

from collections.abc import Iterator, Mapping

from rocsolid.model.environment import Environment
from rocsolid.model.saved_probe import Change, Difference, ProbeRecord


def difference(before: ProbeRecord, after: ProbeRecord) -> Difference:
    """What changed: facts, settings, variables, findings."""
    old, new = before.environment, after.environment
    old_keys, new_keys = {f.key for f in before.findings}, {f.key for f in after.findings}
    return Difference(
        facts=tuple(_changes(_facts(old), _facts(new))),
        settings=tuple(_setting_changes(old, new)),
        variables=tuple(_changes(old.variables, new.variables)),
        gone=tuple(f for f in before.findings if f.key not in new_keys),
        new=tuple(f for f in after.findings if f.key not in old_keys),
    )


def _setting_changes(old: Environment, new: Environment) -> Iterator[Change]:
    """Values that differ; a setting that one of the releases does not have matters only when somebody moved it."""
    for change in _changes(old.values, new.values):
        both = change.what in old.settings and change.what in new.settings
        moved = [env.settings[change.what].moved for env in (old, new) if change.what in env.settings]
        if both or any(moved):
            yield change


def _facts(env: Environment) -> dict[str, object]:
    return {
        "platform": env.platform.label,
        "python": env.python,
        "torch": env.torch_version,
        "torch commit": env.torch.git if env.torch else "",
        "HIP": env.torch.hip if env.torch else "",
        "ROCm": env.rocm_version,
        "CUDA": env.cuda_version,
        "driver": env.driver,
        "devices": ", ".join(f"{d.name} ({d.arch})" for d in env.devices),
        "container": env.container.engine if env.container else "",
        "image": env.container.image if env.container else "",
        "contents": env.content_id,
        **env.packages,
        **{f"torch/{f.file}": f.integrity.value for f in (env.torch.files if env.torch else ())},
    }


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[Change]:
    for what in sorted(before.keys() | after.keys()):
        one, other = before.get(what), after.get(what)
        if one != other:
            yield Change(what=what, before=one, after=other)
