"""Causes of graph breaks, each with its fix.

Torch gives every graph break a type (`gb_type`). One type can cover several constructs: "Attempted to call function marked as
skipped" may be a clock, a warning or a vendor's kernel. The first matching cause is used, so special causes come before general ones.
"""

from typing import Final

from rocsolid.model.known_cause import KnownCause

_BRANCH: Final = ("Data-dependent branching", "Data-dependent branching with non-constant __bool__")
_ITEM: Final = ("Unsupported Tensor.item() call with capture_scalar_outputs=False",)
_PYTHON_VALUE: Final = ("Data dependent operator",)
_DYNAMIC_SHAPE: Final = ("Dynamic shape operator", "Dynamic shape operator (no meta kernel)")
_BUILTIN: Final = ("Failed to trace builtin operator",)
_SKIPPED: Final = (
    "Attempted to call function marked as skipped",
    "Attempted to inline function marked as skipped",
    "Attempted to inline function marked as skipped (SkipFunctionVariable)",
    "Unsupported function call",
    "Unsupported method call",
    "can't handle functions not implemented in python ",
)
_GRAPH_BREAK: Final = (
    "Call to `torch._dynamo.graph_break()`",
    "Call to `torch._dynamo.skip_frame()`",
    "Forced graph break on leaf function",
)

