"""The child process of a dry run: `python -m rocsolid.dryrun.compile_process REQUEST.json RESULT.json`.

The simulated GPU is installed only in this process.
"""

import json
import sys
from pathlib import Path

from rocsolid.catalog.chips import DEFAULT_RELEASE, chip
from rocsolid.dryrun.compile_kernels import CompileContext, quiet_compilers
from rocsolid.dryrun.request import RESULT_SCHEMA, ChildResult, Request
from rocsolid.errors import RocsolidError, UsageError
from rocsolid.model.codec import decode, encode
from rocsolid.model.dryrun import DryRun
from rocsolid.process.parent_death import die_with_parent
from rocsolid.torchapi.pretend.device import pretend_device, pretend_triton_driver


def main(request_file: Path, result_file: Path) -> None:
    """Run one request and write its result, or the error if it is one of ours."""
    request = decode(Request, json.loads(request_file.read_text(encoding="utf-8")), "request")
    die_with_parent(request.parent_pid)
    try:
        result = ChildResult(run=_run(request))
    except RocsolidError as error:
        result = ChildResult(error=str(error), usage_error=isinstance(error, UsageError))
    except SystemExit as system_exit:
        message = f"{request.workload or request.file} called sys.exit({system_exit.code!r}) while it was imported"
        result = ChildResult(error=message, usage_error=True)
    temporary = result_file.with_suffix(".part")
    temporary.write_text(json.dumps({"schema": RESULT_SCHEMA, "result": encode(result)}), encoding="utf-8")
    temporary.replace(result_file)


def _run(request: Request) -> DryRun:
    target = chip(request.target)
    quiet_compilers()
    shared = CompileContext(
        chip=target,
        journal=Path(request.journal),
        asm=request.asm,
        save=Path(request.save) if request.save else None,
    )
    if request.file:
        from rocsolid.dryrun.user_kernels import compile_file

        pretend_triton_driver(target)
        return compile_file(request, shared)
    from rocsolid.dryrun.trace_workload import trace

    pretend_device(target, DEFAULT_RELEASE[target.platform], Path(request.guard))
    return trace(request, shared)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
