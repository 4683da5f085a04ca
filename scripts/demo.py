"""Show on this machine what rocsolid does: probe it, tune a small workload, and write both reports as HTML.

Run it with `make demo`. The tuning is given two minutes; what has begun by then is brought to its end.
"""

import subprocess
import sys
import time
from pathlib import Path

OUT = Path("rocsolid-report")
WORKLOAD = f"{Path(__file__).with_name('demo_workload.py')}:build"
# A handful of values, so that the search is through before the budget is.
VARIED = ("form=compiled,eager", "inductor.freezing", "inductor.aggressive_fusion", "inductor.max_fusion_size=16")


def main() -> None:
    """Probe with real computations, tune, print what was found, and say where the reports lie."""
    OUT.mkdir(exist_ok=True)
    begun = time.monotonic()
    probed, tuned = OUT / "probe.json", OUT / "study.json"
    plan = OUT / "plan.toml"
    _say("1. Probe: what in this machine will hang, crash or slow down a compile?")
    _rocsolid("probe", "--active", "--fail-on", "never", "--output", "json", "--out", str(probed))
    _rocsolid("report", str(probed))
    _page(probed)
    _say("2. Tune: which settings are really best for a small workload, each in a process that may die?")
    vary = [word for name in VARIED for word in ("--vary", name)]
    spending = ["--budget", "120s", "--trials", "8", "--finalists", "3", "--rounds", "16"]
    kept = ["--fresh", "--study", str(OUT / "tune.db"), "--plan", str(plan), "--output", "json", "--out", str(tuned)]
    _rocsolid("tune", WORKLOAD, *vary, *spending, *kept)
    _rocsolid("report", str(tuned))
    _page(tuned)
    _say(f"3. Open the reports ({time.monotonic() - begun:.0f} s so far)")
    for file in (probed, tuned):
        print(f"  {file.with_suffix('.html').resolve().as_uri()}")
    print(f"  The plan, to be used by rs.optimize(model, x, plan=…): {plan}", flush=True)


def _page(record: Path) -> None:
    _rocsolid("report", str(record), "--output", "html", "--out", str(record.with_suffix(".html")))


def _rocsolid(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rocsolid", *words], check=True)


def _say(text: str) -> None:
    print(f"\n{text}\n", flush=True)


if __name__ == "__main__":
    main()