# The CPU needs the value of a tensor.
_VALUES: Final = (
    KnownCause(
        gb_types=_BRANCH,
        pattern=r"(?m)^while\b|\bwhile\b.*:",
        cause="`while` on a tensor: Python needs its value on the CPU before every iteration",
        fix="run a fixed number of iterations and select with `torch.where`, or use `torch.while_loop`",
        before="while x.sum() < 100:\n    x = x * 2",
        after="for _ in range(MAX_STEPS):\n    x = torch.where(x.sum() < 100, x * 2, x)",
    ),
    KnownCause(
        gb_types=_BRANCH,
        pattern=r"\bassert\b",
        cause="`assert` on a tensor, with a message that is not a plain string",
        fix="`assert condition, 'text'`: with a plain string, or without a message, torch keeps the assert in the graph",
        before="assert x.sum() < 100, ValueError('too big')",
        after="assert x.sum() < 100, 'too big'",
    ),
    KnownCause(
        gb_types=_BRANCH,
        pattern=r"\n(?!.*\b(?:if|while|assert)\b).*\b(?:and|or)\b.*\Z",
        cause="`and` or `or` between tensors: Python needs the value of the first one on the CPU",
        fix="combine them with `&` and `|`, which return a tensor",
        before="ok = (x > 0).all() and (x < 1).all()",
        after="ok = (x > 0).all() & (x < 1).all()",
    ),
    KnownCause(
        gb_types=_BRANCH,
        cause="`if` on a tensor: Python needs its value on the CPU to choose the branch",
        fix="`torch.where(condition, a, b)` computes both branches and selects; use `torch.cond` if one branch is too expensive or cannot be computed",
        before="if x.sum() > 0:\n    y = x * 2\nelse:\n    y = x - 1",
        after="y = torch.where(x.sum() > 0, x * 2, x - 1)",
    ),
    KnownCause(
        gb_types=_ITEM,
        pattern=r"(?<!Tensor)\.item\(",
        cause="`Tensor.item()` needs the value on the CPU, so Python waits for the GPU",
        fix="remove `.item()` and compute with the tensor, which broadcasts like a number; if Python needs the number, call `.item()` outside the compiled function",
        before="scale = x.max().item()\nreturn x / scale",
        after="scale = x.max()\nreturn x / scale",
        underline=("item",),
    ),
    KnownCause(
        gb_types=_ITEM,
        pattern=r"\bbool\(",
        cause="`bool(tensor)` needs the value on the CPU, so Python waits for the GPU",
        fix="keep the condition as a tensor and select with `torch.where(condition, a, b)`",
        before="positive = bool(x.sum() > 0)\nreturn x * 2 if positive else x",
        after="positive = x.sum() > 0\nreturn torch.where(positive, x * 2, x)",
        underline=("bool",),
    ),
    KnownCause(
        gb_types=_ITEM,
        pattern=r"\bfloat\(",
        cause="`float(tensor)` needs the value on the CPU, so Python waits for the GPU",
        fix="remove `float()` and compute with the tensor, which broadcasts like a number",
        before="scale = float(x.max())\nreturn x / scale",
        after="scale = x.max()\nreturn x / scale",
        underline=("float",),
    ),
    KnownCause(
        gb_types=_ITEM,
        pattern=r"\bint\(",
        cause="`int(tensor)` needs the value on the CPU, so Python waits for the GPU",
        fix="compute with the tensor; for a size or a loop count, pass a Python int to the compiled function",
        before="n = int(lengths.max())\nreturn x[:, :n]",
        after="def step(x, n):   # n = int(lengths.max()), computed outside\n    return x[:, :n]",
        underline=("int",),
    ),
    KnownCause(
        gb_types=_ITEM,
        cause="a tensor is used where Python needs a number, such as a slice bound: this calls `Tensor.item()`",
        fix="pass a Python int to the compiled function, or keep the full size and mask with `torch.where`",
        before="return x[:n].sum()   # n is a tensor",
        after="keep = torch.arange(x.shape[0], device=x.device) < n\nreturn torch.where(keep, x, 0).sum()",
    ),
    KnownCause(
        gb_types=("Tensor.tolist() with non-integer tensor", *_PYTHON_VALUE),
        pattern=r"tolist\(",
        cause="`Tensor.tolist()` needs the values on the CPU, so Python waits for the GPU",
        fix="compute on the tensor instead of the list",
        before="total = sum(x.tolist())",
        after="total = x.sum()",
        underline=("tolist",),
    ),
    KnownCause(
        gb_types=_PYTHON_VALUE,
        pattern=r"aten\.equal\b|\bequal\(",
        cause="`torch.equal` returns a Python bool, which needs the values on the CPU",
        fix="`(a == b).all()` returns a tensor; select with `torch.where`",
        before="y = x * 2 if torch.equal(a, b) else x * 3",
        after="y = torch.where((a == b).all(), x * 2, x * 3)",
        underline=("equal",),
    ),
    KnownCause(
        gb_types=_PYTHON_VALUE,
        pattern=r"aten\.allclose\b|\ballclose\(",
        cause="`torch.allclose` returns a Python bool, which needs the values on the CPU",
        fix="`torch.isclose(a, b).all()` returns a tensor; select with `torch.where`",
        before="y = x * 2 if torch.allclose(a, b) else x * 3",
        after="y = torch.where(torch.isclose(a, b).all(), x * 2, x * 3)",
        underline=("allclose",),
    ),
    KnownCause(
        gb_types=_PYTHON_VALUE,
        pattern=r"\bmath\.\w+\(",
        cause="a `math` function on a tensor needs the value on the CPU",
        fix="use the torch function of the same name, such as `torch.sqrt`",
        before="return x / math.sqrt(x.max())",
        after="return x / torch.sqrt(x.max())",
        underline=("sqrt", "exp", "log", "floor", "ceil", "pow", "sin", "cos", "isnan", "isinf"),
    ),
    KnownCause(
        gb_types=_PYTHON_VALUE,
        pattern=r"\bnp\.|\bnumpy\b",
        cause="a NumPy scalar is turned into a Python number, which needs the value on the CPU",
        fix="compute with torch instead of NumPy, for example `x.sum()` for `x.numpy().sum()`",
        before="return x * float(x.numpy().sum())",
        after="return x * x.sum()",
        underline=("numpy", "float", "int"),
    ),
    KnownCause(
        gb_types=_PYTHON_VALUE,
        cause="the operator returns a Python value that depends on the data, so it needs the tensor's value on the CPU",
        fix="use an operator that returns a tensor, such as `(a == b).all()`, and select with `torch.where`",
        before="y = x * 2 if torch.equal(a, b) else x * 3",
        after="y = torch.where((a == b).all(), x * 2, x * 3)",
    ),
    KnownCause(
        gb_types=_DYNAMIC_SHAPE,
        pattern=r"unique",
        cause="`torch.unique` returns a tensor whose shape depends on data",
        fix="count into a tensor of fixed size with `index_add`, or call `torch.unique` outside the compiled function",
        before="values = torch.unique(x)",
        after="counts = torch.zeros(MAX_VALUE + 1).index_add(0, x, torch.ones_like(x, dtype=torch.float))",
        underline=("unique", "unique_consecutive"),
    ),
    KnownCause(
        gb_types=_DYNAMIC_SHAPE,
        pattern=r"bincount",
        cause="`torch.bincount` returns a tensor whose shape depends on data, also with `minlength`",
        fix="count into a tensor of fixed size with `index_add`",
        before="counts = torch.bincount(x)",
        after="counts = torch.zeros(MAX_VALUE + 1).index_add(0, x, torch.ones_like(x, dtype=torch.float))",
        underline=("bincount",),
    ),
    KnownCause(
        gb_types=_DYNAMIC_SHAPE,
        pattern=r"repeat_interleave",
        cause="`torch.repeat_interleave` with a tensor of repeats returns a tensor whose shape depends on data",
        fix="`torch.repeat_interleave(x, repeats, output_size=N)`: give the size of the result",
        before="y = torch.repeat_interleave(x, repeats, dim=0)",
        after="y = torch.repeat_interleave(x, repeats, dim=0, output_size=N)",
        underline=("repeat_interleave",),
    ),
    KnownCause(
        gb_types=_DYNAMIC_SHAPE,
        pattern=r"masked_select",
        cause="`torch.masked_select` returns a tensor whose shape depends on data",
        fix="`torch.where(mask, x, 0)` keeps the shape; elements outside the mask become 0",
        before="total = torch.masked_select(x, mask).sum()",
        after="total = torch.where(mask, x, 0).sum()",
        underline=("masked_select",),
    ),
    KnownCause(
        gb_types=_DYNAMIC_SHAPE,
        pattern=r"\b(?:nonzero|argwhere)\(|\btorch\.where\(",
        cause="`torch.nonzero` (also `argwhere` and `torch.where(condition)`) returns a tensor whose shape depends on data",
        fix="`torch.nonzero_static(x, size=N)` returns N rows, padded; or keep the shape and mask with `torch.where(condition, x, 0)`",
        before="rows = torch.nonzero(x)",
        after="rows = torch.nonzero_static(x, size=N)",
        underline=("nonzero", "argwhere", "where"),
    ),
    KnownCause(
        gb_types=_DYNAMIC_SHAPE,
        cause="indexing with a boolean mask, `x[mask]`, returns a tensor whose shape depends on data",
        fix="`torch.where(mask, x, 0)` keeps the shape; elements outside the mask become 0",
        before="total = x[x > 0].sum()",
        after="total = torch.where(x > 0, x, 0).sum()",
    ),
    KnownCause(
        gb_types=("Attempted to use `torch.nn.functional.one_hot` with data-dependent output shape",),
        cause="`F.one_hot` without `num_classes`: the largest value decides the shape of the result",
        fix="`F.one_hot(labels, num_classes=N)`",
        before="F.one_hot(labels)",
        after="F.one_hot(labels, num_classes=N)",
        underline=("one_hot",),
    ),
    KnownCause(
        gb_types=(
            "Dynamic slicing with Tensor arguments",
            "Indexing list with non-scalar tensor",
            "unsupported index(Tensor)",
        ),
        cause="a Python list or a slice is indexed by a tensor",
        fix="`torch.stack(choices)[i]`: keep the elements in one tensor and index that",
        before="y = choices[i]",
        after="y = torch.stack(choices)[i]",
    ),
    KnownCause(
        gb_types=("sort with non-constant keys",),
        cause="`sorted()` or `list.sort()` compares tensors, which needs their values on the CPU",
        fix="use `torch.sort`, or index with the result of `argsort`",
        before="torch.stack(sorted([a, b], key=lambda t: t.sum()))",
        after="rows = torch.stack([a, b])\nrows[rows.flatten(1).sum(1).argsort()]",
        underline=("sorted", "sort"),
    ),
    KnownCause(
        gb_types=_BUILTIN,
        pattern=r"builtin `?(operator )?`?sorted\b",
        cause="`sorted()` on a tensor needs its values on the CPU",
        fix="`torch.sort(x).values`",
        before="torch.stack(sorted(x))",
        after="torch.sort(x).values",
        underline=("sorted",),
    ),
    KnownCause(
        gb_types=_BUILTIN,
        pattern=r"builtin `?(operator )?`?range\b",
        cause="`range(tensor)` needs the value on the CPU",
        fix="pass a Python int to the compiled function, or loop to a fixed maximum and select with `torch.where`",
        before="for i in range(n):   # n is a tensor\n    x = x + 1",
        after="for i in range(MAX_STEPS):\n    x = torch.where(i < n, x + 1, x)",
        underline=("range",),
    ),
    KnownCause(
        gb_types=("Data pointer comparison", "Observed exception"),
        pattern=r"data_ptr|[Dd]ata pointer",
        cause="`Tensor.data_ptr()`: a tensor that is being traced has no address",
        fix="compare with `is`, or call `data_ptr()` outside the compiled function",
        before="if y.data_ptr() == x.data_ptr(): ...",
        after="if y is x: ...",
        underline=("data_ptr",),
    ),
)

