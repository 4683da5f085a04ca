"""Programs of libraries after `rs.optimize(program)`, next to `torch.compile` as their users apply it; each way in its own process.

    python -m benchmarks.programs dit --out evidence/dit-on-h200.json
    python -m benchmarks.programs diffusion_policy flow_policy --out evidence/policies-on-h200.json
    python -m benchmarks.programs --together --layers 4 --deadline 45 --rounds 3   # all three in about a minute

`dit`: a `DiTPipeline` of diffusers, 12 layers of width 768, 256 or 1024 (`--tokens`) tokens, 20 steps, batch 1 with guidance, next to
`torch.compile(mode="reduce-overhead")` of the denoiser. The policies have random weights and the form of those of lerobot, and are
compared with what lerobot does with `compile_model=True`. `diffusion_policy`: convolutions that see two images, a 1-D U-Net with the
default sizes, 10 steps in Python; the U-Net is compiled with reduce-overhead. `flow_policy`: as π0, an encoder of images and a flow of 10
steps in `sample_actions`, which is compiled with max-autotune. One call of a policy is one `select_action` that runs the networks.

All ways of a program are set up at the same time and then measured one at a time, in interleaved rounds. Compiling the 18 layers and 10
steps of the flow takes minutes; `--layers` makes it smaller.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from benchmarks.denoiser import Encoder, TenSteps
from benchmarks.run import BenchmarkProcess
from rocsolid.measure.evidence import evidence, write

_WARMUP_CALLS: Final = 4  # in the second call rs.optimize may compile, and a graph is compared with eager
_SEED: Final = 3


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the programs are."""

    tokens: int
    layers: int
    small: bool

    @property
    def arguments(self) -> list[str]:
        """The same for the command line."""
        return ["--tokens", str(self.tokens), "--layers", str(self.layers), *(["--small"] if self.small else [])]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program, one call of it, and how its users compile it in place."""

    program: Any
    call: Callable[[Any], Any]  # returns a tensor
    compile: Callable[[Any], object]


class FiLMBlock(nn.Module):  # type: ignore[misc]
    """Two convolutions with a scale and shift from the condition in between."""

    def __init__(self, inputs: int, width: int, condition: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(inputs, width, 5, padding=2), nn.GroupNorm(8, width), nn.Mish())
        self.second = nn.Sequential(nn.Conv1d(width, width, 5, padding=2), nn.GroupNorm(8, width), nn.Mish())
        self.film = nn.Sequential(nn.Mish(), nn.Linear(condition, 2 * width))
        self.skip = nn.Conv1d(inputs, width, 1)

    def forward(self, x: Any, condition: Any) -> Any:
        """Return features of the same length."""
        scale, shift = self.film(condition)[..., None].chunk(2, 1)
        return self.second(self.first(x) * scale + shift) + self.skip(x)


class UNet(nn.Module):  # type: ignore[misc]
    """A conditional 1-D U-Net over the actions of a horizon."""

    def __init__(self, actions: int, widths: tuple[int, ...], condition: int) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(128, 512), nn.Mish(), nn.Linear(512, 128))
        condition += 128
        pairs = [*zip((actions, *widths[:-1]), widths, strict=True)]
        self.down = nn.ModuleList(
            nn.ModuleList([FiLMBlock(a, b, condition), FiLMBlock(b, b, condition), nn.Conv1d(b, b, 3, 2, 1)])
            for a, b in pairs
        )
        self.middle = nn.ModuleList(FiLMBlock(widths[-1], widths[-1], condition) for _ in range(2))
        self.up = nn.ModuleList(
            nn.ModuleList(
                [nn.ConvTranspose1d(b, b, 4, 2, 1), FiLMBlock(2 * b, a, condition), FiLMBlock(a, a, condition)]
            )
            for a, b in reversed([(a if i else b, b) for i, (a, b) in enumerate(pairs)])
        )
        self.out = nn.Conv1d(widths[0], actions, 1)
        self.register_buffer("frequencies", torch.logspace(0, -4, 64))

    def forward(self, x: Any, step: Any, condition: Any) -> Any:
        """Return what is subtracted from the noisy actions."""
        angles = step[:, None].to(self.frequencies) * self.frequencies
        condition = torch.cat([self.time(torch.cat([angles.sin(), angles.cos()], -1)), condition], -1)
        x = x.transpose(1, 2)
        skips = []
        for first, second, smaller in self.down:
            x = second(first(x, condition), condition)
            skips.append(x)
            x = smaller(x)
        for block in self.middle:
            x = block(x, condition)
        for (larger, first, second), skip in zip(self.up, reversed(skips), strict=True):
            x = second(first(torch.cat([larger(x), skip], 1), condition), condition)
        return self.out(x).transpose(1, 2)


class Policy(nn.Module):  # type: ignore[misc]
    """A policy that returns one action of a queue, and runs its networks when the queue is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: deque[Any] = deque()

    def reset(self) -> None:
        """Empty the queue."""
        self.queue.clear()

    def select_action(self, observation: Mapping[str, Any]) -> Any:
        """Return the next action."""
        if not self.queue:
            self.queue.extend(self.predict(observation).unbind(1))
        return self.queue.popleft()

    def predict(self, observation: Mapping[str, Any]) -> Any:
        """Return a chunk of actions."""
        raise NotImplementedError


