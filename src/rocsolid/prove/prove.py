"""The whole run: plan, run what is open, and make the record."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rocsolid.model.progress import OnStep, Step, ignore_step
from rocsolid.model.proof import CheckRun, ProofRecord
from rocsolid.probe.snapshot import ProbeOptions, take_snapshot
from rocsolid.process.run_command import Command, run_with_deadline
from rocsolid.prove.check import all_claims
from rocsolid.prove.record import code_digest, describe_machine, make_record
from rocsolid.prove.run import Journal, PlannedCheck, plan_checks, run_checks, without_result


def prove(
    *,
    minutes: float,
    journal: Path,
    only: Sequence[str] = (),
    fresh: bool = False,
    workers: int = 4,
    gpu_workers: int = 1,
    on_step: OnStep = ignore_step,
) -> ProofRecord:
    """Run the checks that the journal does not have yet, and return the record of all."""
    claims = all_claims()
    checks = plan_checks(claims, only)
    on_step(Step(what="reading the machine"))
    env = take_snapshot(ProbeOptions())
    machine = describe_machine(env, env.packages)
    if fresh:
        journal.unlink(missing_ok=True)
    header = {"code": code_digest(), "machine": f"{machine.host} {machine}"}
    kept = Journal(file=journal, header=header)
    on_gpu = [check for check in checks if check.gpu]
    parallel = max(1, min(workers, (os.cpu_count() or 1) // 2))
    left_out = {} if env.devices or not on_gpu or torch_has_gpu() else {c.name: _no_gpu(c) for c in on_gpu}
    late = run_checks(
        [check for check in checks if check.name not in left_out],
        kept,
        seconds=minutes * 60,
        on_step=on_step,
        workers=parallel,
        gpu_workers=gpu_workers,
    )
    found = {**left_out, **kept.done}
    return make_record(machine, claims, [found[check.name] for check in checks if check.name in found], sorted(late))


def torch_has_gpu() -> bool:
    """Whether torch finds a GPU; asked in a child process, which may hang."""
    code = "import torch; print('GPU', torch.cuda.is_available())"
    asked = run_with_deadline(Command(name="GPU", command=[sys.executable, "-c", code], deadline_s=60.0))
    return "GPU True" in asked.stdout


def _no_gpu(check: PlannedCheck) -> CheckRun:
    return without_result(check, "ok", 0.0, "no GPU")
