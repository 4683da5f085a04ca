"""Robot policies, such as those of lerobot: the networks that `select_action` calls, optimized in place.

The first action runs as before, and shows which modules are called from outside of any other module: `model` of ACT, `rgb_encoder` and
`unet` of a diffusion policy. Each is replaced by a module that is optimized by its next call. Preprocessing, queues and the denoising
loop stay in Python.
"""

from typing import Any

import torch

from rocsolid.integrations.parts import OptimizePart, Parts, add_methods
from rocsolid.model.program_report import ProgramReport


def is_policy(program: Any) -> bool:
    """Whether this is a module with `select_action`."""
    return isinstance(program, torch.nn.Module) and callable(getattr(program, "select_action", None))


def optimize_policy(policy: Any, optimize_part: OptimizePart) -> Any:
    """Optimize the networks of a policy in place, and return the policy."""
    parts = Parts(policy, optimize_part)
    parts.leave("select_action", "was not called yet")
    waiting = [True]

    def select_action(original: Any, *args: Any, **kwargs: Any) -> Any:
        if not waiting or policy.training:
            return original(*args, **kwargs)
        outermost = _OutermostCalls(policy)
        with outermost:
            action = original(*args, **kwargs)
        if outermost.names:  # a queue of actions may be left from before
            waiting.clear()
            parts.forget()
            for name in outermost.names:
                owner, _, attribute = name.rpartition(".")
                parts.optimize(name, policy.get_submodule(owner), attribute)
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

    add_methods(policy, {"select_action": select_action, "explain": explain, "undo": undo})
    return policy


class _OutermostCalls:
    """Records the names of the modules with parameters that are called while no other module of the policy is being called."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._depth = 0
        self._handles: list[Any] = []
        self.names: list[str] = []

    def __enter__(self) -> None:
        for name, module in self._policy.named_modules():
            if name:
                self._handles += [
                    module.register_forward_pre_hook(lambda *_, name=name: self._enter(name)),
                    module.register_forward_hook(lambda *_: self._leave(), always_call=True),
                ]

    def _enter(self, name: str) -> None:
        has_weights = any(True for _ in self._policy.get_submodule(name).parameters())
        if self._depth == 0 and has_weights and name not in self.names:
            self.names.append(name)
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
