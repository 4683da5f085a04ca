"""What the debugging switches of the compiler print and write."""

import re
from pathlib import Path

from facts.declare import Seen, fact, run_python

TRACED = [
    "fx_graph_readable.py",
    "fx_graph_runnable.py",
    "fx_graph_transformed.py",
    "ir_post_fusion.txt",
    "ir_pre_fusion.txt",
    "output_code.py",
]
LOGGED = """
import logging, torch, torch._inductor.config as config
flags = {flags!r}
config.fx_graph_cache = False
config.trace.enabled = "e" in flags
config.trace.debug_log = "d" in flags
if "l" in flags:
    logging.getLogger("torch._inductor").setLevel(logging.DEBUG)
torch.compile(lambda x: x.sin() * x.sigmoid())(torch.ones(8, 8))
"""


@fact(
    "For one small function trace.enabled alone logged {trace_lines} line(s) and wrote the FX graph, the IR and "
    "output_code.py to a folder; the torch._inductor logger at DEBUG printed {logger_lines} lines; trace.debug_log "
    "alone printed nothing and wrote debug.log only together with trace.enabled; TORCH_LOGS=output_code printed the "
    "code; nowhere was a line like 'compiled 3 kernels'.",
    expect={
        "plain_lines": 0,
        "debug_log_lines": 0,
        "debug_log_alone_writes": False,
        "files": TRACED,
        "debug_log_with_trace_writes": True,
        "output_code_prints_code": True,
        "says_compiled_kernels": False,
    },
)
def trace_debug_log() -> Seen:
    """Compile one function under each debugging switch and look at the screen and the folder."""

    def logged(flags: str, **env: str) -> str:
        out, err = run_python(LOGGED.format(flags=flags), **env)
        return out + err

    def written() -> list[str]:
        return sorted({path.name for path in Path.cwd().rglob("torch_compile_debug/**/*") if path.is_file()})

    plain, debug_log = logged(""), logged("d")
    alone = written()
    trace = logged("e")
    files = written()
    both, logger, code = logged("ed"), logged("l"), logged("", TORCH_LOGS="output_code")
    saved = "".join(path.read_text(encoding="utf-8") for path in Path.cwd().rglob("debug.log"))
    return {
        "plain_lines": len(plain.splitlines()),
        "debug_log_lines": len(debug_log.splitlines()),
        "debug_log_alone_writes": bool(alone),
        "trace_lines": len(trace.splitlines()),
        "files": files,
        "debug_log_with_trace_writes": "debug.log" in written() and "debug.log" not in files,
        "logger_lines": len(logger.splitlines()),
        "output_code_prints_code": "async_compile" in code,
        "says_compiled_kernels": bool(re.search(r"compiled \d+ kernels", both + trace + logger + code + saved)),
    }