# Printing, logging, clocks, files and other side effects.
_SIDE_EFFECTS: Final = (
    KnownCause(
        gb_types=_BUILTIN,
        pattern=r"builtin `?(operator )?`?print\b|\bprint\(",
        cause="`print()` inside a compiled function",
        fix="print outside the compiled function; or let torch print at run time: `torch._dynamo.config.reorderable_logging_functions.add(print)`",
        before="print('sum', x.sum())\nreturn x * 2",
        after="return x * 2, x.sum()   # the caller prints",
        underline=("print",),
    ),
    KnownCause(
        gb_types=_BUILTIN,
        pattern=r"builtin `?open\b|\bopen\(",
        cause="`open()` inside a compiled function",
        fix="read the file outside the compiled function and pass in the contents",
        before="with open(file) as f:\n    scale = float(f.read())",
        after="def step(x, scale): ...   # read once, outside",
        underline=("open",),
    ),
    KnownCause(
        gb_types=(
            *_BUILTIN,
            "repr() on tensor",
            "Attempted to a str() method implemented in C/C++",
        ),
        pattern=r"builtin `?(str|repr|format)\b|\b(str|repr|format)\(",
        cause="`str()`, `repr()` or `format()` of a tensor needs its values on the CPU",
        fix="format only shapes and dtypes inside the compiled function; format tensors outside",
        before="name = str(x)",
        after="name = str(tuple(x.shape))",
        underline=("str", "repr", "format"),
    ),
    KnownCause(
        gb_types=("Observed exception",),
        pattern=r"object of type 'str' has no len|f['\"].*\{|format\(",
        cause="an f-string with a tensor needs its values on the CPU",
        fix="format only shapes and dtypes inside the compiled function; format tensors outside",
        before="name = f'{x}'",
        after="name = f'{tuple(x.shape)}'",
    ),
    KnownCause(
        gb_types=("torch.* op returned non-Tensor",),
        pattern=r"['\"]\s*%",
        cause="`'%s' % tensor` needs its values on the CPU",
        fix="format only shapes and dtypes inside the compiled function; format tensors outside",
        before="name = '%s' % x",
        after="name = '%s' % (tuple(x.shape),)",
    ),
    KnownCause(
        gb_types=("logging.Logger method not supported for non-export cases",),
        cause="a `logger` call inside a compiled function",
        fix="log outside the compiled function; or let torch skip the call: `torch._dynamo.config.ignore_logging_functions.add(logger.info)`",
        before="logger.info('step')\nreturn x * 2",
        after="return x * 2   # the caller logs",
        underline=("debug", "info", "warning", "error", "exception", "critical", "log"),
    ),
    KnownCause(
        gb_types=("Unsupported python_type() call",),
        pattern=r"\blogging\.\w+\(",
        cause="a `logging` call inside a compiled function",
        fix="log outside the compiled function",
        before="logging.warning('step')\nreturn x * 2",
        after="return x * 2   # the caller logs",
        underline=("debug", "info", "warning", "error", "exception", "critical", "log"),
    ),
    KnownCause(
        gb_types=_SKIPPED,
        pattern=r"qualname: warn\b",
        cause="`warnings.warn()` inside a compiled function",
        fix="warn in the caller: the shapes and flags that the warning depends on are known there",
        before="warnings.warn('slow path')",
        after="# in the caller, before the compiled call\nwarnings.warn('slow path')",
        underline=("warn",),
    ),
    KnownCause(
        gb_types=_SKIPPED,
        pattern=r"module: (time|datetime)\b|datetime|\btime\.\w+\(",
        cause="a clock function (`time` or `datetime`) inside a compiled function",
        fix="time the compiled call from outside, with `torch.cuda.Event(enable_timing=True)` on a GPU",
        before="start = time.perf_counter()\ny = model(x)",
        after="start.record(); y = compiled(x); end.record()",
        underline=("time", "perf_counter", "monotonic", "process_time", "sleep", "now", "today"),
    ),
    KnownCause(
        gb_types=_SKIPPED,
        pattern=r"module: _?random|\brandom\.|SystemRandom",
        cause="a random number from Python's `random` module, drawn in a way that Dynamo cannot trace",
        fix="`torch.rand((), device=x.device)`",
        before="x * random.SystemRandom().random()",
        after="x * torch.rand((), device=x.device)",
        underline=("random", "randint", "uniform", "choice", "SystemRandom"),
    ),
    KnownCause(
        gb_types=_SKIPPED,
        pattern=r"\bmanual_seed\b",
        cause="`torch.manual_seed()` inside a compiled function",
        fix="seed outside the compiled function",
        before="torch.manual_seed(0)\nreturn x + torch.rand(3)",
        after="torch.manual_seed(0)   # in the caller\ny = compiled(x)",
        underline=("manual_seed",),
    ),
    KnownCause(
        gb_types=_SKIPPED,
        pattern=r"lru_cache|functools",
        cause=(
            "a function wrapped in `functools.lru_cache` or `functools.cache`, which Dynamo cannot "
            "trace because they are written in C"
        ),
        fix="call it outside and pass in the result, or call the plain function: `table.__wrapped__(n)`",
        before="@functools.lru_cache\ndef table(n): ...",
        after="TABLE = table(64)   # once, outside",
    ),
    KnownCause(
        gb_types=_SKIPPED,
        pattern=r"\bjson\b|\bre\b|yaml|JSONDecoder|scan_once",
        cause="text is parsed inside a compiled function (`json`, `re`, `yaml`)",
        fix="parse outside the compiled function and pass in the result",
        before="scale = json.loads(text)['scale']",
        after="def step(x, scale): ...   # parse once, outside",
        underline=("loads", "load", "match", "search", "sub", "findall", "split", "safe_load"),
    ),
    KnownCause(
        gb_types=_SKIPPED,
        pattern=r"pickle|torch\.save\(|torch\.load\(|function `(?:save|load)`",
        cause="data is saved or loaded inside a compiled function (`pickle`, `torch.save`, `torch.load`)",
        fix="save and load outside the compiled function",
        before="torch.save(x, file)\nreturn x * 2",
        after="torch.save(x, file)   # in the caller\ny = compiled(x)",
        underline=("save", "load", "dumps", "loads", "dump"),
    ),
    KnownCause(
        gb_types=(*_SKIPPED, *_GRAPH_BREAK),
        pattern=r"\.zero_grad\(|\bopt\w*\.step\(",
        cause="an optimizer inside the compiled function: torch breaks the graph there",
        fix="compile the model or the loss alone, and call the optimizer outside; `rocsolid breaks --as-is` lists only the breaks in "
        "what your program compiles itself",
        before="@torch.compile\ndef step(x):\n    model(x).mean().backward()\n    opt.step()",
        after="model = torch.compile(model)\n\ndef step(x):\n    model(x).mean().backward()\n    opt.step()",
        underline=("zero_grad", "step"),
    ),
    KnownCause(
        gb_types=_SKIPPED,
        pattern=r"inspect|currentframe|_getframe",
        cause="`inspect` or `sys._getframe()` inside a compiled function",
        fix="call it outside the compiled function and pass in the result",
        before="name = inspect.currentframe().f_code.co_name",
        after="def step(x, name): ...",
        underline=("currentframe", "_getframe", "signature", "getsource", "stack"),
    ),
    KnownCause(
        gb_types=(
            "Skip calling `torch.compiler.disable()`d function",
            "Skip inlining `torch.compiler.disable()`d function",
        ),
        cause="the called function is decorated with `torch.compiler.disable` (or `torch._dynamo.disable`)",
        fix="remove the decorator; if the function calls a kernel that Dynamo cannot trace, register the kernel with `rs.vendor_op`",
        before="@torch.compiler.disable\ndef attention(q, k, v): ...",
        after="attention = rs.vendor_op('mine::attention', kernel, fake=shape_of, reference=plain)",
    ),
    KnownCause(
        gb_types=_GRAPH_BREAK,
        cause="`torch._dynamo.graph_break()` requests the break",
        fix="remove the call",
        before="torch._dynamo.graph_break()",
        underline=("graph_break", "skip_frame"),
    ),
)

