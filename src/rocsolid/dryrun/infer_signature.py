"""Infers from source how a Triton kernel is called: which arguments are pointers, to what, and the values of its constants.

It reads the kernel, the device functions that it calls, and the lines that launch it. What these do not say is assumed, in several
variants: the first one that Triton accepts is used.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from rocsolid.dryrun.kernel_signature import OPTIONS
from rocsolid.dryrun.request import KernelSignature

_MEMORY: Final = re.compile(r"^(?:tl\.)?(?:load|store|atomic_\w+|make_block_ptr|make_tensor_descriptor)$")
_INTEGER: Final = re.compile(
    r"idx|indices|index|offset|offs(?:_|$)|cu_seq|seqlen|(?:^|_)lens?(?:$|_)|_ids?(?:_|$)|(?:^|_)ids?_|table|(?:^|_)locs?(?:_|$)|pos(?:ition)?s?(?:_|$)|slot"
    r"|num_|count|label|target|token|page|block_?map|perm|req_|chunk_i|bitmask|n_rounds|start|mapping|order|rank|accepted|seed",
    re.IGNORECASE,
)
_ADDRESSES: Final = re.compile(r"addr|ptrs", re.IGNORECASE)
_MASK: Final = re.compile(r"mask|has_initial|flag|is_", re.IGNORECASE)
_WIDE: Final = re.compile(
    r"scale|lse|mean|rstd|rms|var|loss|acc|logsum|prob|temperature|max|sum|norm|stat|gate|^d?g[ck]?(?:_|$)|^A$|dt_|state|^d?h[0t](?:_|$)",
    re.IGNORECASE,
)
_FLOAT: Final = re.compile(
    r"eps|scale|alpha|beta|(?:^|_)p$|prob|temperature|^lr|softcap|thresh|momentum|dropout|factor|gamma|theta|limit|smoothing"
    r"|penalty|weight|coef|(?:^|_)(?:min|max)(?:_val|_value)?$|slope|qk_s|sm_|log2|cap$|decay|ratio|bound|float|fp8_m|inv_|rcp",
    re.IGNORECASE,
)
_TRUTH: Final = re.compile(
    r"^(?:is|has|use|do|store|return|enable|with|save|output|reverse|causal|apply|add|need|compute|inplace|interleave|transpose"
    r"|even|mask|skip|norm|write|upcast|allow|should|fuse|per_|trans|ignore|filter|tie|heads?_first|safe|support|pdl|gdc)",
    re.IGNORECASE,
)
_BLOCK: Final = re.compile(r"BLOCK|^B[A-Z]{1,2}\d?$|TILE|CHUNK|_SIZE$|PADDED|_PAD$|POW2|NEXT_POWER|^BLK", re.IGNORECASE)
_TYPE_NAME: Final = re.compile(r"dtype|_type$|compute_type|^TYPE", re.IGNORECASE)
_DTYPES: Final = {
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
    "int32": "i32",
    "int": "i32",
    "int64": "i64",
    "long": "i64",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "uint32": "u32",
    "bool": "i1",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}
_CASTS: Final = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "int": "i32", "long": "i64", "bool": "i1"}
_CREATED: Final = ("empty", "zeros", "ones", "full", "arange", "tensor", "rand", "randn", "empty_strided", "as_tensor")
_SAME_DTYPE: Final = [
    "to",
    "view",
    "type",
    "contiguous",
    "clone",
    "detach",
    "reshape",
    "flatten",
    "squeeze",
    "unsqueeze",
    "transpose",
    "t",
    "permute",
    "expand",
    "narrow",
    "select",
]
_UNKNOWN: Final = object()
_LOADED: Final = ""  # among the arguments of an address: a pointer that the kernel has loaded
_SCALED_FORMATS: Final = {"e4m3": "*fp8e4nv", "e5m2": "*fp8e5", "bf16": "*bf16", "fp16": "*fp16"}
_OF_SAME_SIZE: Final = {  # by whether the new type is a float, and its bits
    (True, "8"): "*u8",
    (True, "16"): "*i16",
    (True, "32"): "*i32",
    (False, "8"): "*fp8e4nv",
    (False, "16"): "*bf16",
    (False, "32"): "*fp32",
}
_SCALED_ARGUMENTS: Final = 6
_TEXTS: Final = {"input_precision": "ieee", "sem": "relaxed", "scope": "gpu"}  # keywords of tl.dot and tl.atomic_*
_MAX_DEPTH: Final = 6
_MAX_BLOCK: Final = 2048
_MIN_BLOCK: Final = 4
_WIDTHS: Final = ("mixed", "*bf16", "*fp32", "*fp16")
_POINTERS: Final = ("*i32", "*fp32", "*bf16", "*i64", "*fp8e4nv", "*u8", "*i8", "*u32")
_SCALARS: Final = ("i32", "fp32", "i64")
_VALUES: Final = (16, 128, 64, 4, 1, 0, True, False, None, 1.0, 8, 2, 512, "ieee")


@dataclass(frozen=True, kw_only=True)
class LaunchSite:
    """A line that launches a kernel: `kernel[grid](...)`, and the assignments of the function around it."""

    call: ast.Call
    names: Mapping[str, ast.expr]
    module: ast.Module
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the function's arguments


@dataclass(kw_only=True)
class ProjectSource:
    """The kernels and launches of all files that were read."""

    kernels: dict[str, list[ast.FunctionDef]] = field(default_factory=dict)
    modules: dict[ast.FunctionDef, ast.Module] = field(default_factory=dict)
    sites: dict[str, list[LaunchSite]] = field(default_factory=dict)
    hooks: dict[str, dict[str, ast.expr]] = field(default_factory=dict)  # block shapes by function and argument
    called: set[str] = field(default_factory=set)  # by other kernels
    usages: "dict[ast.FunctionDef, _Usage]" = field(default_factory=dict)

    def add(self, tree: ast.Module, kernels: Sequence[ast.FunctionDef]) -> None:
        """Add a file."""
        for node in kernels:
            self.kernels.setdefault(node.name, []).append(node)
            self.modules[node] = tree
            self.called |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            self.called |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        module_names = _assignments(tree.body)
        functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        scopes: list[tuple[ast.AST, dict[str, ast.expr], dict[str, str]]] = [(tree, module_names, {})]
        scopes += [(f, {**module_names, **_defaults(f), **_assignments(f.body)}, _annotations(f)) for f in functions]
        for scope, names, annotations in scopes:
            for call in _launch_calls(scope):
                target = call.func.value if isinstance(call.func, ast.Subscript) else call.func
                name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
                site = LaunchSite(call=call, names=names, module=tree, annotations=annotations)
                self.sites.setdefault(name, []).append(site)
        self.hooks |= {f.name: shapes for f in functions if (shapes := _hook_shapes(f))}

    def sites_of(self, node: ast.FunctionDef) -> list[LaunchSite]:
        """The lines that launch this kernel: those of its file, or else of files without a kernel of that name."""
        sites = self.sites.get(node.name, [])
        own = [site for site in sites if site.module is self.modules.get(node)]
        others = [self.modules[kernel] for kernel in self.kernels.get(node.name, ()) if kernel is not node]
        return own or [site for site in sites if site.module not in others]

    def function_for(self, name: str, caller: ast.FunctionDef) -> ast.FunctionDef | None:
        """The device function that a kernel calls by that name, from its file if there are several."""
        found = self.kernels.get(name, ()) if name != caller.name else ()
        near = [kernel for kernel in found if self.modules[kernel] is self.modules.get(caller)]
        return next(iter(near or found), None)

    def is_device_function(self, node: ast.FunctionDef) -> bool:
        """Whether nothing launches it, and kernels call it or it returns a value, which a kernel cannot."""
        returns = any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(node))
        return node.name not in self.sites and (returns or node.name in self.called)


def infer(node: ast.FunctionDef, project: ProjectSource, given: Sequence[str] = ()) -> Iterator[KernelSignature]:
    """Yield possible signatures of a kernel, the most likely one first. `given` are constants that its decorators set."""
    usage = _Usage(node, project)
    blocks = _block_shapes(node, project)
    parameters = [*node.args.posonlyargs, *node.args.args]
    site_values, options = _site_values(node, project.sites_of(node))
    site_types = {
        name: kind
        for name, kind in _site_types(node, project.sites_of(node)).items()
        if not kind.startswith("*") or name in usage.pointers or not usage.computes_with(name)
    }
    defaults = dict(
        zip([p.arg for p in parameters[len(parameters) - len(node.args.defaults) :]], node.args.defaults, strict=True)
    )
    seen = set()
    for truth in (None, False, True):
        for width in _WIDTHS:
            types: dict[str, str] = {}
            constants: dict[str, object] = {}
            for parameter in parameters:
                name = parameter.arg
                known = site_values.get(name, _UNKNOWN)
                default = _static(defaults[name], {}) if name in defaults else _UNKNOWN
                if _is_constant(parameter):
                    if name not in given:
                        constants[name] = _constant(name, usage.possible(name, known), default, usage, truth)
                elif name in usage.descriptors and name in blocks:
                    types[name] = f"tensordesc<{usage.element(name, width)[1:]}[{blocks[name]}]>"
                elif site_types.get(name, "*") != "*":
                    types[name] = site_types[name]
                elif name in usage.pointers or name in site_types:
                    types[name] = usage.element(name, width)
                else:
                    types[name] = _scalar(parameter, known, default, usage)
            key = str((types, constants))
            if key not in seen:
                seen.add(key)
                yield KernelSignature(name=node.name, types=types, constants=constants, options=options)


def descriptor_arguments(node: ast.FunctionDef, project: ProjectSource) -> list[str]:
    """The arguments that must be tensor descriptors of unknown block shape; those that may be None are left out."""
    usage = _Usage(node, project)
    known = _block_shapes(node, project)
    return sorted(name for name in usage.descriptors if None not in usage.texts(name) and name not in known)


def with_block_shape(kind: str, constants: Mapping[str, Any]) -> str:
    """Replace the names of constants in the block shape of a tensor descriptor: `tensordesc<bf16[BLOCK_M, 64]>`."""
    if not kind.startswith("tensordesc<"):
        return kind
    element, _, rest = kind.partition("[")
    names: dict[str, ast.expr] = {name: ast.Constant(value) for name, value in constants.items()}
    shape = ast.parse(f"[{rest.removesuffix('>')}", mode="eval").body
    lengths = [_static(length, names) for length in shape.elts] if isinstance(shape, ast.List) else []
    if not lengths or not all(isinstance(length, int) for length in lengths):
        msg = f"the block shape of {kind} is unknown"
        raise ValueError(msg)
    return f"{element}{lengths}>"


def variants(
    signature: KernelSignature, node: ast.FunctionDef, project: ProjectSource, line: int
) -> Iterator[KernelSignature]:
    """Yield the signature with one argument changed, first those closest to the statement at that line of the kernel."""
    usage = _Usage(node, project)
    distances = usage.distances(line)
    names = [*signature.types, *signature.constants]
    for name in sorted(names, key=lambda name: distances.get(name, _MAX_DEPTH)):
        known = signature.types.get(name, signature.constants.get(name))
        for value in _alternatives(name, known, usage):
            types = {k: v for k, v in signature.types.items() if k != name}
            constants = {k: v for k, v in signature.constants.items() if k != name}
            if name in usage.parameters and value is not None:
                types[name] = str(value)
            else:
                constants[name] = value
            yield replace(signature, types=types, constants=constants)


def independent_statement(node: ast.FunctionDef, line: int) -> str:
    """The statement at that line of the kernel, if no argument affects it or whether it is reached; otherwise empty. Line 1 is that of `def`."""
    usage = _Usage(node, ProjectSource())
    around = usage.statements_at(line)
    reached = {name for statement in around for name in usage.names_behind(_condition(statement))}
    if not around or any(isinstance(n, ast.Return) for n in ast.walk(node)):
        return ""
    innermost = around[-1]
    if isinstance(innermost, ast.AugAssign):
        reached |= usage.names_behind(innermost.target)
    value = getattr(innermost, "value", None)
    if not isinstance(value, ast.expr):
        return ""
    arguments = {p.arg for p in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    return "" if arguments & (reached | usage.names_behind(value)) else ast.unparse(innermost)


def _condition(statement: ast.stmt) -> ast.expr:
    """What decides whether the body of a statement is run; a constant if nothing does."""
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return test
        case ast.For(iter=values):
            return values
    return ast.Constant(None)


def smaller(signature: KernelSignature) -> Iterator[tuple[str, KernelSignature]]:
    """Yield each constant that may be the length of a block or of an unrolled loop, and the signature with half of it; the longest first."""
    lengths = {
        name: value for name, value in signature.constants.items() if isinstance(value, int) and value > _MIN_BLOCK
    }
    for name in sorted(lengths, key=lambda name: -lengths[name]):
        yield name, replace(signature, constants={**signature.constants, name: lengths[name] // 2})


def _alternatives(name: str, known: object, usage: "_Usage") -> list[object]:
    """Other types of an argument, or other values of a constant."""
    if name in usage.descriptors:
        return [None]
    if name in usage.parameters:
        options: list[object] = [*_POINTERS, *_SCALARS] if str(known).startswith("*") else [*_SCALARS, *_POINTERS]
        options = [*options, None] if str(known).startswith("*") else options
    elif isinstance(known, str) and known.startswith("tl."):
        options = ["tl.bfloat16", "tl.float32", "tl.int32", "tl.float8e4nv", "tl.uint8"]
    elif isinstance(known, bool):
        options = [not known, *usage.texts(name), *_VALUES]
    else:
        options = [*usage.texts(name), *_VALUES]
    distinct = {repr(value): value for value in options}  # 1 and True are different constants
    return [value for text, value in distinct.items() if text != repr(known)]


def _is_constant(parameter: ast.arg) -> bool:
    return parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)


class _Usage:
    """How a kernel uses its arguments."""

    def __init__(self, node: ast.FunctionDef, project: ProjectSource, depth: int = 0) -> None:
        self.node = node
        self._project = project
        self._depth = depth
        self._values: dict[str, list[ast.expr]] = {}
        self._conditions: dict[str, list[ast.expr]] = {}
        self.parameters = [p.arg for p in (*node.args.posonlyargs, *node.args.args) if not _is_constant(p)]
        for statement in ast.walk(node):
            for name, value in _targets(statement):
                self._values.setdefault(name, []).append(value)
            if isinstance(statement, ast.If):
                for name in _stored(statement.body):
                    self._conditions.setdefault(name, []).append(statement.test)
        self.pointers: set[str] = set()
        self.descriptors: set[str] = set()
        self.uses_dot = False  # whether it multiplies matrices
        self.integers: set[str] = set()
        self.indices: set[str] = set()  # numbers that addresses and the bounds of loops are computed from
        self._floats: set[str] = set()
        self._find_pointers()
        self._find_integers()
        self.formats = {**dict(self._cast_operands()), **dict(self._scaled_operands())}
        self.descriptors = set(self._find_descriptors()) & set(self.parameters)
        self.uses_dot = any(self._is_product(call) for call in self._calls)

    def element(self, name: str, width: str) -> str:
        """The pointer type of an argument."""
        if _ADDRESSES.search(name):
            return "*i64"
        if name in self.formats:
            return self.formats[name]
        if name in self.integers:
            return "*i64" if re.search("64|target|label", name) else "*i32"
        if name not in self._floats:
            if re.match("is_|has_", name):
                return "*i1"
            if _INTEGER.search(name):
                return "*i32"
            if _MASK.search(name):
                return "*i1"
        if width != "mixed":
            return width
        return "*fp32" if _WIDE.search(name) else "*bf16"

    def statements_at(self, line: int) -> list[ast.stmt]:
        """The statements of the body around a line, the innermost last. Line 1 is that of `def`."""
        at = line + self.node.lineno - 1
        inner = (n for n in ast.walk(self.node) if isinstance(n, ast.stmt) and n is not self.node)
        return sorted((n for n in inner if n.lineno <= at <= (n.end_lineno or 0)), key=lambda n: n.lineno)

    def names_behind(self, expression: ast.expr) -> set[str]:
        """The names that an expression is computed from, also through variables."""
        found, open_names = set(), set(_names(expression))
        while open_names:
            found |= open_names
            values = (value for name in open_names for value in self._values.get(name, ()))
            open_names = {name for value in values for name in _names(value)} - found
        return found

    def distances(self, line: int) -> dict[str, int]:
        """The names that the statement at a line is computed from, by the number of assignments between. Line 1 is that of `def`."""
        found = dict.fromkeys(_names((self.statements_at(line) or [self.node])[-1]), 0)
        for distance in range(1, _MAX_DEPTH):
            values = [v for name in found for v in (*self._values.get(name, ()), *self._conditions.get(name, ()))]
            found = dict.fromkeys((n for value in values for n in _names(value)), distance) | found
        return found

    def _find_descriptors(self) -> Iterator[str]:
        """The arguments with methods of a tensor descriptor, also in device functions."""
        for call in self._calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr in ("load", "store"):
                yield from [call.func.value.id] if isinstance(call.func.value, ast.Name) else []
            passed = self._passed(call, lambda usage: usage.descriptors)
            yield from (value.id for value, _ in passed if isinstance(value, ast.Name))

    def integer_scalar(self, name: str) -> bool:
        """Whether an argument is used as a size or an index."""
        if name in self.indices:
            return True
        for call in self._calls:
            if ast.unparse(call.func) in ("range", "tl.range", "tl.cdiv", "cdiv") and name in _names(call):
                return True
        return any(
            isinstance(n, ast.BinOp)
            and isinstance(n.op, (ast.FloorDiv, ast.Mod))
            and name in (getattr(n.left, "id", ""), getattr(n.right, "id", ""))
            for n in ast.walk(self.node)
        )

    def computes_with(self, name: str) -> bool:
        """Whether an argument is an operand, or is cast to another type."""
        cast = (c.func.value for c in self._calls if isinstance(c.func, ast.Attribute) and c.func.attr == "to")
        operations = (n for n in ast.walk(self.node) if isinstance(n, (ast.BinOp, ast.Compare)))
        operands = (operand for n in operations for operand in ast.iter_child_nodes(n))
        return any(getattr(operand, "id", "") == name for operand in (*cast, *operands))

    def texts(self, name: str) -> list[object]:
        """Constants that an argument is compared with."""
        found: list[object] = []
        for compare in ast.walk(self.node):
            if isinstance(compare, ast.Compare) and getattr(compare.left, "id", "") == name:
                for other in compare.comparators:
                    values = other.elts if isinstance(other, (ast.Tuple, ast.List)) else [other]
                    found += [v.value for v in values if isinstance(v, ast.Constant)]
        return found

    def tested(self, name: str) -> bool:
        """Whether a constant is only used as a condition."""
        tests = [n.test for n in ast.walk(self.node) if isinstance(n, (ast.If, ast.IfExp))]
        parts = [p for t in tests for p in (t.values if isinstance(t, ast.BoolOp) else [t])]
        parts = [p.operand if isinstance(p, ast.UnaryOp) and isinstance(p.op, ast.Not) else p for p in parts]
        return any(getattr(p, "id", "") == name for p in parts)

    def is_shape(self, name: str) -> bool:
        """Whether a constant is the length of a block."""
        shaped = ("tl.arange", "tl.zeros", "tl.full", "tl.make_block_ptr", "tl.reshape", "tl.make_tensor_descriptor")
        return any(ast.unparse(c.func) in shaped and name in _names(c) for c in self._calls)

    def is_unrolled(self, name: str) -> bool:
        """Whether a constant is the bound of a loop that Triton unrolls, as the width of a convolution is."""
        return any(
            ast.unparse(c.func) in ("tl.static_range", "static_range") and name in _names(c) for c in self._calls
        )

    def possible(self, name: str, known: Any) -> Any:
        """The known value of a constant, unless its uses require another type: a number, or a text such as the precision of `tl.dot`."""
        keywords = (k for c in self._calls for k in c.keywords if k.arg in _TEXTS and name in _names(k.value))
        for keyword in keywords:
            return known if isinstance(known, str) else _TEXTS[keyword.arg or ""]
        compared = self.texts(name)
        wrong = isinstance(known, str) and compared and not any(isinstance(value, str) for value in compared)
        return _UNKNOWN if wrong else known

    def is_type(self, name: str) -> bool:
        """Whether a constant is a dtype."""
        for call in self._calls:
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr in ("to", "cast")
                and name in [n for a in call.args for n in _names(a)][-1:]
            ):
                return True
            if any(k.arg in ("dtype", "out_dtype") and name in _names(k.value) for k in call.keywords):
                return True
            if _dtype_argument(call) is not None and name in _names(_dtype_argument(call) or call):
                return True
        return False

    def _is_product(self, call: ast.Call) -> bool:
        """Whether a call multiplies matrices, itself or in a device function."""
        if ast.unparse(call.func) in ("tl.dot", "tl.dot_scaled"):
            return True
        callee = self._callee(call)
        return callee is not None and callee.uses_dot

    @cached_property
    def _calls(self) -> list[ast.Call]:
        return [n for n in ast.walk(self.node) if isinstance(n, ast.Call)]

    def _addresses(self) -> Iterator[ast.expr]:
        """Every expression that is used as a pointer."""
        for call in self._calls:
            function = ast.unparse(call.func)
            if _MEMORY.match(function):
                yield from call.args[:1] or [k.value for k in call.keywords if k.arg in ("base", "pointer")]
            else:
                yield from (value for value, _ in self._passed(call, lambda usage: usage.pointers))

    def _passed(self, call: ast.Call, wanted: Any) -> Iterator[tuple[ast.expr, str]]:
        """Yield the arguments that a device function uses in a certain way."""
        usage = self._callee(call)
        if usage is None:
            return
        names = [p.arg for p in (*usage.node.args.posonlyargs, *usage.node.args.args)]
        yield from (
            (value, parameter) for parameter, value in _bound(names, call).items() if parameter in wanted(usage)
        )

    def _callee(self, call: ast.Call) -> "_Usage | None":
        """The device function that a call calls."""
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        callee = self._project.function_for(name, self.node)
        if callee is None or self._depth >= _MAX_DEPTH:
            return None
        if callee not in self._project.usages:
            self._project.usages[callee] = _Usage(callee, self._project, self._depth + 1)
        return self._project.usages[callee]

    def _find_pointers(self) -> None:
        ambiguous = []
        for address in self._addresses():
            leaves = list(dict.fromkeys(self._leaves(address, set())))
            if _LOADED in leaves:
                continue
            if len(leaves) == 1:
                self.pointers.add(leaves[0])
            elif leaves:
                ambiguous.append(leaves)
        for leaves in ambiguous:
            if not self.pointers & set(leaves):
                named = [leaf for leaf in leaves if re.search("ptr|pointer", leaf, re.IGNORECASE) or leaf[0].isupper()]
                self.pointers.add((named or leaves)[0])
        self.pointers |= {p for p in self.parameters if re.search(r"_ptrs?$|^ptr_|_pointer$", p)}

    def _leaves(self, expression: ast.expr, seen: set[str]) -> Iterator[str]:  # noqa: C901 - one case per form
        """The arguments among the summands of an address. `seen` are the variables that were followed, each once."""
        match expression:
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                yield from self._leaves(expression.left, seen)
                yield from self._leaves(expression.right, seen)
            case ast.Name(id=name):
                if name in self.parameters:
                    yield name
                if name not in seen:
                    seen.add(name)
                    for value in self._values.get(name, ()):
                        yield from self._leaves(value, seen)
            case ast.Call(func=ast.Attribute(attr="to" | "advance"), args=[ast.expr(), *_]) if isinstance(
                expression.func, ast.Attribute
            ):
                leaves = list(self._leaves(expression.func.value, seen))
                yield from leaves
                if not leaves and "pointer_type" in ast.unparse(expression.args[0]):
                    yield _LOADED
                if expression.func.attr == "advance":
                    yield from self._leaves(expression.args[0], seen)
            case ast.Call(args=[first, *_]) if ast.unparse(expression.func) in (
                "tl.multiple_of",
                "tl.max_contiguous",
                "tl.cast",
                "tl.broadcast_to",
                "tl.make_block_ptr",
                "tl.make_tensor_descriptor",
                "tl.where",
                "tl.advance",
            ):
                yield from self._leaves(
                    first if "where" not in ast.unparse(expression.func) else expression.args[1], seen
                )
            case ast.Call(keywords=[*_]) if ast.unparse(expression.func) == "tl.make_block_ptr":
                yield from (
                    leaf for k in expression.keywords if k.arg == "base" for leaf in self._leaves(k.value, seen)
                )
            case ast.IfExp(body=body, orelse=orelse):
                yield from self._leaves(body, seen)
                yield from self._leaves(orelse, seen)
            case ast.Subscript(value=value):
                yield from self._leaves(value, seen)

    def _find_integers(self) -> None:
        """Pointers whose loaded values are used as indices or bits."""
        used = {name for address in self._addresses() for name in self._reachable(address)}
        for node in ast.walk(self.node):
            match node:
                case ast.Call() if ast.unparse(node.func) in ("range", "tl.range", "tl.arange", "tl.cdiv", "cdiv"):
                    used |= {n for a in node.args for n in self._reachable(a)}
                case ast.BinOp(op=ast.FloorDiv() | ast.Mod() | ast.LShift() | ast.RShift() | ast.BitXor()):
                    used |= self._reachable(node.left)
                case ast.Compare(
                    left=left, comparators=[ast.Constant(value=int()) | ast.UnaryOp(operand=ast.Constant(value=int()))]
                ) if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
                    used |= self._reachable(left)
        self.integers = {name.removeprefix("*") for name in used if name.startswith("*")}
        self.indices = {name for name in used if not name.startswith("*")} - self.pointers
        for call in self._calls:
            for value, _ in self._passed(call, lambda usage: usage.integers):
                self.integers |= set(self._leaves(value, set()))
            for value, _ in self._passed(call, lambda usage: usage.indices):
                self.indices |= {name for name in self._reachable(value) if not name.startswith("*")} - self.pointers
            if isinstance(call.func, ast.Attribute) and call.func.attr == "to" and call.args and not _is_bitcast(call):
                loads = [
                    c
                    for c in ast.walk(call.func.value)
                    if isinstance(c, ast.Call) and ast.unparse(c.func) in ("tl.load", "load")
                ]
                if loads and loads[0] is call.func.value and loads[0].args:
                    leaves = [leaf for leaf in self._leaves(loads[0].args[0], set()) if leaf in self.pointers]
                    (self.integers if re.search(r"int\d", ast.unparse(call.args[0])) else self._floats).update(leaves)

    def _cast_operands(self) -> Iterator[tuple[str, str]]:
        """Yield the pointers of loaded values that are taken for addresses, or for another type of the same size; with their own type."""
        for call in self._calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "to" and call.args:
                element = _cast_from(call)
                value = call.func.value
                sources = self._values.get(value.id, []) if isinstance(value, ast.Name) else [value]
                for source in sources:
                    if isinstance(source, ast.Call) and ast.unparse(source.func) in ("tl.load", "load") and source.args:
                        leaves = (leaf for leaf in self._leaves(source.args[0], set()) if leaf in self.pointers)
                        yield from ((leaf, element) for leaf in leaves if element)
            for value, parameter in self._passed(call, lambda usage: usage.formats):
                callee = self._callee(call)
                yield from ((leaf, callee.formats[parameter]) for leaf in self._leaves(value, set()) if callee)

    def _scaled_operands(self) -> Iterator[tuple[str, str]]:
        """Yield the pointers of `tl.dot_scaled(a, a_scale, "e4m3", b, b_scale, "e4m3")`, with their types."""
        for call in self._calls:
            if ast.unparse(call.func) == "tl.dot_scaled" and len(call.args) >= _SCALED_ARGUMENTS:
                for operand, scale, kind in (call.args[:3], call.args[3:6]):
                    name = kind.value if isinstance(kind, ast.Constant) else "e4m3"
                    for value, element in ((operand, _SCALED_FORMATS.get(str(name), "*u8")), (scale, "*u8")):
                        loaded = (n for n in self._reachable(value) if n.startswith("*"))
                        yield from ((n.removeprefix("*"), element) for n in loaded)

    def _reachable(self, expression: ast.expr) -> set[str]:
        """The variables that an expression is computed from, and `*pointer` for a value that is loaded."""
        found: set[str] = set()
        followed = set()
        open_expressions = [(expression, False)]
        while open_expressions:
            part, loads_only = open_expressions.pop()
            match part:
                case ast.Call(args=arguments) if ast.unparse(part.func) in ("tl.load", "load"):
                    leaves = self._leaves(arguments[0], set()) if arguments else ()
                    found |= {f"*{leaf}" for leaf in leaves if leaf in self.pointers}
                    continue
                case ast.Call(func=ast.Attribute(attr="to", value=value)):
                    # A number may be a float before the cast; the bits of a float are an integer.
                    if not _is_bitcast(part):
                        open_expressions.append((value, True))
                    continue
                case ast.Name(id=name):
                    if not loads_only:
                        found.add(name)
                    if name not in self.parameters and (name, loads_only) not in followed:
                        followed.add((name, loads_only))
                        open_expressions += [(value, loads_only) for value in self._values.get(name, ())]
            children = (child for child in ast.iter_child_nodes(part) if isinstance(child, ast.expr))
            open_expressions += [(child, loads_only) for child in children]
        return found


def _cast_from(call: ast.Call) -> str:
    """The pointer type of a value before `value.to(...)`, if the cast shows it."""
    text = ast.unparse(call.args[0])
    if "pointer_type" in text:
        return "*i64"
    target = re.search(r"(u?int|float)(\d+)", text) if _is_bitcast(call) else None
    return _OF_SAME_SIZE.get((target[1] == "float", target[2][:2]), "") if target else ""


def _is_bitcast(call: ast.Call) -> bool:
    return any(k.arg == "bitcast" for k in call.keywords)


def _dtype_argument(call: ast.Call) -> ast.expr | None:
    """The positional dtype of `tl.zeros` and `tl.full`."""
    position = {"tl.zeros": 1, "tl.full": 2}.get(ast.unparse(call.func), len(call.args))
    return call.args[position] if position < len(call.args) else None


def _constant(name: str, known: Any, default: Any, usage: _Usage, truth: bool | None) -> object:  # noqa: C901, FBT001, PLR0912 - one case per form
    if isinstance(known, int) and not isinstance(known, bool) and usage.is_shape(name):
        return min(1 << max(known - 1, 0).bit_length(), _MAX_BLOCK)
    if known is not _UNKNOWN and (truth is None or not isinstance(known, bool)):
        return known
    if default not in (_UNKNOWN, None) and (truth is None or not isinstance(default, bool)):
        return default
    if (_TYPE_NAME.search(name) and not usage.texts(name)) or usage.is_type(name):
        return "tl.float32" if re.search("acc|compute", name, re.IGNORECASE) else "tl.bfloat16"
    compared = usage.texts(name)
    texts = [value for value in compared if isinstance(value, str)]
    if texts:
        return texts[0]
    numbers = [value for value in compared if isinstance(value, int) and not isinstance(value, bool) and value > 0]
    if usage.is_unrolled(name) and not _BLOCK.search(name):
        return numbers[0] if numbers else 4
    if usage.is_shape(name):
        return _block(name, usage)
    if (_TRUTH.search(name) and name not in usage.indices) or (usage.tested(name) and not numbers):
        return name.upper().startswith(("HAS", "USE")) if truth is None else truth
    if None in compared:
        return None
    if _BLOCK.search(name):
        return _block(name, usage)
    if _FLOAT.search(name) and name not in usage.indices and "stride" not in name:
        return 1.0
    if numbers:
        return numbers[0]
    if re.search(
        r"STAGES?|UNROLL|SPLIT|PACK|^NUM|^N_|_NUM|GROUP|HEADS?$|^HQ?V?$|^G$|^NB$|RATIO|WIDTH", name, re.IGNORECASE
    ):
        return 4
    return 64


def _block(name: str, usage: _Usage) -> int:
    if re.search("GROUP", name, re.IGNORECASE):
        return 8
    blocks = [
        p.arg
        for p in (*usage.node.args.posonlyargs, *usage.node.args.args)
        if _is_constant(p) and usage.is_shape(p.arg)
    ]
    length = 32 if usage.uses_dot else 1024 if len(blocks) <= 1 else 64
    return length // 2 if re.search("HALF", name, re.IGNORECASE) else length


def _scalar(parameter: ast.arg, known: Any, default: Any, usage: _Usage) -> str:
    annotation = ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
    for text, kind in (("int64", "i64"), ("int32", "i32"), ("float", "fp32"), ("int1", "i1")):
        if text in annotation:
            return kind
    for value in (known, default):
        if isinstance(value, bool):
            return "i1"
        if isinstance(value, float):
            return "fp32"
        if isinstance(value, int):
            return "i32"
    if _FLOAT.search(parameter.arg) and not usage.integer_scalar(parameter.arg) and "stride" not in parameter.arg:
        return "fp32"
    return "i32"


def _site_values(node: ast.FunctionDef, sites: Sequence[LaunchSite]) -> tuple[dict[str, Any], dict[str, int]]:
    """The values of constants and options that the launching lines show."""
    names = [p.arg for p in (*node.args.posonlyargs, *node.args.args)]
    values: dict[str, Any] = {}
    options: dict[str, int] = {}
    for site in sites:
        for name, expression in _bound(names, site.call).items():
            value = _static(expression, site.names)
            if value is _UNKNOWN or value is None:
                continue
            if name in names:
                values.setdefault(name, value)
            elif name in OPTIONS and isinstance(value, int):
                options.setdefault(name, value)
    return values, options


def _hook_shapes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """The block shapes that a `pre_hook` of an autotuner sets: `nargs["desc"].block_shape = [BLOCK_M, BLOCK_K]`."""
    found = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(
                targets=[
                    ast.Attribute(attr="block_shape", value=ast.Subscript(slice=ast.Constant(value=str() as name)))
                ]
            ):
                found[name] = node.value
    return found


def _block_shapes(node: ast.FunctionDef, project: ProjectSource) -> dict[str, str]:
    """The block shape of each tensor descriptor that the kernel takes, written with the kernel's constants."""
    names = [p.arg for p in (*node.args.posonlyargs, *node.args.args)]
    written: dict[str, str] = {}
    for site in project.sites_of(node):
        bound = _bound(names, site.call)
        constants = {ast.unparse(value): name for name, value in bound.items() if not isinstance(value, ast.Constant)}
        for name, value in bound.items():
            shape = _created_shape(value, site.names)
            lengths = [_length(length, site.names, constants) for length in shape.elts] if shape else []
            if lengths and all(lengths):
                written.setdefault(name, ", ".join(lengths))
    decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    hooks = [shapes for shapes in project.hooks.items() if set(shapes[1]) <= set(names)]
    for _, shapes in sorted(hooks, key=lambda hook: hook[0] in decorators):  # a hook overrides what the launch created
        written |= {
            name: re.sub(r"""\w+\[['"](\w+)['"]\]""", r"\1", ast.unparse(shape)).strip("[]()")
            for name, shape in shapes.items()
        }
    return written


