"""Write src/rocsolid/torchapi/config/names.json: every setting name of the config modules of all releases.

    python scripts/gather_names.py torch-2.9.0-*.whl torch-2.13.0-*.whl …

The table of defaults (gather_upstream.py) leaves out settings whose default depends on the machine; this list does not.
"""

import json
import sys
import tempfile
import zipfile
from pathlib import Path

from rocsolid.torchapi.config.source import CONFIG_FILES, Build, read_configs

TABLE = Path(__file__).parents[1] / "src/rocsolid/torchapi/config/names.json"


def main() -> None:
    """Read the given wheels, and write all names by owner."""
    names: dict[str, set[str]] = {owner: set() for owner in CONFIG_FILES}
    for wheel in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            for file in CONFIG_FILES.values():
                archive.extract(f"torch/{file}", folder)
            (entries,) = read_configs(Path(folder) / "torch", [{}], Build(version=Path(wheel).name.split("-")[1]))
        for entry in entries:
            owner, _, name = entry.partition(".")
            names[owner].add(name)
    table = {owner: sorted(found) for owner, found in names.items()}
    TABLE.write_text(json.dumps(table, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    print({owner: len(found) for owner, found in table.items()})


if __name__ == "__main__":
    main()