# Loops, context managers, classes, exceptions.
_CONTROL_FLOW: Final = (
    KnownCause(
        gb_types=("graph break in loop",),
        cause="graph break inside a loop: torch cannot resume there, so the whole function runs in eager",
        fix="remove the break inside the loop (torch's message names it), or move the loop body into its own function",
        before="for layer in layers:\n    x = layer(x)\n    print(x)",
        after="for layer in layers:\n    x = layer(x)\nreturn x   # the caller prints",
    ),
    KnownCause(
        gb_types=("Unsupported context manager",),
        cause="`with` on a context manager that Dynamo cannot trace: the whole function runs in eager",
        fix="enter the context manager outside the compiled function",
        before="def step(x):\n    with lock:\n        return model(x)",
        after="with lock:\n    y = compiled(x)",
    ),
    KnownCause(
        gb_types=("Attempt to trace generator",),
        cause="the compiled function is a generator (it contains `yield`)",
        fix="compile only the function that computes, and `yield` outside it",
        before="@torch.compile\ndef steps(x):\n    yield x + 1",
        after="step = torch.compile(lambda x: x + 1)",
    ),
    KnownCause(
        gb_types=("Invalid call to __build_class__", "LOAD_BUILD_CLASS bytecode not supported"),
        cause="a `class` is defined inside the compiled function",
        fix="define the class at module level",
        before="def step(x):\n    class Box: ...",
        after="class Box: ...\n\ndef step(x): ...",
    ),
    KnownCause(
        gb_types=("failed to find name in frame builtins",),
        cause="a `global` is read that does not exist before the function runs",
        fix="use a local variable, and assign the global outside the compiled function",
        before="global last\nlast = x + 1\nreturn last * 2",
        after="last = x + 1\nreturn last * 2, last",
    ),
    KnownCause(
        gb_types=("Observed exception", "Observed exception (EXCEPT_HANDLER)"),
        cause="the compiled function raises an exception that it does not catch",
        fix="check before the compiled call; for a check on the GPU use `torch._assert_async`",
        before="if x.shape[0] == 2:\n    raise ValueError('two')",
        after="# in the caller, before the compiled call\nif x.shape[0] == 2:\n    raise ValueError('two')",
    ),
    KnownCause(
        gb_types=("Reconstruction failure", "Reconstruction failure: source.reconstruct not implemented"),
        cause="the compiled function returns an object that Dynamo cannot rebuild, such as a hook handle or an iterator",
        fix="return tensors and plain Python values; create hooks, handles and iterators outside",
        before="handle = y.register_hook(f)\nreturn y, handle",
        after="return y   # the caller registers the hook",
        underline=("register_hook", "iter"),
    ),
    KnownCause(
        gb_types=(
            "Comparison on compile-time-only id or hash value",
            "id() with unsupported args",
            "call_id() without associated real value",
        ),
        cause="`id()` or `hash()` of an object created inside the compiled function: it has no identity while tracing",
        fix="compare what the objects contain, or use `is` on arguments",
        before="if id(y) in seen: ...",
        after="if name in seen: ...",
        underline=("id", "hash"),
    ),
    KnownCause(
        gb_types=(
            "Failed to unpack object for UNPACK_SEQUENCE",
            "Failed to unpack object for UNPACK_EX",
            "Length mismatch when unpacking object for UNPACK_SEQUENCE",
        ),
        cause=(
            "unpacking (`a, b = ...`) of an object whose length Dynamo does not know, such as a "
            "shape in older versions of torch"
        ),
        fix="take the elements by index: `x.size(0), x.size(1)`",
        before="batch, tokens, width = x.shape",
        after="batch, tokens, width = x.size(0), x.size(1), x.size(2)",
    ),
    KnownCause(
        gb_types=("Dynamo recompile limit exceeded",),
        cause="`recompile_limit` reached: the function runs in eager from now on",
        fix="find what changes from call to call (`rocsolid compiles` shows the failed guard of each recompile) and pass it as a tensor",
        before="compiled(x, 0.1 * step)",
        after="compiled(x, torch.tensor(0.1 * step))",
    ),
)