def _created_shape(value: ast.expr, names: Mapping[str, ast.expr]) -> ast.List | ast.Tuple | None:
    """The block shape of `TensorDescriptor(base, shape, strides, block_shape)` and `TensorDescriptor.from_tensor(base, block_shape)`."""
    value = names.get(value.id, value) if isinstance(value, ast.Name) else value
    if not isinstance(value, ast.Call) or "TensorDescriptor" not in ast.unparse(value.func):
        return None
    position = 1 if ast.unparse(value.func).endswith("from_tensor") else 3
    shapes = [k.value for k in value.keywords if k.arg == "block_shape"] or value.args[position : position + 1]
    shape = names.get(shapes[0].id) if shapes and isinstance(shapes[0], ast.Name) else next(iter(shapes), None)
    return shape if isinstance(shape, (ast.List, ast.Tuple)) else None


def _length(value: ast.expr, names: Mapping[str, ast.expr], constants: Mapping[str, str]) -> str:
    if ast.unparse(value) in constants:
        return constants[ast.unparse(value)]
    known = _static(value, names)
    return str(known) if isinstance(known, int) else ""


def _bound(names: Sequence[str], call: ast.Call) -> dict[str, ast.expr]:
    """The expression for each argument that a call passes."""
    return {**dict(zip(names, call.args, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}


def _site_types(node: ast.FunctionDef, sites: Sequence[LaunchSite]) -> dict[str, str]:
    """The types of arguments that the launching functions show; `*` is a tensor of unknown dtype."""
    names = [p.arg for p in (*node.args.posonlyargs, *node.args.args)]
    found: dict[str, str] = {}
    for site in sites:
        for name, value in _bound(names, site.call).items():
            kind = _site_type(value, site)
            if kind and found.get(name, "*") == "*":
                found[name] = kind
    return found


def _site_type(value: ast.expr, site: LaunchSite, depth: int = 0) -> str:  # noqa: C901 - one case per form
    """The type of an argument of a launch; empty if the function does not show it."""
    if depth > _MAX_DEPTH:
        return ""
    match value:
        case ast.Constant(value=bool()):
            return "i1"
        case ast.Constant(value=int() | float()):
            return "i32" if isinstance(value.value, int) else "fp32"
        case ast.Name(id=name):
            assigned = _site_type(site.names[name], site, depth + 1) if name in site.names else ""
            return assigned if assigned not in ("", "*") else _annotated(site.annotations.get(name, "")) or assigned
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return "i32"
        case ast.Subscript(value=inner):
            kind = _site_type(inner, site, depth + 1)
            return kind if kind.startswith("*") else ""
        case ast.IfExp(body=body, orelse=orelse):
            return _site_type(body, site, depth + 1) or _site_type(orelse, site, depth + 1)
        case ast.BinOp(left=left, op=op, right=right):
            kinds = {_site_type(left, site, depth + 1), _site_type(right, site, depth + 1)}
            if "fp32" in kinds or (isinstance(op, ast.Div) and kinds == {"i32"}):
                return "fp32" if kinds <= {"fp32", "i32", ""} else ""
            return "i32" if kinds == {"i32"} else ""
        case ast.Call():
            return _called_type(value, site, depth)
    return ""


def _called_type(call: ast.Call, site: LaunchSite, depth: int) -> str:
    """The type of what a call of torch or Triton returns."""
    function = ast.unparse(call.func)
    method = function.rpartition(".")[2]
    if method in ("stride", "size", "numel", "dim", "element_size") or function in ("len", "int", "triton.cdiv"):
        return "i32"
    if function == "float":
        return "fp32"
    if method in _CASTS:
        return f"*{_CASTS[method]}"
    created = function.startswith("torch.") and method.removesuffix("_like") in _CREATED
    if not created and not (method.startswith("new_") or method in _SAME_DTYPE):
        return ""
    dtypes = [k.value for k in call.keywords if k.arg == "dtype"]
    if method in ("to", "view", "type"):
        dtypes += [argument for argument in call.args if "dtype" in ast.unparse(argument) or _torch_dtype(argument)]
    for dtype in dtypes:
        if known := _torch_dtype(dtype):
            return f"*{known}"
        inner = dtype.value if isinstance(dtype, ast.Attribute) and dtype.attr == "dtype" else None
        return _tensor(_site_type(inner, site, depth + 1)) if inner is not None else "*"
    if method.endswith("_like") and call.args:
        return _tensor(_site_type(call.args[0], site, depth + 1))
    if created:
        return "*i64" if method == "arange" else "*fp32" if method in ("empty", "zeros", "ones") else "*"
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    return _tensor(_site_type(receiver, site, depth + 1)) if receiver is not None else "*"


def _tensor(kind: str) -> str:
    return kind if kind.startswith("*") else "*"


def _torch_dtype(value: ast.expr) -> str:
    text = ast.unparse(value)
    if text.startswith("torch."):
        return _DTYPES.get(text.removeprefix("torch."), "")
    return "fp8e4nv" if re.search("fp8|float8", text) and not text.endswith(".dtype") else ""


def _annotated(annotation: str) -> str:
    if "Tensor" in annotation:
        return "*"
    words = set(re.findall(r"\w+", annotation)) - {"None", "Optional", "Union"}
    return {frozenset({"int"}): "i32", frozenset({"float"}): "fp32", frozenset({"bool"}): "i1"}.get(
        frozenset(words), ""
    )


def _annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return {a.arg: ast.unparse(a.annotation) for a in arguments if a.annotation is not None}


def _static(expression: ast.expr, names: Mapping[str, ast.expr], depth: int = 0) -> Any:  # noqa: C901 - one case per form
    """The value of an expression, as far as the file shows it; a dtype of Triton is its name."""
    if depth > _MAX_DEPTH:
        return _UNKNOWN
    match expression:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name) if name in names:
            return _static(names[name], names, depth + 1)
        case ast.Attribute(value=ast.Name(id="tl")) if re.match(
            r"tl\.(?:u?int|float|bfloat)\d", ast.unparse(expression)
        ):
            return ast.unparse(expression)
        case ast.Call(func=function, args=[first, *_]) if ast.unparse(function) in (
            "triton.next_power_of_2",
            "next_power_of_2",
            "int",
            "float",
            "bool",
        ):
            value = _static(first, names, depth + 1)
            if isinstance(value, int) and "power" in ast.unparse(function):
                return 1 << (value - 1).bit_length()
            return value
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _static(left, names, depth + 1), _static(right, names, depth + 1)
            if isinstance(a, (int, float)) and isinstance(b, (int, float)):
                return _arithmetic(a, op, b)
        case ast.Compare(ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]):
            return isinstance(op, ast.IsNot)  # every optional argument is given
    return _UNKNOWN


