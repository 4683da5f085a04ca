"""Show on this machine what rocsolid does: probe it, and write the report as HTML.

Run it with `make demo`.
"""

import subprocess
import sys
from pathlib import Path

OUT = Path("rocsolid-report")


def main() -> None:
    """Probe with real computations, print the findings, and say where the report lies."""
    OUT.mkdir(exist_ok=True)
    page = OUT / "probe.html"
    rocsolid = [sys.executable, "-m", "rocsolid"]
    saved = OUT / "probe.json"
    steps = [
        ["probe", "--active", "--fail-on", "never", "--output", "json", "--out", str(saved)],
        ["report", str(saved)],
        ["report", str(saved), "--output", "html", "--out", str(page)],
    ]
    for step in steps:
        subprocess.run([*rocsolid, *step], check=True)
    print(f"\nThe report: {page.resolve().as_uri()}")


if __name__ == "__main__":
    main()
