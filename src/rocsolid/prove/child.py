"""The child process of one check: prints one line of JSON for each verdict. It may hang or crash without harm to the others."""

import json
import os
import sys
import warnings
from pathlib import Path

from rocsolid.model.codec import encode
from rocsolid.process.parent_death import die_with_parent

MARK = "rocsolid-verdict "


def main(name: str) -> None:
    """Run the check with this name."""
    from rocsolid.probe.quick_facts import quick_environment
    from rocsolid.prove.check import run_check

    warnings.simplefilter("ignore")
    # Some programs start others in another folder, so the folders in which Python looks must not be relative.
    folders = [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(folder).resolve()) for folder in folders)
    for verdict in run_check(name, quick_environment()):
        sys.stdout.write(f"\n{MARK}{json.dumps(encode(verdict))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent(os.getppid())
    main(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # runtimes that were left in a failed capture may crash at exit, after the verdicts
