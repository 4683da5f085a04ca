"""Find code that changes compiler settings, compile modes or environment variables."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from rocsolid.model.source import Assignment, Site, Source
from rocsolid.rules.source.syntax import argument, keyword, literal, source_text
from rocsolid.rules.source.vendors import is_true_on_rocm

CONFIG_MODULES: Final = {
    "torch._inductor.config": "inductor",
    "torch._dynamo.config": "dynamo",
    "torch._functorch.config": "functorch",
    "torch.compiler.config": "compiler",
    "torch.fx.experimental._config": "fx",
}
# A file without any of these words changes no setting. Most files have none and are skipped.
_SETTING_WORDS: Final = ("inductor", "dynamo", "functorch", "compiler", "experimental")
COMPILE_NAMES: Final = ("torch.compile", "torch.compiler.compile")
# Usual names of these modules, for code snippets that do not show their imports.
_USUAL_MODULE_NAMES: Final = {"inductor_config": "torch._inductor.config", "dynamo_config": "torch._dynamo.config"}
_CONFIG_PREFIXES: Final = tuple(f"{module}." for module in (*CONFIG_MODULES, *_USUAL_MODULE_NAMES))
MODES: Final = frozenset({"default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite"})


class SettingChange(NamedTuple):
    """One place in the code that changes a compiler setting."""

    site: Site | Assignment
    owner: str
    name: str
    value: ast.expr | None
    how: str  # assigned, patched or option

    @property
    def id(self) -> str:
        """The setting's id in the catalogue."""
        return f"{self.owner}.{self.name}"

    @property
    def constant(self) -> object:
        """The new value if it is a literal, else None."""
        return literal(self.value)

    @property
    def text(self) -> str:
        """The change as the user wrote it: `inductor_config.freezing = True` or `options={"freezing": True}`."""
        if self.how == "assigned":
            return source_text(self.site.node)
        value = source_text(self.value) or "..."
        return f'options={{"{self.name}": {value}}}' if self.how == "option" else f"config.patch({self.name}={value})"

    @property
    def underline(self) -> ast.AST | None:
        """The part of the line to mark: the value of an option or patch, because the whole call may be long."""
        return None if self.how == "assigned" else self.value


def config_setting(name: str) -> tuple[str, str]:
    """Owner and name of a setting: `inductor` and `triton.cudagraphs` for `torch._inductor.config.triton.cudagraphs`.

    Two empty strings for names that are no settings.
    """
    if not name.startswith(_CONFIG_PREFIXES):
        return "", ""
    first, _, rest = name.partition(".")
    full = f"{_USUAL_MODULE_NAMES[first]}.{rest}" if first in _USUAL_MODULE_NAMES else name
    for module, owner in CONFIG_MODULES.items():
        if full.startswith(f"{module}."):
            return owner, full[len(module) + 1 :]
    return "", ""


@lru_cache(maxsize=2)  # several rules check the same file one after the other
def setting_changes(source: Source) -> tuple[SettingChange, ...]:
    """Every place in a file that changes a setting: assignments, `config.patch` and `options=` of torch.compile."""
    return tuple(_setting_changes(source))


def _setting_changes(source: Source) -> Iterator[SettingChange]:
    if any(word in source.text for word in _SETTING_WORDS):
        for assignment in source.assignments:
            owner, name = config_setting(assignment.name)
            if owner and isinstance(assignment.target, ast.Attribute):
                yield SettingChange(assignment, owner, name, assignment.value, "assigned")
        for site in source.methods("patch"):
            owner, name = config_setting(site.name)
            if owner and name == "patch":
                yield from _patched(site, owner)
    for site in compile_calls(source):
        options = keyword(site.call, "options")
        if isinstance(options, ast.Dict):
            yield from (
                SettingChange(site, "inductor", name, value, "option") for name, value in _literal_items(options)
            )


def _patched(site: Site, owner: str) -> Iterator[SettingChange]:
    first = argument(site.call, 0)
    if isinstance(first, ast.Dict):
        yield from (SettingChange(site, owner, name, value, "patched") for name, value in _literal_items(first))
    elif isinstance(name := literal(first), str):
        yield SettingChange(site, owner, name, argument(site.call, 1), "patched")
    for keyword_argument in site.call.keywords:
        if keyword_argument.arg:
            yield SettingChange(site, owner, keyword_argument.arg, keyword_argument.value, "patched")


def _literal_items(node: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(name := literal(key), str):
            yield name, value


def compile_calls(source: Source) -> Iterator[Site]:
    """Every call of torch.compile, also as a decorator with arguments."""
    return source.calls_to(*COMPILE_NAMES)


def compile_modes(source: Source) -> Iterator[tuple[Site, ast.expr]]:
    """Every `mode=` argument of torch.compile."""
    for site in compile_calls(source):
        mode = keyword(site.call, "mode")
        if mode is not None:
            yield site, mode


@lru_cache(maxsize=4)
def mode_choices_by_vendor(source: Source) -> tuple[tuple[ast.AST, str, str], ...]:
    """Every `if` that selects a compile mode by vendor: the node, the mode on ROCm, and the mode on other platforms."""
    return tuple(_mode_choices(source))


def _mode_choices(source: Source) -> Iterator[tuple[ast.AST, str, str]]:
    if "reduce-overhead" not in source.text and "max-autotune" not in source.text:
        return
    for node in source.branches:
        if isinstance(node, ast.IfExp):
            if_true, if_false = literal(node.body), literal(node.orelse)
        elif isinstance(node, ast.If):
            if_true, if_false = _assigned_mode(node.body), _assigned_mode(node.orelse)
        else:
            continue
        if if_true not in MODES or if_false not in MODES:
            continue
        on_rocm = is_true_on_rocm(node.test)
        if on_rocm is not None:
            rocm_mode, other_mode = (if_true, if_false) if on_rocm else (if_false, if_true)
            yield node, str(rocm_mode), str(other_mode)


def _assigned_mode(body: list[ast.stmt]) -> object:
    """The literal that a one-statement branch assigns."""
    if len(body) == 1 and isinstance(body[0], ast.Assign):
        return literal(body[0].value)
    return None


class VariableAssignment(NamedTuple):
    """One place in the code that sets an environment variable of its own process."""

    site: Site | Assignment
    name: str
    value: str


def variable_assignments(source: Source) -> Iterator[VariableAssignment]:
    """`os.environ[name] = ...`, `setdefault`, `putenv`, and `update` with a dict or keywords."""
    for assignment in source.assignments:
        name = literal(assignment.target.slice) if isinstance(assignment.target, ast.Subscript) else None
        if assignment.name == "os.environ" and isinstance(name, str):
            yield VariableAssignment(assignment, name, str(literal(assignment.value) or ""))
    for site in source.calls_to("os.environ.setdefault", "os.putenv"):
        if isinstance(name := literal(argument(site.call, 0)), str):
            yield VariableAssignment(site, name, str(literal(argument(site.call, 1)) or ""))
    for site in source.calls_to("os.environ.update"):
        first = argument(site.call, 0)
        if isinstance(first, ast.Dict):
            for key, value in zip(first.keys, first.values, strict=True):
                if isinstance(name := literal(key), str):
                    yield VariableAssignment(site, name, str(literal(value) or ""))
        yield from (VariableAssignment(site, k.arg, str(literal(k.value) or "")) for k in site.call.keywords if k.arg)