# Tensor operations and layouts that an FX graph cannot express.
_TENSORS: Final = (
    KnownCause(
        gb_types=(
            "Unsupported Tensor.resize_() call",
            "Unsupported Tensor.resize_as_() call",
            "Unsupported Tensor.set_() call",
        ),
        cause="`Tensor.resize_()` or `Tensor.set_()` changes the memory of a tensor",
        fix="create a tensor of the new shape: `reshape`, `new_empty` or `torch.nn.functional.pad`",
        before="y.resize_(3, 2)",
        after="y = y.reshape(3, 2)",
        underline=("resize_", "resize_as_", "set_"),
    ),
    KnownCause(
        gb_types=(
            "Failed to mutate tensor data attribute",
            "Failed to mutate tensor data attribute to different dtype",
        ),
        cause="`.data = ...` assigns a tensor of another shape or dtype",
        fix="assign to a new variable; use `copy_()` if shape and dtype are the same",
        before="y.data = y.double()",
        after="y = y.double()",
        underline=("data",),
    ),
    KnownCause(
        gb_types=(
            "Attempted to call op with non-contiguous `out=` tensor",
            "Attempted to call op with non-contiguous `out=` list of tensors",
        ),
        cause="the tensor passed as `out=` is not contiguous",
        fix="remove `out=`: the compiler plans memory itself",
        before="torch.add(a, b, out=c.t())",
        after="c = (a + b).t()",
    ),
    KnownCause(
        gb_types=("Shape mismatch with out= tensor variant", "Shape mismatch with out= list of tensor variants"),
        cause="the tensor passed as `out=` has a different shape than the result",
        fix="remove `out=`: the compiler plans memory itself",
        before="torch.add(a, b, out=empty)",
        after="c = a + b",
    ),
    KnownCause(
        gb_types=("Attempted to copy.deepcopy a tensor", "copy.deepcopy()"),
        cause="`copy.deepcopy()` of a tensor",
        fix="`x.clone()`",
        before="copy.deepcopy(x)",
        after="x.clone()",
        underline=("deepcopy",),
    ),
    KnownCause(  # torch 2.12
        gb_types=("Unsupported call_id() without source",),
        pattern=r"\bdeepcopy\b",
        cause="`copy.deepcopy()` of a tensor",
        fix="`x.clone()`",
        before="copy.deepcopy(x)",
        after="x.clone()",
        underline=("deepcopy",),
    ),
    KnownCause(
        gb_types=("Unhandled args for method", "Unsupported Tensor.share_memory_() call"),
        pattern=r"share_memory_",
        cause="`Tensor.share_memory_()` cannot be part of a graph",
        fix="call `share_memory_()` outside the compiled function",
        before="return y.share_memory_()",
        after="return y   # the caller calls share_memory_()",
        underline=("share_memory_",),
    ),
    KnownCause(
        gb_types=(
            "Attempted to wrap sparse Tensor with VariableTracker",
            "Attempted to wrap sparse Tensor",
            "Sparse tensor creation not supported",
        ),
        cause="a sparse tensor: Dynamo does not trace sparse layouts",
        fix="use dense tensors inside the compiled function, and do the sparse product outside",
        before="x.to_sparse().to_dense()",
        after="torch.where(mask, x, 0)",
        underline=("to_sparse", "sparse_coo_tensor", "sparse_csr_tensor"),
    ),
    KnownCause(
        gb_types=("Attempted to wrap strided NestedTensor", "Attempted to use strided NestedTensor"),
        cause="a nested tensor with the strided layout: Dynamo does not trace it",
        fix="use `layout=torch.jagged`, or pad to one size",
        before="torch.nested.nested_tensor(rows)",
        after="torch.nested.nested_tensor(rows, layout=torch.jagged)",
        underline=("nested_tensor", "as_nested_tensor"),
    ),
    KnownCause(
        gb_types=(
            "Encountered tensor.is_inference() during tracing",
            "Encountered torch.is_inference_mode_enabled during tracing",
        ),
        cause="`is_inference()` or `is_inference_mode_enabled()`: Dynamo does not trace queries of inference mode",
        fix="`torch.is_grad_enabled()`, which Dynamo traces; or check outside",
        before="if torch.is_inference_mode_enabled(): ...",
        after="if not torch.is_grad_enabled(): ...",
        underline=("is_inference", "is_inference_mode_enabled"),
    ),
)

