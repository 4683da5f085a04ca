"""Write src/rocsolid/torchapi/config/upstream.json from official torch wheels.

    python scripts/gather_upstream.py torch-2.9.0-*.whl torch-2.13.0-*.whl …

The config files are the same in the wheels of all platforms; those for macOS are the smallest:

    pip download --no-deps --only-binary=:all: --platform macosx_14_0_arm64 --python-version 3.11 torch==2.13.0
"""

import hashlib
import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from unittest import mock

from rocsolid.model.release import parts
from rocsolid.torchapi.config.source import CONFIG_FILES, UNREADABLE, Build, SourceEntry, read_configs
from rocsolid.torchapi.config.upstream import to_json_value

TABLE = Path(__file__).parents[1] / "src/rocsolid/torchapi/config/upstream.json"
JSON_TYPES = (bool, int, float, str, type(None), list, dict)


def main() -> None:
    """Evaluate the given wheels and write the table, oldest release first."""
    wheels = {Path(wheel).name.split("-")[1]: Path(wheel) for wheel in sys.argv[1:]}
    rows: list[dict[str, object]] = []
    before: dict[str, object] = {}
    for release in sorted(wheels, key=parts):
        digests, values, hip = read_wheel(wheels[release], release)
        rows.append(
            {
                "release": release,
                "digests": digests,
                "set": {k: v for k, v in values.items() if k not in before or before[k] != v},
                "gone": sorted(before.keys() - values.keys()),
                "hip": {k: v for k, v in hip.items() if k not in values or values[k] != v},
            }
        )
        before = values
    TABLE.write_text(json.dumps({"releases": rows}, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def read_wheel(wheel: Path, release: str) -> tuple[dict[str, str], dict[str, object], dict[str, object]]:
    """Digests of the config files, defaults, and defaults of a ROCm build."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        torch_dir = Path(folder) / "torch"
        digests = {}
        for owner, file in CONFIG_FILES.items():
            digests[owner] = hashlib.sha256(archive.read(f"torch/{file}")).hexdigest()
            archive.extract(f"torch/{file}", folder)
        values = stable_defaults(torch_dir, Build(version=release))
        hip = stable_defaults(torch_dir, Build(version=release, hip="7.0.0"))
    return digests, values, hip


def stable_defaults(torch_dir: Path, build: Build) -> dict[str, object]:
    """The defaults that do not depend on the machine: equal when evaluated for two different fake machines."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first = evaluate(torch_dir, build, Path(one), cores=2)
        second = evaluate(torch_dir, build, Path(two), cores=3)
    return {name: value for name, value in first.items() if second.get(name) == value}


def evaluate(torch_dir: Path, build: Build, folder: Path, cores: int) -> dict[str, object]:
    """Every default as JSON data, for a machine with this temporary folder and number of cores."""
    home = Path.cwd()
    os.chdir(folder)
    try:
        with (
            mock.patch.object(os, "sched_getaffinity", return_value=set(range(cores))),
            mock.patch.object(tempfile, "gettempdir", return_value=str(folder)),
            mock.patch.object(os, "cpu_count", return_value=cores),
        ):
            (entries,) = read_configs(torch_dir, [{}], build)
    finally:
        os.chdir(home)
    return {name: to_json_value(entry.value) for name, entry in entries.items() if is_json(entry)}


def is_json(entry: SourceEntry) -> bool:
    """Whether the default survives a JSON round trip."""
    value = to_json_value(entry.value)
    return entry.value is not UNREADABLE and isinstance(value, JSON_TYPES) and _survives(value)


def _survives(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except TypeError:
        return False


if __name__ == "__main__":
    main()
