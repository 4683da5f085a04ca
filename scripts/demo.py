"""Demonstrate rocsolid on this machine: probe it, tune a small workload, and write both reports as HTML.

Run it with `make demo`. Tuning starts no new trial after two minutes.
"""

import subprocess
import sys
import time
from pathlib import Path

OUT = Path("rocsolid-report")
WORKLOAD = f"{Path(__file__).with_name('demo_workload.py')}:build"
# Few values, so that the search ends within the budget.
VARIED = ("form=compiled,eager", "inductor.freezing", "inductor.aggressive_fusion", "inductor.max_fusion_size=16")


def main() -> None:
    """Probe with active checks, tune, print the results, and print the paths of the reports."""
    OUT.mkdir(exist_ok=True)
    begun = time.monotonic()
    probe, study = OUT / "probe.json", OUT / "study.json"
    plan = OUT / "plan.toml"
    _print_heading("1. Probe: what makes torch.compile or graphs hang, crash or return wrong results on this machine?")
    _rocsolid("probe", "--active", "--fail-on", "never", "--output", "json", "--out", str(probe))
    _rocsolid("report", str(probe))
    _write_html(probe)
    _print_heading("2. Tune: which settings are fastest for a small workload? Each is tried in a child process.")
    vary = [word for name in VARIED for word in ("--vary", name)]
    budget = ["--budget", "120s", "--trials", "8", "--finalists", "3", "--rounds", "16"]
    files = ["--fresh", "--study", str(OUT / "tune.db"), "--plan", str(plan), "--output", "json", "--out", str(study)]
    _rocsolid("tune", WORKLOAD, *vary, *budget, *files)
    _rocsolid("report", str(study))
    _write_html(study)
    _print_heading(f"3. Open the reports ({time.monotonic() - begun:.0f} s so far)")
    for file in (probe, study):
        print(f"  {file.with_suffix('.html').resolve().as_uri()}")
    print(f"  The plan, for rs.optimize(model, x, plan=…): {plan}", flush=True)


def _write_html(record: Path) -> None:
    _rocsolid("report", str(record), "--output", "html", "--out", str(record.with_suffix(".html")))


def _rocsolid(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rocsolid", *words], check=True)


def _print_heading(text: str) -> None:
    print(f"\n{text}\n", flush=True)


if __name__ == "__main__":
    main()