# Autograd inside the compiled function.
_GRADIENTS: Final = (
    KnownCause(
        gb_types=(
            "Unsupported Tensor.requires_grad_() call",
            "setattr() on Tensor.requires_grad",
            "requires_grad_() intermediate leaked as output",
            "returning intermediate with requires_grad_()",
        ),
        cause="`requires_grad` is set inside the compiled function",
        fix="call `x.requires_grad_()` outside, on the inputs",
        before="y = (x + 1).requires_grad_()",
        after="x.requires_grad_()   # in the caller\ny = compiled(x)",
        underline=("requires_grad_", "requires_grad"),
    ),
    KnownCause(
        gb_types=("Attempted to use tensor creation function with requires_grad=True",),
        cause="a tensor is created with `requires_grad=True` inside the compiled function",
        fix="create it outside and pass it in",
        before="w = torch.ones(3, requires_grad=True)",
        after="def step(x, w): ...",
    ),
    KnownCause(
        gb_types=(
            "Attempted to use `torch.nn.Parameter()` constructor with Dynamo",
            "`torch.nn.Parameter`: cannot convert to traceable tracable",
        ),
        cause="`torch.nn.Parameter` (or a layer that has one) is created inside the compiled function",
        fix="create it in the module's `__init__`; inside the compiled function use a plain tensor",
        before="w = torch.nn.Parameter(x.sum(0))",
        after="w = x.sum(0)",
        underline=("Parameter",),
    ),
    KnownCause(
        gb_types=("Unsupported Tensor.backward() call",),
        cause="`Tensor.backward()` inside the compiled function",
        fix="return the loss and call `.backward()` outside: the backward graph is compiled as well",
        before="def step(x):\n    loss(x).backward()",
        after="def step(x):\n    return loss(x)\n\ncompiled(x).backward()",
        underline=("backward",),
    ),
    KnownCause(
        gb_types=("using `torch.autograd.grad` with `torch._dynamo.config.trace_autograd_ops=False`",),
        cause="`torch.autograd.grad` inside the compiled function",
        fix="`torch.func.grad`, which Dynamo traces",
        before="torch.autograd.grad(f(x), x)[0]",
        after="torch.func.grad(f)(x)",
        underline=("grad",),
    ),
    KnownCause(
        gb_types=("Tensor with grad_fn()",),
        cause="`Tensor.grad_fn`: a traced tensor has none",
        fix="`y.requires_grad`",
        before="if y.grad_fn is not None: ...",
        after="if y.requires_grad: ...",
        underline=("grad_fn",),
    ),
)

