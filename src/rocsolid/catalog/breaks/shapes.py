"""Breaks because of how the code is put together."""

from typing import Final

from rocsolid.model.known_cause import KnownCause

SHAPES: Final = (
    KnownCause(
        gb_types=("graph break in loop",),
        cause="something inside a loop breaks the graph, and torch cannot resume in the middle of one: nothing of the function is compiled",
        fix="fix what breaks inside (the message names it), or move the loop's body into a function of its own",
        before="for layer in layers:\n    x = layer(x); log(x)",
        after="for layer in layers:\n    x = layer(x)\nlog(x)",
    ),
    KnownCause(
        gb_types=("Unsupported context manager",),
        cause="torch does not know how to enter this context manager, and gives up the whole function",
        fix="enter it around the compiled call",
        before="def step(x):\n    with lock:\n        return model(x)",
        after="with lock:\n    y = compiled(x)",
    ),
    KnownCause(
        gb_types=("Attempt to trace generator",),
        cause="the compiled function is a generator",
        fix="compile the function that does the work, and yield outside",
        before="@torch.compile\ndef steps(x):\n    yield x + 1",
        after="step = torch.compile(lambda x: x + 1)",
    ),
    KnownCause(
        gb_types=("Invalid call to __build_class__", "LOAD_BUILD_CLASS bytecode not supported"),
        cause="a class is made while the function runs",
        fix="make it at the top of the file",
        before="def step(x):\n    class Box: ...",
        after="class Box: ...\n\ndef step(x): ...",
    ),
    KnownCause(
        gb_types=("failed to find name in frame builtins",),
        cause="a global is read that does not exist until the function has run",
        fix="use a local name, and give the global its value outside",
        before="global last\nlast = x + 1\nreturn last * 2",
        after="last = x + 1\nreturn last * 2, last",
    ),
    KnownCause(
        gb_types=("Observed exception", "Observed exception (EXCEPT_HANDLER)"),
        cause="the function raises, and nobody in it catches",
        fix="test before the compiled part; what must be tested on the device: torch._assert_async",
        before="if x.shape[0] == 2:\n    raise ValueError('two')",
        after="# in the caller, before the compiled function",
    ),
    KnownCause(
        gb_types=("Reconstruction failure", "Reconstruction failure: source.reconstruct not implemented"),
        cause="an object made in the function has to be handed out, and torch cannot rebuild it",
        fix="hand out tensors and plain values; make hooks, handles and iterators outside",
        before="handle = y.register_hook(f)\nreturn y, handle",
        after="return y   # and register outside",
    ),
    KnownCause(
        gb_types=(
            "Comparison on compile-time-only id or hash value",
            "id() with unsupported args",
            "call_id() without associated real value",
        ),
        cause="the identity of an object made in the function is asked for, and while tracing it has none",
        fix="compare what the objects hold, or use `is` on what is passed in",
        before="if id(y) in seen: ...",
        after="if name in seen: ...",
    ),
    KnownCause(
        gb_types=(
            "Failed to unpack object for UNPACK_SEQUENCE",
            "Failed to unpack object for UNPACK_EX",
            "Length mismatch when unpacking object for UNPACK_SEQUENCE",
        ),
        cause="something is unpacked whose length torch does not know, such as a shape on older versions",
        fix="take the parts by number",
        before="batch, tokens, width = x.shape",
        after="batch, tokens, width = x.size(0), x.size(1), x.size(2)",
    ),
    KnownCause(
        gb_types=("Dynamo recompile limit exceeded",),
        cause="the function was compiled as often as it may be, and runs in Python from now on",
        fix="find what changes from call to call and pass it as a tensor: rocsolid compiles names the guard of each recompile",
        before="compiled(x, 0.1 * step)",
        after="compiled(x, torch.tensor(0.1 * step))",
    ),
)
