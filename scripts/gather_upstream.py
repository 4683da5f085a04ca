"""Write src/rocsolid/torchapi/config/upstream.json from official torch wheels.

    python scripts/gather_upstream.py torch-2.9.0-*.whl torch-2.13.0-*.whl …

Any platform's wheel will do, the config files are the same in all of them (macOS wheels are the smallest):

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
from rocsolid.torchapi.config.upstream import plain

TABLE = Path(__file__).parents[1] / "src/rocsolid/torchapi/config/upstream.json"
JSON_TYPES = (bool, int, float, str, type(None), list, dict)


def main() -> None:
    """Evaluate every wheel given and write the table, oldest release first."""
    wheels = {Path(wheel).name.split("-")[1]: Path(wheel) for wheel in sys.argv[1:]}
    rows: list[dict[str, object]] = []
    before: dict[str, object] = {}
    for release in sorted(wheels, key=parts):
        digests, values, hip = shipped(wheels[release], release)
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


def shipped(wheel: Path, release: str) -> tuple[dict[str, str], dict[str, object], dict[str, object]]:
    """Digests, defaults, and defaults of a ROCm build."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        torch_dir = Path(folder) / "torch"
        digests = {}
        for owner, file in CONFIG_FILES.items():
            digests[owner] = hashlib.sha256(archive.read(f"torch/{file}")).hexdigest()
            archive.extract(f"torch/{file}", folder)
        values = steady(torch_dir, Build(version=release))
        hip = steady(torch_dir, Build(version=release, hip="7.0.0"))
    return digests, values, hip


def steady(torch_dir: Path, build: Build) -> dict[str, object]:
    """The defaults that do not depend on the machine: evaluated on two pretended ones, and equal."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first = evaluated(torch_dir, build, Path(one), cores=2)
        second = evaluated(torch_dir, build, Path(two), cores=3)
    return {name: value for name, value in first.items() if second.get(name) == value}


def evaluated(torch_dir: Path, build: Build, folder: Path, cores: int) -> dict[str, object]:
    """Every default as JSON data, on a machine with that folder and so many cores."""
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
    return {name: plain(entry.value) for name, entry in entries.items() if keeps(entry)}


def keeps(entry: SourceEntry) -> bool:
    """Whether JSON can hold the default and give it back unchanged."""
    value = plain(entry.value)
    return entry.value is not UNREADABLE and isinstance(value, JSON_TYPES) and _survives(value)


def _survives(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except TypeError:
        return False


if __name__ == "__main__":
    main()