class DiffusionPolicy(Policy):
    """As the diffusion policy of lerobot: the U-Net is a module, the loop over the steps is Python."""

    def __init__(self, *, small: bool) -> None:
        super().__init__()
        widths, self.horizon, self.actions = ((16, 32), 8, 4) if small else ((512, 1024, 2048), 16, 14)
        layers: list[nn.Module] = []
        for a, b in ((3, 64), (64, 128), (128, 256), (256, 512)):
            layers += [nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(b // 16, b), nn.ReLU()]
        self.rgb_encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.unet = UNet(self.actions, widths, 2 * 512)

    def predict(self, observation: Mapping[str, Any]) -> Any:
        """Take ten steps from noise to actions."""
        images = observation["images"]
        condition = self.rgb_encoder(images).reshape(1, -1)
        sample = torch.randn(1, self.horizon, self.actions, device=images.device, dtype=images.dtype)
        for number in range(9, -1, -1):
            step = torch.full((1,), 10 * number, dtype=torch.long, device=images.device)
            sample = sample - 0.1 * self.unet(sample, step, condition)
        return sample


class FlowModel(nn.Module):  # type: ignore[misc]
    """As the model of π0: all of the inference is `sample_actions`."""

    def __init__(self, layers: int, chunk: int) -> None:
        super().__init__()
        self.chunk, self.width = chunk, 1024
        self.encoder = Encoder(layers=layers)
        self.to_keys = nn.ModuleList(nn.Linear(self.width, 2 * self.width) for _ in range(layers))
        self.flow = TenSteps(layers=layers)

    def sample_actions(self, ids: Any, mask: Any, noise: Any) -> Any:
        """Encode what is seen, and take ten steps from noise to actions."""
        seen = self.encoder(ids, mask)
        batch, count, _ = seen.shape
        pairs = [layer(seen).view(batch, count, 2, 8, -1).permute(2, 0, 3, 1, 4) for layer in self.to_keys]
        return self.flow(noise, [keys for keys, _ in pairs], [values for _, values in pairs])


class FlowPolicy(Policy):
    """A policy around `FlowModel`."""

    def __init__(self, layers: int, chunk: int) -> None:
        super().__init__()
        self.model = FlowModel(layers, chunk)

    def predict(self, observation: Mapping[str, Any]) -> Any:
        """Return what the model samples."""
        model = self.model
        weight = model.flow.expert.time.weight
        noise = torch.randn(1, model.chunk, model.width, device=weight.device, dtype=weight.dtype)
        return model.sample_actions(observation["ids"], observation["mask"], noise)


def _dit(device: str, sizes: Sizes) -> Program:
    import diffusers

    layers, heads, steps = (2, 2, 2) if sizes.small else (12, 12, 20)
    side = int(sizes.tokens**0.5) * 2
    torch.manual_seed(0)
    transformer = diffusers.DiTTransformer2DModel(
        num_attention_heads=heads,
        attention_head_dim=64,
        in_channels=4,
        num_layers=layers,
        sample_size=side,
        patch_size=2,
        out_channels=8,
        num_embeds_ada_norm=1000,
        norm_type="ada_norm_zero",
    )
    vae = diffusers.AutoencoderKL(
        block_out_channels=(32,) * 4,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
    )
    pipe = diffusers.DiTPipeline(transformer.eval(), vae.eval(), diffusers.DDIMScheduler())
    pipe.to(device, torch.bfloat16)
    pipe.set_progress_bar_config(disable=True)

    def call(pipe: Any) -> Any:
        generator = torch.Generator(device).manual_seed(_SEED)
        made = pipe(class_labels=[207], generator=generator, num_inference_steps=steps, output_type="np")
        return torch.from_numpy(made.images)

    def compile_denoiser(pipe: Any) -> None:
        pipe.transformer = torch.compile(pipe.transformer, mode="reduce-overhead")

    return Program(program=pipe, call=call, compile=compile_denoiser)


def _policy(policy: Any, observation: Mapping[str, Any], compile_networks: Callable[[Any], object]) -> Program:
    def call(policy: Any) -> Any:
        policy.reset()
        torch.manual_seed(_SEED)
        return policy.select_action(observation)

    return Program(program=policy.eval(), call=call, compile=compile_networks)


def _diffusion_policy(device: str, sizes: Sizes) -> Program:
    torch.manual_seed(0)
    policy = DiffusionPolicy(small=sizes.small).to(device, torch.bfloat16)

    def compile_unet(policy: Any) -> None:
        policy.unet = torch.compile(policy.unet, mode="reduce-overhead")

    images = torch.rand(2, 3, 96, 96, device=device, dtype=torch.bfloat16)
    return _policy(policy, {"images": images}, compile_unet)


def _flow_policy(device: str, sizes: Sizes) -> Program:
    torch.manual_seed(0)
    layers, chunk = (2, 8) if sizes.small else (sizes.layers, 50)
    policy = FlowPolicy(layers, chunk).to(device, torch.bfloat16)

    def compile_sampling(policy: Any) -> None:
        policy.model.sample_actions = torch.compile(policy.model.sample_actions, mode="max-autotune")

    ids = torch.randint(0, 999, (1, sizes.tokens), device=device)
    return _policy(policy, {"ids": ids, "mask": torch.ones_like(ids, dtype=torch.bool)}, compile_sampling)


PROGRAMS: Final = {"dit": _dit, "diffusion_policy": _diffusion_policy, "flow_policy": _flow_policy}
METHODS: Final = ("eager", "torch.compile", "rs.optimize")


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def serve(name: str, method: str, sizes: Sizes) -> None:
    """Set up a program with a method, write the result of the set-up, and measure when a number of calls is read."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other prints go to stderr
    try:
        made = PROGRAMS[name]("cuda" if torch.cuda.is_available() else "cpu", sizes)
        with torch.no_grad():
            want = made.call(made.program).float()
            program, begun = made.program, time.perf_counter()
            if method == "rs.optimize":
                import rocsolid as rs

                program = rs.optimize(program)
            elif method == "torch.compile":
                made.compile(program)
            for _ in range(_WARMUP_CALLS):
                got = made.call(program).float()
        about: dict[str, Any] = {
            "setup_s": round(time.perf_counter() - begun, 1),
            "error": float((got - want).norm() / want.norm()),
        }
        if method == "rs.optimize":
            about["explain"] = str(program.explain()).splitlines()
    except Exception as failed:  # noqa: BLE001 - the failure of a method is a result
        print(json.dumps({"failed": f"{type(failed).__name__}: {failed}"[:300]}), file=out, flush=True)
        return
    print(json.dumps(about), file=out, flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            _finish()
            started = time.perf_counter()
            with torch.no_grad():
                made.call(program)
            _finish()
            times.append((time.perf_counter() - started) * 1e3)
        print(json.dumps(times), file=out, flush=True)


class ProgramProcess(BenchmarkProcess):
    """The process of one program with one method."""

    module = "benchmarks.programs"

    def __init__(self, name: str, method: str, sizes: Sizes) -> None:
        super().__init__(f"--serve={name}", method, "cuda" if torch.cuda.is_available() else "cpu", "bfloat16")
        self.arguments = sizes.arguments


def measure(
    names: Sequence[str], methods: Sequence[str], sizes: Sizes, *, rounds: int, deadline_s: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Set up all methods of these programs at once; yields the results of one program after the other."""
    groups = {name: {method: ProgramProcess(name, method, sizes) for method in methods} for name in names}
    every = [process for group in groups.values() for process in group.values()]
    try:
        for process in every:
            process.begin()
        deadline = time.monotonic() + deadline_s
        for name, processes in groups.items():
            for method, process in processes.items():
                process.wait(deadline)
                print(f"{name}, {method}: {json.dumps(process.about)}", file=sys.stderr, flush=True)
        for name, processes in groups.items():
            for _ in range(rounds):
                usable = [process for process in processes.values() if process.usable]
                random.shuffle(usable)
                for process in usable:
                    process.measure(time.monotonic() + 60)
            yield name, {method: process.record() for method, process in processes.items()}
    finally:
        for process in every:
            process.stop()


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--methods", nargs="*", default=[*METHODS])
    parser.add_argument("--tokens", type=int, default=256, help="of the denoiser, or of what a flow policy sees")
    parser.add_argument("--layers", type=int, default=18, help="of a flow policy")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--deadline", type=float, default=240.0, help="seconds for the set-up of all ways of a program")
    parser.add_argument("--together", action="store_true", help="set up all programs at the same time")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the benchmark")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sizes = Sizes(tokens=options.tokens, layers=options.layers, small=options.small)
    if options.serve:
        serve(options.serve, options.programs[0], sizes)
        return
    names = options.programs or [*PROGRAMS]
    facts: dict[str, Any] = {"tokens": sizes.tokens, "layers": sizes.layers}
    for group in [names] if options.together else [[name] for name in names]:
        for name, found in measure(group, options.methods, sizes, rounds=options.rounds, deadline_s=options.deadline):
            facts[name] = found
            print(_table(name, found), flush=True)
            if options.out:
                command = f"python -m benchmarks.programs {' '.join(sys.argv[1:])}"
                write(evidence(what=__doc__.partition("\n")[0], command=command, facts=facts), options.out)


def _table(name: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    compiled = found.get("torch.compile", {}).get("median_ms")
    lines = [f"{name:18}{'ms a call':>12}{'vs torch.compile':>18}{'error':>10}{'set-up, s':>11}"]
    for method, row in found.items():
        ms = row.get("median_ms")
        if ms is None:
            lines.append(f"  {method:16}{row.get('failed', 'not measured')}")
            continue
        gain = f"{compiled / ms:.2f}x" if compiled else ""
        lines.append(f"  {method:16}{ms:12.3f}{gain:>18}{row['error']:10.1e}{row['setup_s']:11.1f}")
    return "\n".join([*lines, *found.get("rs.optimize", {}).get("explain", ())])


if __name__ == "__main__":
    from benchmarks.programs import main as run

    run()  # of the module with this name, so that a child process finds the classes
