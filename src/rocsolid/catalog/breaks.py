"""Why graphs break, in plain words, and how each is cured.

Torch gives every graph break a short name and an id. Some names cover several things (a C function may be a clock or a vendor's
kernel), so that the order counts: what is special stands before what is general.
"""

from typing import Final

from rocsolid.model.cure import Cure

_SKIPPED: Final = (
    "Attempted to call function marked as skipped",
    "Attempted to inline function marked as skipped",
    "Attempted to inline function marked as skipped (SkipFunctionVariable)",
    "Unsupported function call",
    "Unsupported method call",
    "can't handle functions not implemented in python ",
)
_LOGGING: Final = ("logging.Logger method not supported for non-export cases",)

BREAKS: Final = (
    # Values that only the device knows.
    Cure(
        kinds=("Data-dependent branching", "Data-dependent branching with non-constant __bool__"),
        pattern=r"(?m)^while\b|\bwhile\b.*:",
        cause="the loop goes on or ends by a value that only the device knows",
        cure="run a fixed number of rounds and let torch.where keep what is done, or use torch.while_loop",
        before="while x.sum() < 100:\n    x = x * 2",
        after="for _ in range(ROUNDS):\n    x = torch.where(x.sum() < 100, x * 2, x)",
    ),
    Cure(
        kinds=("Data-dependent branching", "Data-dependent branching with non-constant __bool__"),
        pattern=r"\bassert\b",
        cause="the assert tests a value that only the device knows, and its message is no plain string",
        cure="give the assert a plain string, or none: then torch moves it into the graph",
        before="assert x.sum() < 100, ValueError('too big')",
        after="assert x.sum() < 100, 'too big'",
    ),
    Cure(
        kinds=("Data-dependent branching", "Data-dependent branching with non-constant __bool__"),
        cause="the branch depends on a value that only the device knows",
        cure="compute both and choose with torch.where; torch.cond where one side is too dear or cannot be computed",
        before="if x.sum() > 0:\n    y = x * 2\nelse:\n    y = x - 1",
        after="y = torch.where(x.sum() > 0, x * 2, x - 1)",
    ),
    Cure(
        kinds=("Unsupported Tensor.item() call with capture_scalar_outputs=False",),
        cause="a tensor's value is fetched into Python, so that the device has to be waited for",
        cure="keep it a tensor, and let it broadcast; where Python must have it, fetch it before or after the compiled part",
        before="scale = x.max().item()\nreturn x / scale",
        after="scale = x.max()\nreturn x / scale",
    ),
    Cure(
        kinds=("Tensor.tolist() with non-integer tensor",),
        cause="a tensor is turned into a Python list, so that the device has to be waited for",
        cure="compute on the tensor itself",
        before="total = sum(x.tolist())",
        after="total = x.sum()",
    ),
    Cure(
        kinds=("Dynamic shape operator", "Dynamic shape operator (no meta kernel)"),
        pattern=r"unique",
        cause="how many different values there are decides the result's shape",
        cure="count into a tensor of fixed size, or call torch.unique outside the compiled part",
        before="kinds = torch.unique(x)",
        after="seen = torch.zeros(LARGEST + 1).index_add(0, x, torch.ones_like(x, dtype=torch.float))",
    ),
    Cure(
        kinds=("Dynamic shape operator", "Dynamic shape operator (no meta kernel)"),
        cause="how many elements pass a test decides the result's shape (nonzero, or indexing by a mask)",
        cure="keep the shape and mask instead: torch.where with a neutral element",
        before="total = x[x > 0].sum()",
        after="total = torch.where(x > 0, x, 0).sum()",
    ),
    Cure(
        kinds=("Data dependent operator",),
        cause="the operator answers with a Python value (torch.equal, torch.allclose, float(tensor))",
        cure="use the operator that answers with a tensor",
        before="if torch.equal(a, b): y = x * 2\nelse: y = x * 3",
        after="y = torch.where((a == b).all(), x * 2, x * 3)",
    ),
    Cure(
        kinds=("Attempted to use `torch.nn.functional.one_hot` with data-dependent output shape",),
        cause="without num_classes the largest value decides the result's shape",
        cure="say how many classes there are",
        before="F.one_hot(labels)",
        after="F.one_hot(labels, num_classes=NUMBER)",
    ),
    Cure(
        kinds=(
            "Dynamic slicing with Tensor arguments",
            "Indexing list with non-scalar tensor",
            "unsupported index(Tensor)",
        ),
        cause="a Python list or slice is indexed by a tensor",
        cure="keep the choices in one tensor and index that: torch.stack(choices)[i]",
        before="y = choices[i]",
        after="y = torch.stack(choices)[i]",
    ),
    Cure(
        kinds=("sort with non-constant keys",),
        cause="Python's sort compares tensors, and only the device knows which is less",
        cure="sort with torch.sort, or argsort and index",
        before="torch.stack(sorted([a, b], key=lambda t: t.sum()))",
        after="rows = torch.stack([a, b])\nrows[rows.flatten(1).sum(1).argsort()]",
    ),
    Cure(
        kinds=("Data pointer comparison",),
        cause="the address of a tensor is asked for, and a traced tensor has none",
        cure="decide by what you know of the tensors, not where they lie; or ask before the compiled part",
        before="if y.data_ptr() == x.data_ptr(): ...",
        after="if y is x: ...",
    ),
    # Talking and timing.
    Cure(
        kinds=("Failed to trace builtin operator",),
        pattern=r"builtin `?(operator )?`?print\b|\bprint\(",
        cause="print needs the values, so that the device has to be waited for",
        cure="print after the compiled part, or let torch print it at run time: torch._dynamo.config.reorderable_logging_functions.add(print)",
        before="print('sum', x.sum())",
        after="return y, x.sum()   # and print outside",
    ),
    Cure(
        kinds=("Failed to trace builtin operator",),
        pattern=r"builtin `?open\b|\bopen\(",
        cause="a file is opened while the function runs",
        cure="read it before the compiled part and pass in what it holds",
        before="with open(file) as f:\n    scale = float(f.read())",
        after="def step(x, scale): ...   # read once, outside",
    ),
    Cure(
        kinds=(
            "Failed to trace builtin operator",
            "repr() on tensor",
            "Attempted to a str() method implemented in C/C++",
        ),
        pattern=r"builtin `?(str|repr|format)\b|\b(str|repr|format)\(",
        cause="a tensor is turned into text, which needs its values",
        cure="leave texts of tensors out of the compiled part; a shape or dtype may stay",
        before="name = f'{x}'",
        after="name = f'{tuple(x.shape)}'",
    ),
    Cure(
        kinds=("Observed exception",),
        pattern=r"object of type 'str' has no len|f['\"].*\{|format\(",
        cause="a tensor is turned into text, which needs its values",
        cure="leave texts of tensors out of the compiled part; a shape or dtype may stay",
        before="name = f'{x}'",
        after="name = f'{tuple(x.shape)}'",
    ),
    Cure(
        kinds=_LOGGING,
        cause="a logger is called in the middle of the function",
        cure="log after the compiled part, or have torch leave the call out: torch._dynamo.config.ignore_logging_functions.add(logger.info)",
        before="logger.info('step')\nreturn x * 2",
        after="return x * 2   # and log outside",
    ),
    Cure(
        kinds=_SKIPPED,
        pattern=r"qualname: warn\b",
        cause="a warning is raised in the middle of the function",
        cure="warn before the compiled part; the shapes and flags it depends on are known there",
        before="warnings.warn('slow path')",
        after="# in the caller, before the compiled function",
    ),
    Cure(
        kinds=_SKIPPED,
        pattern=r"module: (time|datetime)\b|datetime|\btime\.\w+\(",
        cause="the clock is read or waited for; compiled, it would be read once and for all",
        cure="time around the compiled call, with device events: torch.cuda.Event(enable_timing=True)",
        before="start = time.perf_counter()\ny = model(x)",
        after="start.record(); y = compiled(x); end.record()",
    ),
    Cure(
        kinds=_SKIPPED,
        pattern=r"module: _?random|\brandom\.|SystemRandom",
        cause="a random number is drawn in a way that torch cannot follow",
        cure="draw with torch, on the device: torch.rand(())",
        before="x * random.SystemRandom().random()",
        after="x * torch.rand((), device=x.device)",
    ),
    Cure(
        kinds=_SKIPPED,
        pattern=r"lru_cache|functools",
        cause="the function is wrapped in a cache whose code is C",
        cure="call the plain function in the compiled part: wrapped.__wrapped__",
        before="@functools.lru_cache\ndef table(n): ...",
        after="TABLE = table(64)   # once, outside",
    ),
    Cure(
        kinds=_SKIPPED,
        pattern=r"\bjson\b|\bre\b|pickle|yaml|JSONDecoder|scan_once",
        cause="text is parsed while the function runs",
        cure="parse before the compiled part and pass in the result",
        before="scale = json.loads(text)['scale']",
        after="def step(x, scale): ...   # parse once, outside",
    ),
    Cure(
        kinds=_SKIPPED,
        pattern=r"inspect|currentframe|_getframe",
        cause="the function looks at its own frame or signature",
        cure="pass in what it wants to know",
        before="name = inspect.currentframe().f_code.co_name",
        after="def step(x, name): ...",
    ),
    Cure(
        kinds=(
            "Skip calling `torch.compiler.disable()`d function",
            "Skip inlining `torch.compiler.disable()`d function",
        ),
        cause="the function called is marked torch.compiler.disable (or torch._dynamo.disable)",
        cure="take the mark off; if it guards a kernel that torch cannot trace, register that: rs.vendor_op",
        before="@torch.compiler.disable\ndef attention(q, k, v): ...",
        after="attention = rs.vendor_op('mine::attention', kernel, fake=shape_of, reference=plain)",
    ),
    Cure(
        kinds=(
            "Call to `torch._dynamo.graph_break()`",
            "Call to `torch._dynamo.skip_frame()`",
            "Forced graph break on leaf function",
        ),
        cause="the code asks for a graph break",
        cure="take the call out",
        before="torch._dynamo.graph_break()",
        after="",
    ),
    # Shapes of code.
    Cure(
        kinds=("graph break in loop",),
        cause="something inside a loop breaks the graph, and torch cannot resume in the middle of one: nothing of the function is compiled",
        cure="cure what breaks inside (the message names it), or move the loop's body into a function of its own",
        before="for layer in layers:\n    x = layer(x); log(x)",
        after="for layer in layers:\n    x = layer(x)\nlog(x)",
    ),
    Cure(
        kinds=("Unsupported context manager",),
        cause="torch does not know how to enter this context manager, and gives up the whole function",
        cure="enter it around the compiled call",
        before="def step(x):\n    with lock:\n        return model(x)",
        after="with lock:\n    y = compiled(x)",
    ),
    Cure(
        kinds=("Attempt to trace generator",),
        cause="the compiled function is a generator",
        cure="compile the function that does the work, and yield outside",
        before="@torch.compile\ndef steps(x):\n    yield x + 1",
        after="step = torch.compile(lambda x: x + 1)",
    ),
    Cure(
        kinds=("Invalid call to __build_class__", "LOAD_BUILD_CLASS bytecode not supported"),
        cause="a class is made while the function runs",
        cure="make it at the top of the file",
        before="def step(x):\n    class Box: ...",
        after="class Box: ...\n\ndef step(x): ...",
    ),
    Cure(
        kinds=("failed to find name in frame builtins",),
        cause="a global is read that does not exist until the function has run",
        cure="use a local name, and give the global its value outside",
        before="global last\nlast = x + 1\nreturn last * 2",
        after="last = x + 1\nreturn last * 2, last",
    ),
    Cure(
        kinds=("Observed exception", "Observed exception (EXCEPT_HANDLER)"),
        cause="the function raises, and nobody in it catches",
        cure="test before the compiled part; what must be tested on the device: torch._assert_async",
        before="if x.shape[0] == 2:\n    raise ValueError('two')",
        after="# in the caller, before the compiled function",
    ),
    Cure(
        kinds=("Reconstruction failure", "Reconstruction failure: source.reconstruct not implemented"),
        cause="an object made in the function has to be handed out, and torch cannot rebuild it",
        cure="hand out tensors and plain values; make hooks, handles and iterators outside",
        before="handle = y.register_hook(f)\nreturn y, handle",
        after="return y   # and register outside",
    ),
    Cure(
        kinds=(
            "Comparison on compile-time-only id or hash value",
            "id() with unsupported args",
            "call_id() without associated real value",
        ),
        cause="the identity of an object made in the function is asked for, and while tracing it has none",
        cure="compare what the objects hold, or use `is` on what is passed in",
        before="if id(y) in seen: ...",
        after="if name in seen: ...",
    ),
    Cure(
        kinds=(
            "Failed to unpack object for UNPACK_SEQUENCE",
            "Failed to unpack object for UNPACK_EX",
            "Length mismatch when unpacking object for UNPACK_SEQUENCE",
        ),
        cause="something is unpacked whose length torch does not know, such as a shape on older versions",
        cure="take the parts by number",
        before="batch, tokens, width = x.shape",
        after="batch, tokens, width = x.size(0), x.size(1), x.size(2)",
    ),
    Cure(
        kinds=("Dynamo recompile limit exceeded",),
        cause="the function was compiled as often as it may be, and runs in Python from now on",
        cure="find what changes from call to call and pass it as a tensor: rocsolid compiles names the guard of each recompile",
        before="compiled(x, 0.1 * step)",
        after="compiled(x, torch.tensor(0.1 * step))",
    ),
    # Tensors used in ways that a graph cannot hold.
    Cure(
        kinds=(
            "Unsupported Tensor.resize_() call",
            "Unsupported Tensor.resize_as_() call",
            "Unsupported Tensor.set_() call",
        ),
        cause="the tensor's memory is changed under it",
        cure="make a tensor of the new shape: reshape, new_empty, torch.nn.functional.pad",
        before="y.resize_(3, 2)",
        after="y = y.reshape(3, 2)",
    ),
    Cure(
        kinds=("Failed to mutate tensor data attribute", "Failed to mutate tensor data attribute to different dtype"),
        cause="`.data` is given a tensor of another shape or type",
        cure="use a new name; or copy_ where shape and type are the same",
        before="y.data = y.double()",
        after="y = y.double()",
    ),
    Cure(
        kinds=(
            "Attempted to call op with non-contiguous `out=` tensor",
            "Attempted to call op with non-contiguous `out=` list of tensors",
        ),
        cause="the tensor given as out= is not contiguous",
        cure="leave out= out: the compiler plans memory itself",
        before="torch.add(a, b, out=c.t())",
        after="c = (a + b).t()",
    ),
    Cure(
        kinds=("Shape mismatch with out= tensor variant", "Shape mismatch with out= list of tensor variants"),
        cause="the tensor given as out= has another shape than the result",
        cure="leave out= out: the compiler plans memory itself",
        before="torch.add(a, b, out=empty)",
        after="c = a + b",
    ),
    Cure(
        kinds=("Attempted to copy.deepcopy a tensor", "copy.deepcopy()"),
        cause="copy.deepcopy of a tensor",
        cure="clone it",
        before="copy.deepcopy(x)",
        after="x.clone()",
    ),
    Cure(
        kinds=("Unhandled args for method", "Unsupported Tensor.share_memory_() call"),
        pattern=r"share_memory_",
        cause="a tensor is moved into shared memory, which a graph cannot do",
        cure="share it outside the compiled part",
        before="return y.share_memory_()",
        after="return y   # and share outside",
    ),
    Cure(
        kinds=(
            "Attempted to wrap sparse Tensor with VariableTracker",
            "Attempted to wrap sparse Tensor",
            "Sparse tensor creation not supported",
        ),
        cause="a sparse tensor, which torch does not trace",
        cure="stay dense in the compiled part, or multiply outside",
        before="x.to_sparse().to_dense()",
        after="torch.where(mask, x, 0)",
    ),
    Cure(
        kinds=("Attempted to wrap strided NestedTensor", "Attempted to use strided NestedTensor"),
        cause="a nested tensor of the strided layout, which torch does not trace",
        cure="make it with layout=torch.jagged, or pad",
        before="torch.nested.nested_tensor(rows)",
        after="torch.nested.nested_tensor(rows, layout=torch.jagged)",
    ),
    Cure(
        kinds=(
            "Encountered tensor.is_inference() during tracing",
            "Encountered torch.is_inference_mode_enabled during tracing",
        ),
        cause="the code asks whether inference mode is on",
        cure="ask torch.is_grad_enabled(), which torch traces, or ask outside",
        before="if torch.is_inference_mode_enabled(): ...",
        after="if not torch.is_grad_enabled(): ...",
    ),
    # Gradients.
    Cure(
        kinds=(
            "Unsupported Tensor.requires_grad_() call",
            "setattr() on Tensor.requires_grad",
            "requires_grad_() intermediate leaked as output",
            "returning intermediate with requires_grad_()",
        ),
        cause="requires_grad is switched on inside the function",
        cure="switch it on outside, for what is passed in",
        before="y = (x + 1).requires_grad_()",
        after="def step(x): ...   # and x.requires_grad_() outside",
    ),
    Cure(
        kinds=("Attempted to use tensor creation function with requires_grad=True",),
        cause="a leaf that wants gradients is made inside the function",
        cure="make it outside and pass it in",
        before="w = torch.ones(3, requires_grad=True)",
        after="def step(x, w): ...",
    ),
    Cure(
        kinds=(
            "Attempted to use `torch.nn.Parameter()` constructor with Dynamo",
            "`torch.nn.Parameter`: cannot convert to traceable tracable",
        ),
        cause="a parameter is made inside the function",
        cure="make it in the module's __init__; inside, a plain tensor will do",
        before="w = torch.nn.Parameter(x.sum(0))",
        after="w = x.sum(0)",
    ),
    Cure(
        kinds=("Unsupported Tensor.backward() call",),
        cause="backward() is called inside the function",
        cure="return the loss and call backward() on it outside: its graph is compiled all the same",
        before="def step(x):\n    loss(x).backward()",
        after="def step(x):\n    return loss(x)\n\ncompiled(x).backward()",
    ),
    Cure(
        kinds=("using `torch.autograd.grad` with `torch._dynamo.config.trace_autograd_ops=False`",),
        cause="torch.autograd.grad is called inside the function",
        cure="use torch.func.grad, which torch traces",
        before="torch.autograd.grad(f(x), x)[0]",
        after="torch.func.grad(f)(x)",
    ),
    Cure(
        kinds=("Tensor with grad_fn()",),
        cause="grad_fn is asked for, and a traced tensor has none",
        cure="ask requires_grad instead",
        before="if y.grad_fn is not None: ...",
        after="if y.requires_grad: ...",
    ),
    # Randomness, numpy, recurrent nets.
    Cure(
        kinds=("Tensor.random_ op",),
        cause="random_ fills a tensor in place",
        cure="make it with torch.randint",
        before="torch.empty(3).random_(0, 5)",
        after="torch.randint(0, 5, (3,))",
    ),
    Cure(
        kinds=("Tensor.uniform_ op called with `from` keyword",),
        cause="uniform_ is given `from` by name, which is a word of Python's",
        cure="give the bounds by place",
        before="t.uniform_(**{'from': 0.0, 'to': 1.0})",
        after="t.uniform_(0.0, 1.0)",
    ),
    Cure(
        kinds=(
            "An opaque object was created in the middle of the program.",
            "torch.Generator method",
            "Failed to convert args/kwargs to proxy",
        ),
        pattern=r"Generator",
        cause="a torch.Generator is made or seeded inside the function",
        cure="draw the numbers outside and pass them in; or use the device's own generator, seeded by torch.manual_seed outside",
        before="g = torch.Generator(); g.manual_seed(3)\nnoise = torch.rand(4, generator=g)",
        after="def step(x, noise): ...",
    ),
    Cure(
        kinds=(
            "attempted to trace numpy function unsupported by PyTorch",
            "attempted to trace numpy.* function as a method",
        ),
        cause="a numpy function that torch has no counterpart for",
        cure="use torch's own function, or call numpy outside the compiled part",
        before="torch.from_numpy(np.random.permutation(4))",
        after="torch.randperm(4)",
    ),
    Cure(
        kinds=("Attempted to wrap RNN, GRU, or LSTM",),
        cause="torch leaves recurrent nets to the vendor's library and does not trace them",
        cure="let it: torch._dynamo.config.allow_rnn = True; or write the steps with LSTMCell",
        before="y, _ = lstm(x)",
        after="for row in x:\n    h, c = cell(row, (h, c))",
    ),
    # A vendor's kernel behind Python.
    Cure(
        kinds=("RuntimeError when making fake tensor call",),
        pattern=r"no fake impl|Meta tensors|fake impl",
        cause="the operator says nothing about the shape of its result (it has no fake), so that the compile fails",
        cure="give it a fake: rs.vendor_op for a Python function, torch.library.register_fake for an operator; rs.audit_op tells what is missing",
        before="torch.ops.vendor.kernel(x)",
        after="torch.library.register_fake('vendor::kernel', lambda x: torch.empty_like(x))",
    ),
    Cure(
        kinds=("RuntimeError when making fake tensor call", "TypeError when making fake tensor call"),
        cause="the operation fails for these shapes and types, and so does the compile; without torch.compile it would fail as well",
        cure="run the function without torch.compile and mend what it says",
    ),
    Cure(
        kinds=(
            "Operator does not support running with fake tensors",
            "NotImplementedError/UnsupportedFakeTensorException when running FX node",
            "Fake tensor propagation exception",
            "Encountered non-PT2-compliant op",
        ),
        cause="the operator says nothing about the shape of its result, so that it cannot be traced",
        cure="give it a fake: rs.vendor_op for a Python function, torch.library.register_fake for an operator; rs.audit_op tells what is missing",
        before="torch.ops.vendor.kernel(x)",
        after="torch.library.register_fake('vendor::kernel', lambda x: torch.empty_like(x))",
    ),
    Cure(
        kinds=(*_SKIPPED, "Failed to convert args/kwargs to proxy", "torch.* op returned non-Tensor"),
        cause="a function is called that torch cannot look into: C code, or a vendor's Python around it",
        cure="register it as an operator with rs.vendor_op, then it stays in the graph; plain Python helpers belong outside",
        before="y = vendor.kernel(x)",
        after="kernel = rs.vendor_op('vendor::kernel', vendor.kernel, fake=torch.empty_like, reference=plain)\ny = kernel(x)",
    ),
)


def cure_of(kind: str, said: str, line: str) -> Cure | None:
    """The cure for a break that torch calls `kind`, given what else it said and the line of code."""
    text = f"{said}\n{line}"
    return next((cure for cure in BREAKS if cure.fits(kind, text)), None)
