"""`scripts/score_dryrun.py`, which measures dry runs of public projects."""

import runpy
from importlib.metadata import version

from tests.support import ROOT


def test_a_larger_sample_continues_a_smaller_one_of_the_same_commit_and_compiler() -> None:
    earlier = runpy.run_path(str(ROOT / "scripts/score_dryrun.py"))["earlier"]
    rows = [{"file": "a.py", "kernel": "f"}, {"file": "a.py", "kernel": "g"}]
    project = {"commit": "1", "torch": version("torch"), "triton": version("triton"), "seconds": 7, "rows": rows}

    assert earlier(project, "1", ["a.py:f", "a.py:h"]) == {"rows": rows[:1], "seconds": 7}
    assert earlier(project, "2", ["a.py:f"]) == {"rows": [], "seconds": 0}
    assert earlier({**project, "triton": "3.0.0"}, "1", ["a.py:f"]) == {"rows": [], "seconds": 0}
    assert earlier({}, "1", ["a.py:f"]) == {"rows": [], "seconds": 0}


def test_the_record_does_not_say_where_the_projects_lie() -> None:
    without_folders = runpy.run_path(str(ROOT / "scripts/score_dryrun.py"))["without_folders"]

    assert without_folders("SIGABRT; /home/me/sglang/a.py:9: error in '/x/y.ptx', see docs/a.md and 1/2") == (
        "SIGABRT; a.py:9: error in 'y.ptx', see docs/a.md and 1/2"
    )
