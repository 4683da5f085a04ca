"""Runs the race of `rs.optimize` in a child process, so that the user's process sets up only the fastest form.

With every captured graph a process may replay all its graphs more slowly (docs/background/capture.md), and a hang or crash of a
compiler ends only the child. The child saves what it compiled, so this process sets up the fastest form from the caches.

Model and examples reach the child as a file. A model that is defined in the main script can be sent only if the child may import that
script: it needs `if __name__ == "__main__":`, because otherwise the import would run the whole program again.
"""

import ast
import io
import json
import os
import pickle
import runpy
import shutil
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.errors import InputError, first_line
from rocsolid.model.codec import decode, encode, loads
from rocsolid.model.environment import CheckStatus
from rocsolid.model.optimize_report import OptimizeReport
from rocsolid.model.progress import OnStep, Step
from rocsolid.new_torch import check_new_torch
from rocsolid.optimize.example_inputs import Example
from rocsolid.process.parent_death import die_with_parent
from rocsolid.process.run_command import Command, module_command, run_with_deadline
from rocsolid.torchapi.config.live import imported_modules, read_entries
from rocsolid.torchapi.config.scope import settings_scope
from rocsolid.torchapi.inductor.compiler_startup import preload_compiler
from rocsolid.torchapi.pytree import flatten

_MAX_S: Final = 1800.0  # without a budget
_GRACE: Final = 1.2  # a child that takes this many times its budget is killed
_MEMORY_FACTOR: Final = 1.5  # free memory that the child needs, in sizes of the model
_CALL, _START, _STEPS, _REPORT = "call.pt", "start.json", "steps.json", "report.json"
_FAST_FOLDER: Final = Path("/dev/shm")  # noqa: S108 - memory; the folder made in it belongs to this user only
_MAIN, _IMPORTED_MAIN = "__main__", "__mp_main__"  # the second is the name that multiprocessing uses
_DEVICE_TYPES: Final = ("cpu", "cuda")
_BACKEND_FLAGS: Final = (
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.deterministic",
    "cudnn.allow_tf32",
    "cuda.matmul.fp32_precision",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
)
_ATTENTION_KERNELS: Final = ("flash", "mem_efficient", "math", "cudnn")  # of scaled_dot_product_attention


@dataclass(frozen=True)
class NoChildRace:
    """Why there was no race in a child process."""

    why: str
    failed: bool = False  # the child was started, and failed
    killed: bool = False  # it crashed or hung, perhaps in a kernel


class _CannotSendError(Exception):
    """The model or an example cannot be sent to another process."""


def race_in_child(
    optimize: Callable[..., Any],
    model: Callable[..., Any],
    examples: Sequence[Example],
    options: Mapping[str, Any],
    *,
    budget_s: float | None,
    on_step: OnStep,
) -> OptimizeReport | NoChildRace:
    """Call `optimize(model, examples, **options)` in a child process and return its report."""
    ends_at = time.time() + budget_s if budget_s is not None else None
    try:
        main_script = _main_script_if_needed((model, examples, options))
        folder = _folder_for(_bytes_by_device(model, examples))
    except _CannotSendError as error:
        return NoChildRace(str(error))
    with tempfile.TemporaryDirectory(prefix="rocsolid-", dir=folder) as name:
        place = Path(name)
        call = {
            "optimize": optimize,
            "model": model,
            "examples": [(example.args, dict(example.kwargs)) for example in examples],
            "options": dict(options),
            "ends_at": ends_at,
            "state": _torch_state(),
        }
        torch.save(call, place / _CALL)
        start = {"path": sys.path, "argv": sys.argv, "main": main_script}
        (place / _START).write_text(json.dumps(start), encoding="utf-8")
        command = Command(
            name="race in a child process",
            command=module_command("rocsolid.optimize.child_race", name),
            deadline_s=_MAX_S if budget_s is None else budget_s * _GRACE,
            on_wait=_StepReader(place / _STEPS, on_step).forward,
        )
        check = run_with_deadline(command).check
        if check.status is not CheckStatus.OK:
            killed = check.status in (CheckStatus.CRASHED, CheckStatus.HUNG)
            return NoChildRace(f"the child process {check.status.value} ({check.detail})", failed=True, killed=killed)
        try:
            text = (place / _REPORT).read_text(encoding="utf-8")
            return decode(OptimizeReport, loads(text, _REPORT), _REPORT)
        except (OSError, InputError) as error:
            return NoChildRace(f"the child process left no report ({first_line(error)})", failed=True)