def _arithmetic(a: float, op: ast.operator, b: float) -> Any:
    match op:
        case ast.Mult():
            return a * b
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.FloorDiv() if b:
            return a // b
        case ast.Pow() if abs(b) < 64:  # noqa: PLR2004 - block sizes
            return a**b
    return _UNKNOWN


def _launch_calls(scope: ast.AST) -> Iterator[ast.Call]:
    """Yield `kernel[grid](...)` and `kernel.run(...)` in a scope, without those of nested functions."""
    stack = list(ast.iter_child_nodes(scope))
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        stack += ast.iter_child_nodes(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            yield node


def _assignments(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for name, value in _targets(node):
                found.setdefault(name, value)
    return found


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    arguments = [*function.args.posonlyargs, *function.args.args]
    pairs = zip(arguments[len(arguments) - len(function.args.defaults) :], function.args.defaults, strict=True)
    keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return {a.arg: value for a, value in (*pairs, *keywords) if value is not None}


def _targets(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a statement assigns, with their values."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, value
                elif (
                    isinstance(target, ast.Tuple)
                    and isinstance(value, ast.Tuple)
                    and len(target.elts) == len(value.elts)
                ):
                    for name, element in zip(target.elts, value.elts, strict=True):
                        if isinstance(name, ast.Name):
                            yield name.id, element
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
            yield name, ast.BinOp(left=ast.Name(id=target.id, ctx=ast.Load()), op=op, right=value)


def _stored(body: Sequence[ast.stmt]) -> set[str]:
    stores = (n for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {n.id for n in stores}


def _names(node: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