# Random numbers, NumPy, recurrent networks.
_LIBRARIES: Final = (
    KnownCause(
        gb_types=("Tensor.random_ op",),
        cause="`Tensor.random_()`, which Dynamo does not trace",
        fix="`torch.randint(low, high, size)`",
        before="torch.empty(3).random_(0, 5)",
        after="torch.randint(0, 5, (3,))",
        underline=("random_",),
    ),
    KnownCause(
        gb_types=("Tensor.uniform_ op called with `from` keyword",),
        cause="`Tensor.uniform_()` is called with the keyword `from`",
        fix="pass the bounds by position: `t.uniform_(0.0, 1.0)`",
        before="t.uniform_(**{'from': 0.0, 'to': 1.0})",
        after="t.uniform_(0.0, 1.0)",
        underline=("uniform_",),
    ),
    KnownCause(
        gb_types=(
            "An opaque object was created in the middle of the program.",
            "torch.Generator method",
            "Failed to convert args/kwargs to proxy",
        ),
        pattern=r"Generator",
        cause="a `torch.Generator` is created or seeded inside the compiled function",
        fix="draw the numbers outside and pass them in; or use the default generator, seeded outside with `torch.manual_seed`",
        before="g = torch.Generator(); g.manual_seed(3)\nnoise = torch.rand(4, generator=g)",
        after="def step(x, noise): ...",
        underline=("Generator", "manual_seed"),
    ),
    KnownCause(
        gb_types=(
            "attempted to trace numpy function unsupported by PyTorch",
            "attempted to trace numpy.* function as a method",
        ),
        cause="a NumPy function that has no torch counterpart",
        fix="use a torch function, or call NumPy outside the compiled function",
        before="torch.from_numpy(np.random.permutation(4))",
        after="torch.randperm(4)",
    ),
    KnownCause(
        gb_types=("Attempted to wrap RNN, GRU, or LSTM",),
        cause="`torch.nn.RNN`, `GRU` or `LSTM`: Dynamo does not trace recurrent networks by default",
        fix="set `torch._dynamo.config.allow_rnn = True`, or write the steps with `LSTMCell`",
        before="y, _ = lstm(x)",
        after="for row in x:\n    h, c = cell(row, (h, c))",
    ),
)

