"""The child of a dry run: `python -m rocsolid.dryrun.compile_process REQUEST.json ANSWER.json`.

Stand-ins for a device are put in place here and never anywhere else.
"""

import json
import sys
from pathlib import Path

from rocsolid.catalog.chips import DEFAULT_RELEASE, chip
from rocsolid.dryrun.compile_kernels import Compiling, quiet_compilers
from rocsolid.dryrun.request import ANSWER_SCHEMA, ChildAnswer, Request
from rocsolid.errors import RocsolidError, UsageError
from rocsolid.model.codec import decode, dumps
from rocsolid.model.dryrun import DryRun
from rocsolid.process.parent_death import end_with
from rocsolid.torchapi.pretend.device import pretend, pretend_driver


def main(request_file: Path, answer_file: Path) -> None:
    """Answer one request; errors of ours are answers too."""
    request = decode(Request, json.loads(request_file.read_text(encoding="utf-8")), "request")
    end_with(request.asker)
    try:
        answer = ChildAnswer(run=_run(request))
    except RocsolidError as error:
        answer = ChildAnswer(error=str(error), usage=isinstance(error, UsageError))
    except SystemExit as left:
        said = f"{request.workload or request.file} ended its process by sys.exit({left.code!r}) while it was loaded"
        answer = ChildAnswer(error=said, usage=True)
    temporary = answer_file.with_suffix(".part")
    temporary.write_text(dumps(ANSWER_SCHEMA, answer=answer), encoding="utf-8")
    temporary.replace(answer_file)


def _run(request: Request) -> DryRun:
    target = chip(request.target)
    quiet_compilers()
    shared = Compiling(
        chip=target,
        journal=Path(request.journal),
        asm=request.asm,
        save=Path(request.save) if request.save else None,
    )
    if request.file:
        from rocsolid.dryrun.user_kernels import kernels_of_file

        pretend_driver(target)
        return kernels_of_file(request, shared)
    from rocsolid.dryrun.trace_workload import trace

    pretend(target, DEFAULT_RELEASE[target.platform], Path(request.guard))
    return trace(request, shared)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
