"""Demonstrate rocsolid on this machine in under three minutes: a model made faster, a hazard found and fixed, a trace.

Run it with `make demo`.
"""

import subprocess
import sys
import time
from pathlib import Path

OUT = Path("rocsolid-report")
MODEL = f"{Path(__file__).with_name('demo_workload.py')}:build"
HAZARD = """\
import torch


def step(x):
    if x.sum().item() > 0:  # the value has to be fetched from the device: torch.compile splits the function here
        return x * 2
    return x - 1


def build():
    return step, (torch.ones(8),), {}
"""
FIXED = HAZARD.replace(
    HAZARD[HAZARD.index("    if x") : HAZARD.index("\n\n\ndef build")],
    "    return torch.where(x.sum() > 0, x * 2, x - 1)",
)


def main() -> None:
    """Optimize a model, find and fix a graph break, profile, and say what to do next."""
    OUT.mkdir(exist_ok=True)
    begun = time.monotonic()
    optimize, trace, hazard = OUT / "optimize.json", OUT / "trace.json.gz", OUT / "hazard.py"
    _print_heading("1. rocsolid probe: what makes torch.compile or graphs hang, crash or return wrong results here?")
    _rocsolid("probe", "--fail-on", "never", "--output", "html", "--out", str(OUT / "probe.html"))
    _rocsolid("probe", "--fail-on", "never")
    _print_heading("2. rocsolid optimize: a transformer of torch.nn, in every form, verified against eager")
    _rocsolid("optimize", MODEL, "--budget", "90s", "--output", "json", "--out", str(optimize))
    _rocsolid("report", str(optimize))
    _rocsolid("report", str(optimize), "--output", "html", "--out", str(OUT / "optimize.html"))
    _print_heading("3. rocsolid breaks: a planted hazard, found; and the same check after the fix")
    hazard.write_text(HAZARD, encoding="utf-8")
    _rocsolid("breaks", f"{hazard}:build", "--quick")
    hazard.write_text(FIXED, encoding="utf-8")
    print("\nafter the fix, `return torch.where(x.sum() > 0, x * 2, x - 1)`:", flush=True)
    _rocsolid("breaks", f"{hazard}:build", "--quick")
    _print_heading("4. rocsolid profile: where the time goes, as a page")
    _rocsolid("profile", MODEL, "--trace", str(trace), "--output", "html", "--out", str(OUT / "profile.html"))
    _print_heading(f"5. Done in {time.monotonic() - begun:.0f} s. Open the pages:")
    for name in ("optimize.html", "profile.html", "probe.html"):
        print(f"  {(OUT / name).resolve().as_uri()}")
    print(
        "\nnext, with your own model (a function that returns (model, args, kwargs), here `build` in work.py):\n"
        "  rocsolid optimize work.py:build      the fastest form whose results match eager\n"
        "  rocsolid breaks work.py:build        graph breaks, with your source line and the fix\n"
        "  rocsolid lint src                    hazards in the source, without running it\n"
        "  rocsolid tune work.py:build          also tries compiler settings, about ten minutes",
        flush=True,
    )


def _rocsolid(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rocsolid", *words], check=True)


def _print_heading(text: str) -> None:
    print(f"\n{text}\n", flush=True)


if __name__ == "__main__":
    main()