# Operators and functions that Dynamo cannot trace. General causes, so they come last.
_OPERATORS: Final = (
    KnownCause(
        gb_types=("RuntimeError when making fake tensor call",),
        pattern=r"no fake impl|Meta tensors|fake impl",
        cause="the operator has no fake implementation, so Dynamo does not know the shape of its result and the compile fails",
        fix="add one: `torch.library.register_fake` for an operator, `rs.vendor_op` for a Python function; `rs.audit_op` lists what is missing",
        before="torch.ops.vendor.kernel(x)",
        after="torch.library.register_fake('vendor::kernel', lambda x: torch.empty_like(x))",
    ),
    KnownCause(
        gb_types=("RuntimeError when making fake tensor call", "TypeError when making fake tensor call"),
        cause="the operation is invalid for these shapes or dtypes, so the compile fails; it fails in eager, too",
        fix="run the function without `torch.compile` and fix the error it raises",
    ),
    KnownCause(
        gb_types=(
            "Operator does not support running with fake tensors",
            "NotImplementedError/UnsupportedFakeTensorException when running FX node",
            "Fake tensor propagation exception",
            "Encountered non-PT2-compliant op",
        ),
        cause="the operator has no fake implementation, so Dynamo does not know the shape of its result",
        fix="add one: `torch.library.register_fake` for an operator, `rs.vendor_op` for a Python function; `rs.audit_op` lists what is missing",
        before="torch.ops.vendor.kernel(x)",
        after="torch.library.register_fake('vendor::kernel', lambda x: torch.empty_like(x))",
    ),
    KnownCause(
        gb_types=(*_SKIPPED, "Failed to convert args/kwargs to proxy", "torch.* op returned non-Tensor"),
        cause="a call that Dynamo cannot trace: a C function, or a vendor's Python function that calls one",
        fix="register a kernel as an operator with `rs.vendor_op`, so that it stays in the graph; call plain Python helpers outside",
        before="y = vendor.kernel(x)",
        after="kernel = rs.vendor_op('vendor::kernel', vendor.kernel, fake=torch.empty_like, reference=plain)\ny = kernel(x)",
    ),
)

BREAK_CAUSES: Final = (
    *_VALUES,
    *_SIDE_EFFECTS,
    *_CONTROL_FLOW,
    *_TENSORS,
    *_GRADIENTS,
    *_LIBRARIES,
    *_OPERATORS,
)


def find_break_cause(gb_type: str, message: str, line: str) -> KnownCause | None:
    """The cause of a graph break, from its type, torch's message and the user's source line; None if it is not known."""
    text = f"{message}\n{line}"
    return next((cause for cause in BREAK_CAUSES if cause.matches(gb_type, text)), None)
