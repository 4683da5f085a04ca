"""Robot policies, such as those of lerobot and openpi: the networks that they call, optimized in place.

The first action runs as before, and shows which modules are called from outside of any other module: `model` of ACT, `rgb_encoder` and
`unet` of a diffusion policy. Each is replaced by a module that is optimized by its next call. Preprocessing, queues and the denoising
loop stay in Python. SmolVLA, π0 and π0.5 have all of their inference in one method, `model.sample_actions`: that is optimized instead,
with its denoising loop. A policy of openpi is no module; it has the method of its model as `_sample_actions`, and calls it in `infer`.
"""

import inspect
import math
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from rocsolid.integrations.parts import OptimizePart, Parts, add_methods
from rocsolid.model.program_report import ProgramReport

_SAMPLE: Final = "sample_actions"


def is_policy(program: Any) -> bool:
    """Whether this is a module with `select_action`."""
    return isinstance(program, torch.nn.Module) and callable(getattr(program, "select_action", None))


def optimize_policy(policy: Any, optimize_part: OptimizePart) -> Any:
    """Optimize the networks of a policy in place, and return the policy."""
    parts = Parts(policy, optimize_part)
    parts.leave("select_action", "was not called yet")
    waiting = [True]

    def learn(original: Any, *args: Any, **kwargs: Any) -> Any:
        if not waiting or policy.training:
            return original(*args, **kwargs)
        waiting.clear()  # one method may call the other
        names: list[str] = []
        outermost = _OutermostCalls(policy)
        try:
            with outermost:
                action = original(*args, **kwargs)
            names = outermost.names
        finally:
            if not names:  # it failed, or a queue of actions is left from before
                waiting.append(True)
        if names:
            parts.forget()
        for name in names:
            owner, _, attribute = name.rpartition(".")
            _optimize(parts, name, policy.get_submodule(owner), attribute)
        return action

    def explain(_: Any) -> ProgramReport:
        """Return what was optimized, and what was left alone and why."""
        return parts.explain()

    def undo(_: Any) -> Any:
        """Put the plain modules back, free the graphs, and return the policy."""
        waiting.clear()
        parts.leave("select_action", "undo() was called")
        parts.restore("undo() was called")
        return policy

    methods = {name: learn for name in ("select_action", "predict_action_chunk") if hasattr(policy, name)}
    add_methods(policy, {**methods, "explain": explain, "undo": undo})
    return policy


def _optimize(parts: Parts, path: str, owner: Any, attribute: str) -> None:
    if attribute != _SAMPLE:
        parts.optimize(path, owner, attribute)
    elif getattr(getattr(owner, "config", None), "rtc_config", None) is not None:
        parts.leave(path, "real-time chunking (`rtc_config`) computes gradients in every step, with other arguments")
    else:
        parts.optimize(path, owner, attribute, module=_SampleActions(owner), call=lambda made: _with_noise(owner, made))


def is_openpi_policy(program: Any) -> bool:
    """Whether this has `infer`, and a model of torch with `sample_actions`, as a policy of openpi."""
    model = getattr(program, "_model", None)
    has_methods = callable(getattr(program, "infer", None)) and hasattr(program, f"_{_SAMPLE}")
    return has_methods and isinstance(model, torch.nn.Module) and callable(getattr(model, _SAMPLE, None))


def optimize_openpi_policy(policy: Any, optimize_part: OptimizePart) -> Any:
    """Optimize `sample_actions` of the model of a policy of openpi in place, and return the policy."""
    parts = Parts(policy, optimize_part)

    def explain(_: Any) -> ProgramReport:
        """Return what was optimized, and what was left alone and why."""
        return parts.explain()

    def undo(_: Any) -> Any:
        """Put the plain method back, free the graphs, and return the policy."""
        parts.restore("undo() was called")
        return policy

    add_methods(policy, {"explain": explain, "undo": undo})
    model = policy._model  # noqa: SLF001 - names of openpi
    missing = [name for name in ("_preprocess_observation", "sample_noise") if not hasattr(model, name)]
    if missing:
        parts.leave(
            _SAMPLE,
            f"{type(model).__name__} has no {' and '.join(missing)}: it is not the model of openpi that is known",
        )
    else:
        sampling = _OpenpiSampling(model)
        parts.optimize(
            _SAMPLE, policy, f"_{_SAMPLE}", module=sampling, call=lambda made: _with_preprocessing(model, made)
        )
    return policy


