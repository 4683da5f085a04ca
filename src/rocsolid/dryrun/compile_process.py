"""The child process of a dry run: `python -m rocsolid.dryrun.compile_process REQUEST.json RESULT.json`.

The simulated GPU is installed only in this process.
"""

import json
import sys
import time
from pathlib import Path

from rocsolid.catalog.chips import DEFAULT_RELEASE, chip
from rocsolid.dryrun.compile_kernels import CompileContext, quiet_compilers
from rocsolid.dryrun.request import RESULT_SCHEMA, ChildResult, Request
from rocsolid.errors import RocsolidError, UsageError
from rocsolid.model.codec import decode, encode
from rocsolid.new_torch import check_new_torch
from rocsolid.process.parent_death import die_with_parent
from rocsolid.torchapi.pretend.device import pretend_device, pretend_properties


def main(request_file: Path, result_file: Path) -> None:
    """Run one request and write its result, or the error if it is one of ours."""
    request = decode(Request, json.loads(request_file.read_text(encoding="utf-8")), "request")
    die_with_parent(request.parent_pid)
    check_new_torch(warn=False)
    try:
        result = _run(request)
    except RocsolidError as error:
        result = ChildResult(error=str(error), usage_error=isinstance(error, UsageError))
    except SystemExit as system_exit:
        name = request.workload or " ".join(request.tests or request.kernels)
        message = f"{name} called sys.exit({system_exit.code!r}) while it was imported"
        result = ChildResult(error=message, usage_error=True)
    temporary = result_file.with_suffix(".part")
    temporary.write_text(json.dumps({"schema": RESULT_SCHEMA, "result": encode(result)}), encoding="utf-8")
    temporary.replace(result_file)


def _run(request: Request) -> ChildResult:
    started = time.monotonic()
    target = chip(request.target)
    quiet_compilers()
    shared = CompileContext(
        chip=target,
        journal=Path(request.journal),
        asm=request.asm,
        save=Path(request.save) if request.save else None,
        kernel_deadline_s=request.kernel_deadline_s,
        doing="reading how the kernels are called" if request.find_signatures else "",
        ends=started + request.deadline_s if request.deadline_s else 0.0,
    )
    release = DEFAULT_RELEASE[target.platform]
    if request.tests:
        from rocsolid.dryrun.record_tests import record_tests

        pretend_device(target, release, Path(request.guard))
        return record_tests(request, shared)
    if request.kernels:
        from rocsolid.dryrun.user_kernels import compile_kernels, find_signatures

        pretend_properties(target, release)
        return (
            find_signatures(request, shared)
            if request.find_signatures
            else ChildResult(run=compile_kernels(request, shared))
        )
    from rocsolid.dryrun.trace_workload import trace

    pretend_device(target, release, Path(request.guard))
    return ChildResult(run=trace(request, shared))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
