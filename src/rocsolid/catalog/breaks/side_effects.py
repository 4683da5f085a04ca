"""Breaks because the function talks, logs, parses or looks at the clock by the way."""

from typing import Final

from rocsolid.catalog.breaks.kinds import SKIPPED
from rocsolid.model.known_cause import KnownCause

ASIDES: Final = (
    KnownCause(
        gb_types=("Failed to trace builtin operator",),
        pattern=r"builtin `?(operator )?`?print\b|\bprint\(",
        cause="print needs the values, so that the device has to be waited for",
        fix="print after the compiled part, or let torch print it at run time: torch._dynamo.config.reorderable_logging_functions.add(print)",
        before="print('sum', x.sum())",
        after="return y, x.sum()   # and print outside",
    ),
    KnownCause(
        gb_types=("Failed to trace builtin operator",),
        pattern=r"builtin `?open\b|\bopen\(",
        cause="a file is opened while the function runs",
        fix="read it before the compiled part and pass in what it holds",
        before="with open(file) as f:\n    scale = float(f.read())",
        after="def step(x, scale): ...   # read once, outside",
    ),
    KnownCause(
        gb_types=(
            "Failed to trace builtin operator",
            "repr() on tensor",
            "Attempted to a str() method implemented in C/C++",
        ),
        pattern=r"builtin `?(str|repr|format)\b|\b(str|repr|format)\(",
        cause="a tensor is turned into text, which needs its values",
        fix="leave texts of tensors out of the compiled part; a shape or dtype may stay",
        before="name = f'{x}'",
        after="name = f'{tuple(x.shape)}'",
    ),
    KnownCause(
        gb_types=("Observed exception",),
        pattern=r"object of type 'str' has no len|f['\"].*\{|format\(",
        cause="a tensor is turned into text, which needs its values",
        fix="leave texts of tensors out of the compiled part; a shape or dtype may stay",
        before="name = f'{x}'",
        after="name = f'{tuple(x.shape)}'",
    ),
    KnownCause(
        gb_types=("logging.Logger method not supported for non-export cases",),
        cause="a logger is called in the middle of the function",
        fix="log after the compiled part, or have torch leave the call out: torch._dynamo.config.ignore_logging_functions.add(logger.info)",
        before="logger.info('step')\nreturn x * 2",
        after="return x * 2   # and log outside",
    ),
    KnownCause(
        gb_types=SKIPPED,
        pattern=r"qualname: warn\b",
        cause="a warning is raised in the middle of the function",
        fix="warn before the compiled part; the shapes and flags it depends on are known there",
        before="warnings.warn('slow path')",
        after="# in the caller, before the compiled function",
    ),
    KnownCause(
        gb_types=SKIPPED,
        pattern=r"module: (time|datetime)\b|datetime|\btime\.\w+\(",
        cause="the clock is read or waited for; compiled, it would be read once and for all",
        fix="time around the compiled call, with device events: torch.cuda.Event(enable_timing=True)",
        before="start = time.perf_counter()\ny = model(x)",
        after="start.record(); y = compiled(x); end.record()",
    ),
    KnownCause(
        gb_types=SKIPPED,
        pattern=r"module: _?random|\brandom\.|SystemRandom",
        cause="a random number is drawn in a way that torch cannot follow",
        fix="draw with torch, on the device: torch.rand(())",
        before="x * random.SystemRandom().random()",
        after="x * torch.rand((), device=x.device)",
    ),
    KnownCause(
        gb_types=SKIPPED,
        pattern=r"lru_cache|functools",
        cause="the function is wrapped in a cache whose code is C",
        fix="call the plain function in the compiled part: wrapped.__wrapped__",
        before="@functools.lru_cache\ndef table(n): ...",
        after="TABLE = table(64)   # once, outside",
    ),
    KnownCause(
        gb_types=SKIPPED,
        pattern=r"\bjson\b|\bre\b|pickle|yaml|JSONDecoder|scan_once",
        cause="text is parsed while the function runs",
        fix="parse before the compiled part and pass in the result",
        before="scale = json.loads(text)['scale']",
        after="def step(x, scale): ...   # parse once, outside",
    ),
    KnownCause(
        gb_types=SKIPPED,
        pattern=r"inspect|currentframe|_getframe",
        cause="the function looks at its own frame or signature",
        fix="pass in what it wants to know",
        before="name = inspect.currentframe().f_code.co_name",
        after="def step(x, name): ...",
    ),
    KnownCause(
        gb_types=(
            "Skip calling `torch.compiler.disable()`d function",
            "Skip inlining `torch.compiler.disable()`d function",
        ),
        cause="the function called is marked torch.compiler.disable (or torch._dynamo.disable)",
        fix="take the mark off; if it guards a kernel that torch cannot trace, register that: rs.vendor_op",
        before="@torch.compiler.disable\ndef attention(q, k, v): ...",
        after="attention = rs.vendor_op('mine::attention', kernel, fake=shape_of, reference=plain)",
    ),
    KnownCause(
        gb_types=(
            "Call to `torch._dynamo.graph_break()`",
            "Call to `torch._dynamo.skip_frame()`",
            "Forced graph break on leaf function",
        ),
        cause="the code asks for a graph break",
        fix="take the call out",
        before="torch._dynamo.graph_break()",
        after="",
    ),
)