class _WithoutTensors(pickle.Pickler):
    """Pickles everything except the contents of tensors: quick, whatever the size of the model. Collects the modules it refers to."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.modules: set[str] = set()

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, (type, types.FunctionType)):
            self.modules.add(value.__module__)
        return "tensor" if isinstance(value, torch.Tensor) else None


def _main_script_if_needed(values: object) -> str:
    """Return the path of the main script if the values need it, otherwise ""; raises _CannotSendError if they cannot be sent."""
    pickler = _WithoutTensors()
    try:
        pickler.dump(values)
    except Exception as error:  # of any kind: classes may define how they are pickled
        msg = f"the model or an example cannot be pickled ({type(error).__name__}: {first_line(error)})"
        raise _CannotSendError(msg) from error
    for module in sorted(pickler.modules - {_MAIN}):
        if not _can_be_imported(module.partition(".")[0]):
            msg = f"the model or an example needs the module {module}, which a new process cannot import"
            raise _CannotSendError(msg)
    if _MAIN not in pickler.modules:
        return ""
    file = getattr(sys.modules[_MAIN], "__file__", None)
    if file is None or not Path(file).is_file():
        msg = "the model or an example needs code of an interactive session: define it in a module"
        raise _CannotSendError(msg)
    if not _is_guarded(Path(file).read_bytes()):
        msg = f'the model or an example needs code of {Path(file).name}, which has no `if __name__ == "__main__":`'
        raise _CannotSendError(msg)
    return str(Path(file).resolve())


def _can_be_imported(package: str) -> bool:
    """Whether a new process finds a package. `importlib.util.find_spec` would also find what was only put into `sys.modules`."""
    for finder in sys.meta_path:
        with suppress(Exception):  # of finders that other packages add
            if finder.find_spec(package, None) is not None:
                return True
    return False


def _is_guarded(script: bytes) -> bool:
    """Whether a script has a top-level `if` about `__name__`, so that it can be imported without running the program."""
    try:
        body = ast.parse(script).body
    except (SyntaxError, ValueError):
        return False
    tests = [statement.test for statement in body if isinstance(statement, ast.If)]
    return any(isinstance(node, ast.Name) and node.id == "__name__" for test in tests for node in ast.walk(test))


def _bytes_by_device(model: Callable[..., Any], examples: Sequence[Example]) -> dict[torch.device, int]:
    """Return the size of all weights, buffers and arguments on each device."""
    weights = (*model.parameters(), *model.buffers()) if isinstance(model, torch.nn.Module) else ()
    leaves = [leaf.value for x in examples for leaf in flatten((x.args, dict(x.kwargs)), "").leaves]
    sizes: dict[torch.device, int] = {}
    for tensor in {id(x): x for x in (*weights, *leaves) if isinstance(x, torch.Tensor)}.values():
        sizes[tensor.device] = sizes.get(tensor.device, 0) + tensor.numel() * tensor.element_size()
    return sizes


def _folder_for(sizes: Mapping[torch.device, int]) -> Path:
    """Return a folder with room for all tensors; raises _CannotSendError if there is none, or too little memory on a GPU."""
    for device, size in sizes.items():
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None
        if free is not None and free < _MEMORY_FACTOR * size:
            msg = f"{device} has {free / 2**30:.1f} GiB free, too little for a second copy of the model ({size / 2**30:.1f} GiB)"
            raise _CannotSendError(msg)
    total = sum(sizes.values())
    for folder in (_FAST_FOLDER, Path(tempfile.gettempdir())):
        if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _MEMORY_FACTOR * total + 2**20:
            return folder
    msg = f"{tempfile.gettempdir()} has no room for a copy of the model ({total / 2**30:.1f} GiB)"
    raise _CannotSendError(msg)


class _StepReader:
    """Passes on the steps that the child writes to a file."""

    def __init__(self, file: Path, on_step: OnStep) -> None:
        self._file = file
        self._on_step = on_step
        self._seen = ""
        self._idle = True

    def forward(self) -> None:
        """Pass on the newest step, if there is a new one. The first call imports what this process will need afterwards."""
        if self._idle:
            self._idle = False
            preload_compiler()
        try:
            text = self._file.read_text(encoding="utf-8")
        except OSError:  # not written yet
            return
        if text != self._seen:
            self._seen = text
            self._on_step(decode(Step, json.loads(text), _STEPS))


def _torch_state() -> dict[str, Any]:
    """Return the global state of torch that results, speed and cache keys depend on."""
    assigned = {
        name: entry.value
        for name, entry in read_entries(imported_modules()).items()
        if entry.assigned and isinstance(entry.value, (bool, int, float, str, type(None)))
    }
    autocast = [(kind, torch.get_autocast_dtype(kind)) for kind in _DEVICE_TYPES if torch.is_autocast_enabled(kind)]
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": autocast,
        "default dtype": torch.get_default_dtype(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.current_device() if torch.cuda.is_initialized() else None,
        "backends": {name: _backend_flag(name) for name in _BACKEND_FLAGS},
        "attention": {x: getattr(torch.backends.cuda, f"{x}_sdp_enabled")() for x in _ATTENTION_KERNELS},
        "settings": assigned,
    }


def _backend_flag(name: str) -> Any:
    try:
        return attrgetter(name)(torch.backends)
    except (
        AttributeError,
        RuntimeError,
    ):  # not in this release, or set by a newer function that excludes the older one
        return None


@contextmanager
def _with_torch_state(state: Mapping[str, Any]) -> Iterator[None]:
    """In the child: run the block with the state of the parent. What the process keeps is not restored, because it ends."""
    torch.set_default_dtype(state["default dtype"])
    if (
        torch.get_float32_matmul_precision() != state["float32 matmul precision"]
    ):  # even the same value changes cache keys
        torch.set_float32_matmul_precision(state["float32 matmul precision"])
    deterministic, warn_only = state["deterministic"]
    torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    torch.set_num_threads(state["threads"])
    if state["device"] is not None:
        torch.cuda.set_device(state["device"])
    for name, value in state["backends"].items():  # the same here
        owner, _, attribute = name.rpartition(".")
        if value is not None and _backend_flag(name) != value:
            setattr(attrgetter(owner)(torch.backends), attribute, value)
    for kernel, enabled in state["attention"].items():
        getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(enabled)
    with ExitStack() as stack:
        stack.enter_context(settings_scope(state["settings"]))
        # In this order, because entering inference mode also sets the grad mode.
        stack.enter_context(torch.inference_mode(state["inference"]))
        stack.enter_context(torch.set_grad_enabled(state["grad"]))
        for kind, dtype in state["autocast"]:
            stack.enter_context(torch.autocast(kind, dtype))
        yield


def _import_main(script: str) -> None:
    """Import the user's main script without running the part that `if __name__ == "__main__":` protects.

    Afterwards its classes and functions have the names that they have in the parent, so that both use the same saved files.
    """
    module = types.ModuleType(_IMPORTED_MAIN)
    vars(module).update(runpy.run_path(script, run_name=_IMPORTED_MAIN))
    vars(module)["__name__"] = _MAIN
    for value in tuple(vars(module).values()):
        _rename(value)
        if isinstance(value, type) and value.__module__ == _MAIN:
            for member in tuple(vars(value).values()):
                _rename(member)
    sys.modules[_MAIN] = sys.modules[_IMPORTED_MAIN] = module


def _rename(value: Any) -> None:
    if isinstance(value, (type, types.FunctionType)) and value.__module__ == _IMPORTED_MAIN:
        value.__module__ = _MAIN


def main(folder: str) -> None:
    """In the child: load the call, race, and write the report."""
    place = Path(folder)
    start = json.loads((place / _START).read_text(encoding="utf-8"))
    sys.path[:], sys.argv[:] = start["path"], start["argv"]
    if start["main"]:
        _import_main(start["main"])
    # Safe to unpickle: the parent process wrote it in a folder that only this user can access.
    call: dict[str, Any] = torch.load(place / _CALL, weights_only=False)
    (place / _CALL).unlink()  # it may be in memory

    def write_step(step: Step) -> None:
        unfinished = place / f"{_STEPS}.new"
        unfinished.write_text(json.dumps(encode(step)), encoding="utf-8")
        unfinished.replace(place / _STEPS)

    options = call["options"]
    if call["ends_at"] is not None:
        options |= {"budget_s": max(0.0, call["ends_at"] - time.time())}
    with _with_torch_state(call["state"]):
        fast = call["optimize"](call["model"], call["examples"], progress=write_step, **options)
        optimized = fast.rocsolid if isinstance(fast, torch.nn.Module) else fast
        (place / _REPORT).write_text(optimized.report().json(), encoding="utf-8")


if __name__ == "__main__":
    die_with_parent(os.getppid())
    check_new_torch(warn=False)
    main(sys.argv[1])