class _OpenpiSampling(torch.nn.Module):  # type: ignore[misc]
    """`sample_actions` of openpi's model from the preprocessed observation on.

    Its loop compares two numbers on the GPU in each step. Here these numbers are Python's, rounded as on the GPU.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.training = False
        self.__name__ = f"{type(model).__name__}.{_SAMPLE}"
        method = inspect.unwrap(getattr(type(model), _SAMPLE))
        names = dict(method.__globals__)
        names.pop("__name__", None)  # by it, torch.compile would find the module's own globals
        if names.get("torch") is torch:
            names["torch"] = module = types.ModuleType("torch")
            module.__dict__.update({**vars(torch), "tensor": _number_or_tensor})
        self._sample = types.FunctionType(
            method.__code__, names, method.__name__, method.__defaults__, method.__closure__
        )
        self._sample.__kwdefaults__ = method.__kwdefaults__

    def forward(self, device: Any, prepared: tuple[Any, ...], noise: Any, **options: Any) -> Any:
        model = _Preprocessed(self.model, prepared)
        return self._sample(model, device, model, noise=noise, **options)


class _Preprocessed:
    """The model and the observation at once, after the preprocessing."""

    def __init__(self, model: Any, prepared: tuple[Any, ...]) -> None:
        self._model = model
        self._prepared = prepared
        self.state = prepared[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _preprocess_observation(self, _: Any, *, train: bool) -> tuple[Any, ...]:  # noqa: ARG002 - openpi's signature
        return self._prepared


class _Number:
    """A number that the code expects to be a tensor with one value of float32 on a device."""

    def __init__(self, value: float, device: Any) -> None:
        mantissa, exponent = math.frexp(value)
        self.value = math.ldexp(round(mantissa * 2**24), exponent - 24)
        self.device = device

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what `__mul__` and others do; torch.compile calls this instead."""
        return function(*(x.value if isinstance(x, _Number) else x for x in args), **(kwargs or {}))

    def _as_other(self, other: Any) -> Any:
        return other.value if isinstance(other, _Number) else other

    def _result(self, value: Any) -> Any:
        return value if isinstance(value, torch.Tensor) else _Number(value, self.device)

    def __neg__(self) -> "_Number":
        return _Number(-self.value, self.device)

    def __add__(self, other: Any) -> Any:
        return self._result(self.value + self._as_other(other))

    def __sub__(self, other: Any) -> Any:
        return self._result(self.value - self._as_other(other))

    def __mul__(self, other: Any) -> Any:
        return self._result(self.value * self._as_other(other))

    def __truediv__(self, other: Any) -> Any:
        return self._result(self.value / self._as_other(other))

    __radd__, __rmul__ = __add__, __mul__
    __iadd__, __isub__ = __add__, __sub__  # torch.compile of torch 2.9 does not look for the others

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= self._as_other(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > self._as_other(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= self._as_other(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < self._as_other(other))

    def expand(self, *sizes: int) -> Any:
        return torch.full(sizes, self.value, dtype=torch.float32, device=self.device)


def _number_or_tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what `torch.tensor` does, but keep one number of float32 as a number."""
    if isinstance(data, float) and kwargs.get("dtype") is torch.float32 and not args:
        return _Number(data, kwargs.get("device"))
    return torch.tensor(data, *args, **kwargs)


def _with_preprocessing(model: Any, sampling: Any) -> Callable[..., Any]:
    """Return `sample_actions` that preprocesses and draws the noise as before, and leaves the rest to `sampling`."""

    def call(device: Any, observation: Any, noise: Any = None, **options: Any) -> Any:
        with torch.no_grad():
            if noise is None:
                shape = (observation.state.shape[0], model.config.action_horizon, model.config.action_dim)
                noise = model.sample_noise(shape, device)
            prepared = model._preprocess_observation(observation, train=False)  # noqa: SLF001 - openpi's name
            return sampling(device, tuple(prepared), noise, **options)

    return call


class _SampleActions(torch.nn.Module):  # type: ignore[misc]
    """A module that calls `sample_actions` of another one."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.training = False
        self.__name__ = f"{type(model).__name__}.{_SAMPLE}"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.model).sample_actions(self.model, *args, **kwargs)


def _with_noise(model: Any, sample_actions: Any) -> Callable[..., Any]:
    """Return `sample_actions` with the noise drawn before the call, as the model draws it: compiled code has other random numbers."""
    signature = inspect.signature(getattr(type(model), _SAMPLE))
    names = list(signature.parameters)
    draws = names[1] == "images" and "noise" in names and hasattr(model, "sample_noise")

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(model, *args, **kwargs).arguments
        if draws and given.get("noise") is None:
            image = given["images"][0]
            shape = (image.shape[0], model.config.chunk_size, model.config.max_action_dim)
            noise = model.sample_noise(shape, image.device)
            args, kwargs = args[: names.index("noise") - 1], {**kwargs, "noise": noise}
        return sample_actions(*args, **kwargs)

    return call


class _OutermostCalls:
    """Records the names of the modules with parameters that are called while no other module of the policy is being called.

    `sample_actions` of a module counts as a call of it, and has a name of its own.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._depth = 0
        self._undo: list[Callable[[], object]] = []
        self.names: list[str] = []

    def __enter__(self) -> None:
        for name, module in self._policy.named_modules():
            if name:
                before = module.register_forward_pre_hook(lambda *_, name=name: self._enter(name))
                after = module.register_forward_hook(lambda *_: self._leave(), always_call=True)
                self._undo += [before.remove, after.remove]
                if hasattr(type(module), _SAMPLE):
                    self._watch_samples(name, module)

    def _watch_samples(self, name: str, module: Any) -> None:
        compiled = vars(module).get(_SAMPLE)  # by the policy itself

        def sample_actions(*args: Any, **kwargs: Any) -> Any:
            self._enter(f"{name}.{_SAMPLE}")
            try:
                return type(module).sample_actions(module, *args, **kwargs)
            finally:
                self._leave()

        setattr(module, _SAMPLE, sample_actions)
        self._undo.append(
            lambda: setattr(module, _SAMPLE, compiled) if compiled is not None else delattr(module, _SAMPLE)
        )

    def _enter(self, name: str) -> None:
        module = self._policy.get_submodule(name.removesuffix(f".{_SAMPLE}"))
        has_weights = any(True for _ in module.parameters())
        if self._depth == 0 and has_weights and name not in self.names:
            self.names.append(name)
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1

    def __exit__(self, *_: object) -> None:
        for undo in self._undo:
            undo()
