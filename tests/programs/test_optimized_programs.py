"""`rs.optimize` of a pipeline of diffusers and of a policy, compared with a plain copy."""

import copy
import types
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.programs.support import captured_part, difference

import rocsolid as rs
from rocsolid.integrations import policies
from rocsolid.integrations.metrics import prometheus_text


class Policy(torch.nn.Module):  # type: ignore[misc]
    """A policy with a queue, like those of lerobot."""

    def __init__(self, chunk: int = 3) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(4, 8)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2 * chunk))
        self.flatten = torch.nn.Flatten()
        self.queue: list[Any] = []

    def select_action(self, batch: dict[str, Any]) -> Any:
        if not self.queue:
            chunk = self.net(self.encoder(self.flatten(batch["state"]))).unflatten(1, (-1, 2))
            self.queue = list(chunk.transpose(0, 1))
        return self.queue.pop(0)


@torch.no_grad()
def test_networks_of_a_policy_are_found_by_its_first_action() -> None:
    plain = Policy().eval()
    fast = policies.optimize_policy(copy.deepcopy(plain), captured_part)
    assert isinstance(fast, Policy)
    assert "select_action: was not called yet" in str(fast.explain())
    for _ in range(12):
        batch = {"state": torch.randn(1, 4)}
        torch.testing.assert_close(fast.select_action(batch), plain.select_action(batch))
        assert len(fast.queue) == len(plain.queue)
    assert [part.name for part in fast.explain().parts if part.optimized] == ["encoder", "net"]
    assert (
        fast.net.captured.report().replays == 1
    )  # the third chunk: the first finds the networks, the second is the example
    policies.optimize_policy(fast, captured_part)  # optimized again: the plain networks, once
    assert type(fast.net) is torch.nn.Sequential
    assert fast.undo() is fast
    assert "undo() was called" in str(fast.explain())
    batch = {"state": torch.randn(1, 4)}
    torch.testing.assert_close(fast.select_action(batch), plain.select_action(batch))


@torch.no_grad()
def test_policy_in_training_mode_waits() -> None:
    fast = rs.optimize(Policy(), budget_s=0)
    fast.select_action({"state": torch.randn(1, 4)})
    assert "was not called yet" in str(fast.explain())
    fast.eval().queue.clear()
    fast.select_action({"state": torch.randn(1, 4)})
    assert "net: eager, waiting for the first call" in str(fast.explain())


@torch.no_grad()
def test_network_that_cannot_be_captured_is_named_and_runs_in_eager() -> None:
    class Clipped(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return y / y.abs().max() if y.abs().max().item() > 0.1 else y

    plain = Policy().eval()
    plain.encoder = Clipped(4, 8)
    fast = policies.optimize_policy(copy.deepcopy(plain), captured_part)
    for _ in range(12):
        batch = {"state": torch.randn(1, 4)}
        torch.testing.assert_close(fast.select_action(batch), plain.select_action(batch))
    encoder, net = fast.explain().parts
    assert (encoder.name, encoder.optimized, net.optimized) == ("encoder", False, True)
    assert "not captured: " in encoder.detail
    assert "`y.abs().max().item()` copies a value to the CPU" in encoder.detail
    assert "1 graph, " in net.detail


@torch.no_grad()
def test_counters_and_notebook_page_of_a_program() -> None:
    fast = policies.optimize_policy(Policy().eval(), captured_part)
    for _ in range(12):
        fast.select_action({"state": torch.randn(1, 4)})
    report = fast.explain()
    assert report.counters()['rocsolid_replays_total{part="net"}'] == 1
    text = prometheus_text(policy=fast)
    assert 'rocsolid_replays_total{function="policy",part="encoder"} 1\n' in text
    assert 'rocsolid_form{function="policy",part="net",form="eager + graph"} 1\n' in text
    assert "optimized  net" in report._repr_html_()


@torch.no_grad()
def test_explain_and_undo_of_a_model_without_a_door() -> None:
    plain = Policy().net.eval()
    fast = captured_part(plain)
    assert "unchanged  the model: eager, waiting for the first call" in str(fast.explain())
    x = torch.randn(1, 8)
    for _ in range(4):
        torch.testing.assert_close(fast(x), plain(x))
    assert "optimized  the model: eager + graph, a test; 1 graph, 2 replays" in str(fast.explain())
    assert fast.undo() is plain
    torch.testing.assert_close(fast(x), plain(x))
    fast.double()  # does not bring the form back
    torch.testing.assert_close(fast(x.double()), plain(x.double()))
    assert str(fast.explain()) == "Sequential\n  unchanged  the model: undo() was called"


class Flow(torch.nn.Module):  # type: ignore[misc]
    """A model with `sample_actions`, like those of SmolVLA and π0."""

    def __init__(self) -> None:
        super().__init__()
        self.config = types.SimpleNamespace(chunk_size=3, max_action_dim=2, rtc_config=None)
        self.net = torch.nn.Linear(2, 2)

    def sample_noise(self, shape: Any, device: Any) -> Any:
        return torch.randn(shape, device=device)

    def sample_actions(self, images: Any, state: Any, noise: Any = None) -> Any:
        if noise is None:
            noise = self.sample_noise((state.shape[0], 3, 2), state.device)
        for _ in range(3):
            noise = noise - self.net(noise) / 3 + images[0] + state
        return noise


class FlowPolicy(torch.nn.Module):  # type: ignore[misc]
    """A policy without a queue, whose inference is `sample_actions`."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Flow()

    def predict_action_chunk(self, batch: Any) -> Any:
        return self.model.sample_actions([batch["image"]], batch["state"])

    def select_action(self, batch: Any) -> Any:
        return self.predict_action_chunk(batch)[:, 0]


def _batch() -> dict[str, Any]:
    return {"image": torch.randn(1, 3, 2), "state": torch.randn(1, 1, 2)}


@pytest.mark.parametrize("method", ["select_action", "predict_action_chunk"])
@pytest.mark.parametrize("compiled", [False, True])
@torch.no_grad()
def test_sample_actions_is_one_part_and_draws_the_same_noise(method: str, compiled: bool) -> None:  # noqa: FBT001 - a case
    plain = FlowPolicy().eval()
    fast = copy.deepcopy(plain)
    if compiled:  # as with compile_model=True of lerobot
        fast.model.sample_actions = torch.compile(fast.model.sample_actions, backend="eager")
    before = vars(fast.model).get("sample_actions")
    policies.optimize_policy(fast, captured_part)
    for step in range(5):
        batch, results = _batch(), []
        for policy in (plain, fast):
            torch.manual_seed(step)
            results.append((getattr(policy, method)(batch), torch.rand(1)))  # the generators stay equal, too
        torch.testing.assert_close(*results)
    (part,) = fast.explain().parts
    assert (part.name, part.optimized) == ("model.sample_actions", True)
    assert "1 graph, 2 replays" in part.detail  # the first call finds the part, the second is its example
    assert list(fast.state_dict()) == list(plain.state_dict())
    fast.undo()
    assert vars(fast.model).get("sample_actions") is before


PREPROCESSED: list[Any] = []


class Observation:
    """What openpi makes of an observation, as `Pi` reads it."""

    def __init__(self, images: dict[str, Any], state: Any) -> None:
        self.images, self.state = images, state


class Pi(torch.nn.Module):  # type: ignore[misc]
    """A model of the shape of openpi's: it preprocesses, and its loop compares numbers that are on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.config = types.SimpleNamespace(action_horizon=3, action_dim=2)
        self.see, self.act = torch.nn.Linear(3, 2), torch.nn.Linear(4, 2)
        self.sample_actions = torch.compile(self.sample_actions, backend="eager")

    def sample_noise(self, shape: Any, device: Any) -> Any:
        return torch.normal(mean=0.0, std=1.0, size=shape, dtype=torch.float32, device=device)

    def _preprocess_observation(self, observation: Any, *, train: bool = True) -> Any:
        assert not train
        PREPROCESSED.append(observation)
        images = {name: image / 2 for name, image in observation.images.items()}
        return list(images.values()), observation.state

    def embed(self, images: Any) -> Any:
        mask = torch.tensor([True] * len(images), dtype=torch.bool, device=images[0].device)
        return (torch.stack([self.see(image) for image in images]) * mask[:, None, None]).sum(0)

    def step(self, seen: Any, state: Any, x: Any, time: Any) -> Any:
        return self.act(torch.cat([x + seen[:, None] + state[:, None], (x * time[:, None, None]).sin()], -1))

    @torch.no_grad()
    def sample_actions(self, device: Any, observation: Any, noise: Any = None, num_steps: int = 10) -> Any:
        batch = observation.state.shape[0]
        if noise is None:
            noise = self.sample_noise((batch, self.config.action_horizon, self.config.action_dim), device)
        images, state = self._preprocess_observation(observation, train=False)
        seen = self.embed(images)
        dt = torch.tensor(-1.0 / num_steps, dtype=torch.float32, device=device)
        time = torch.tensor(1.0, dtype=torch.float32, device=device)
        while time >= -dt / 2:
            noise = noise + dt * self.step(seen, state, noise, time.expand(batch))
            time += dt
        return noise


class PiPolicy:
    """A policy of the shape of openpi's; it is no module."""

    def __init__(self, model: Any, **sample_kwargs: Any) -> None:
        self._model, self._sample_actions = model.eval(), model.sample_actions
        self._sample_kwargs = sample_kwargs

    def infer(self, observation: dict[str, Any], *, noise: Any = None) -> dict[str, Any]:
        inputs = {name: torch.from_numpy(value)[None] for name, value in observation.items()}
        options = dict(self._sample_kwargs)
        if noise is not None:
            options["noise"] = torch.from_numpy(noise)[None]
        made = Observation({name: x for name, x in inputs.items() if name != "state"}, inputs["state"])
        return {"actions": self._sample_actions("cpu", made, **options)[0].numpy()}


@pytest.mark.parametrize("steps", [10, 4])
def test_policy_of_openpi(steps: int) -> None:
    plain = PiPolicy(Pi(), num_steps=steps)
    fast = PiPolicy(Pi(), num_steps=steps)
    fast._model.load_state_dict(plain._model.state_dict())
    before = fast._sample_actions
    PREPROCESSED.clear()
    assert policies.is_openpi_policy(fast)
    assert not policies.is_policy(fast)
    assert policies.optimize_openpi_policy(fast, captured_part) is fast
    for number in range(5):
        observation = {name: torch.rand(size).numpy() for name, size in (("left", 3), ("right", 3), ("state", 2))}
        noise = torch.rand(3, 2).numpy() if number % 2 else None
        results = []
        for policy in (plain, fast):
            torch.manual_seed(number)
            results.append(
                (policy.infer(observation, noise=noise)["actions"], torch.rand(1))
            )  # the generators stay equal, too
        assert results[0][0].tolist() == results[1][0].tolist()
        assert results[0][1] == results[1][1]
    assert len(PREPROCESSED) == 10
    (part,) = fast.explain().parts
    assert (part.name, part.optimized) == ("sample_actions", True)
    assert "1 graph, 3 replays" in part.detail
    assert fast.undo() is fast
    assert fast._sample_actions is before


def test_sampling_of_openpi_is_compiled_as_a_whole() -> None:
    """Its own loop waits for the device in each step, which breaks the graph."""
    torch._dynamo.reset()
    model = Pi().eval()
    sampling = policies._OpenpiSampling(model)
    prepared, noise = ([torch.rand(1, 3)], torch.rand(1, 2)), torch.rand(1, 3, 2)
    with torch.no_grad():
        want = sampling("cpu", prepared, noise)
        compiled = torch.compile(sampling, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled("cpu", prepared, noise), want)


def test_optimize_finds_a_policy_of_openpi_by_its_methods() -> None:
    policy = PiPolicy(Pi())
    observation = {name: torch.rand(size).numpy() for name, size in (("left", 3), ("state", 2))}
    assert rs.optimize(policy, budget_s=0) is policy
    policy.infer(observation)
    assert rs.optimize(policy, budget_s=0) is policy
    assert "sample_actions: eager, waiting for the first call" in str(policy.explain())
    del Pi._preprocess_observation
    assert "Pi has no _preprocess_observation" in str(rs.optimize(PiPolicy(Pi())).explain())
    with pytest.raises(rs.UsageError, match="needs a callable or a module; got Observation"):
        rs.optimize(Observation({}, None))


@torch.no_grad()
def test_real_time_chunking_is_left_alone_with_the_reason() -> None:
    fast = FlowPolicy().eval()
    fast.model.config.rtc_config = types.SimpleNamespace(enabled=True)
    policies.optimize_policy(fast, captured_part).select_action(_batch())
    assert "unchanged  model.sample_actions: real-time chunking (`rtc_config`)" in str(fast.explain())
    assert "sample_actions" not in vars(fast.model)


OPTIMIZED_PARTS = {
    "act": ["model"],
    "diffusion": ["diffusion.rgb_encoder", "diffusion.unet"],
    "smolvla": ["model.sample_actions"],
    "pi0": ["model.sample_actions"],
}


@pytest.mark.parametrize("kind", OPTIMIZED_PARTS)
@torch.no_grad()
def test_policy_of_lerobot(kind: str) -> None:
    pytest.importorskip("lerobot")
    from tests.programs import test_lerobot

    torch.manual_seed(0)
    plain = getattr(test_lerobot, f"_{kind}")()
    observe = test_lerobot._instructed if kind in ("smolvla", "pi0") else test_lerobot._observation
    fast = policies.optimize_policy(copy.deepcopy(plain), captured_part)
    for episode in range(2):
        for step in range(9):
            batch = observe(1)
            results = []
            for policy in (plain, fast):
                torch.manual_seed(100 * episode + step)
                results.append(policy.select_action(dict(batch)))
            torch.testing.assert_close(*results)
            assert difference(*(test_lerobot.Rollout._queues(policy) for policy in (fast, plain))) == ""
        for policy in (plain, fast):
            policy.reset()
    report = fast.explain()
    assert [part.name for part in report.parts if part.optimized] == OPTIMIZED_PARTS[kind], report
    assert not [part.detail for part in report.parts if ", 0 replays" in part.detail or "not captured" in part.detail]


@pytest.fixture(params=["sd", "sdxl", "sd3", "flux"])
def pipes(request: pytest.FixtureRequest) -> tuple[Any, Any, Callable[[], dict[str, Any]]]:
    pytest.importorskip("diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion")
    pytest.importorskip("transformers")
    from tests.programs import test_diffusers

    from rocsolid.integrations import diffusers

    torch.manual_seed(0)
    plain, _, inputs = test_diffusers.PIPELINES[request.param]()
    plain.set_progress_bar_config(disable=True)
    return plain, diffusers.optimize_pipeline(copy.deepcopy(plain), captured_part), inputs


def _images(pipe: Any, inputs: dict[str, Any], **more: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    size = {"height": 32, "width": 32, "num_inference_steps": 3, "output_type": "pt", "guidance_scale": 2.0}
    return pipe(**inputs, **{**size, **more}, generator=generator).images


def _same(plain: Any, fast: Any, inputs: dict[str, Any], **more: Any) -> None:
    torch.testing.assert_close(_images(fast, inputs, **more), _images(plain, inputs, **more))


def _optimized(pipe: Any) -> list[str]:
    return [part.name for part in pipe.explain().parts if part.optimized]


def test_pipeline(pipes: Any) -> None:
    plain, fast, inputs = pipes
    denoiser = "unet" if hasattr(plain, "unet") else "transformer"
    assert isinstance(fast, type(plain))
    for _ in range(2):
        _same(plain, fast, inputs())
    assert {denoiser, "vae.decoder"} <= set(_optimized(fast))
    assert getattr(fast, denoiser).captured.report().replays > 0
    steps: list[int] = []

    def count(_pipe: Any, step: int, _time: Any, values: dict[str, Any]) -> dict[str, Any]:
        steps.append(step)
        return values

    _same(plain, fast, inputs(), num_inference_steps=4, callback_on_step_end=count)
    assert steps == [0, 1, 2, 3] * 2
    assert fast.undo() is fast
    assert type(getattr(fast, denoiser)) is type(getattr(plain, denoiser))
    assert type(fast.vae.decoder) is type(plain.vae.decoder)
    assert _optimized(fast) == []
    _same(plain, fast, inputs())


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_text_encoder_and_saving(pipes: Any, tmp_path: Any) -> None:
    plain, fast, inputs = pipes
    ids = torch.randint(3, 900, (1, 8))
    with torch.no_grad():
        for _ in range(5):
            torch.testing.assert_close(fast.text_encoder(ids)[0], plain.text_encoder(ids)[0])
    assert fast.text_encoder.captured.report().replays > 0
    fast.save_pretrained(tmp_path)
    missing = dict.fromkeys(("tokenizer", "safety_checker", "feature_extractor", "image_encoder"))
    loaded = type(plain).from_pretrained(tmp_path, **missing)
    loaded.set_progress_bar_config(disable=True)
    _same(plain, loaded, inputs())


@pytest.mark.parametrize("pipes", ["sd", "sdxl", "flux"], indirect=True)
def test_lora_is_loaded_into_the_plain_modules_and_learned_again(pipes: Any, tmp_path: Any) -> None:
    peft = pytest.importorskip("peft")
    plain, fast, inputs = pipes
    denoiser = "unet" if hasattr(plain, "unet") else "transformer"
    _same(plain, fast, inputs())
    donor = copy.deepcopy(plain)
    getattr(donor, denoiser).add_adapter(peft.LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False))
    layers = peft.get_peft_model_state_dict(getattr(donor, denoiser))
    type(plain).save_lora_weights(tmp_path, **{f"{denoiser}_lora_layers": layers})
    before = _images(plain, values := inputs())
    for pipe in (plain, fast):
        pipe.load_lora_weights(tmp_path, adapter_name="one")
    assert f"{denoiser}: eager, waiting for the first call" in str(fast.explain())
    for _ in range(2):
        _same(plain, fast, values)
    assert not torch.allclose(before, _images(fast, values))
    changes: list[tuple[str, tuple[Any, ...]]] = [
        ("fuse_lora", ()),
        ("unfuse_lora", ()),
        ("set_adapters", ("one", 0.5)),
    ]
    for name, arguments in (*(changes if denoiser == "unet" else ()), ("unload_lora_weights", ())):
        for pipe in (plain, fast):
            getattr(pipe, name)(*arguments)
        _same(plain, fast, values)
        _same(plain, fast, values)
    assert denoiser in _optimized(fast)


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_adapters_of_the_optimized_part_itself(pipes: Any) -> None:
    """Changed without the pipeline: the graph is captured again."""
    peft = pytest.importorskip("peft")
    plain, fast, inputs = pipes
    _same(plain, fast, values := inputs())
    config = peft.LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
    results = [_images(plain, values)]
    for change in (
        lambda unet: [unet.add_adapter(config, adapter_name=name) for name in "ab"],
        lambda unet: unet.set_adapter("a"),
        lambda unet: unet.disable_adapters(),
    ):
        for pipe in (plain, fast):
            torch.manual_seed(5)
            change(pipe.unet)
        for _ in range(2):
            _same(plain, fast, values)
        results.append(_images(fast, values))
    assert fast.unet.captured.report().replays > 0
    assert not any(torch.equal(one, other) for one, other in pairwise(results))


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_ip_adapter_with_another_scale(pipes: Any) -> None:
    plain, fast, inputs = pipes
    _same(plain, fast, values := inputs())
    unet, width = plain.unet, plain.unet.config.cross_attention_dim
    cross = [name for name in unet.attn_processors if name.endswith("attn2.processor")]
    sizes = [unet.get_submodule(name.removesuffix(".processor")).to_k.out_features for name in cross]
    layers = {
        f"{2 * number + 1}.to_{kind}_ip.weight": torch.randn(size, width)
        for number, size in enumerate(sizes)
        for kind in "kv"
    }
    picture = {
        "proj.weight": torch.randn(4 * width, 32),
        "proj.bias": torch.zeros(4 * width),
        "norm.weight": torch.ones(width),
        "norm.bias": torch.zeros(width),
    }
    embeddings = [torch.randn(2, 1, 32)]
    for pipe in (plain, fast):
        weights = copy.deepcopy({"image_proj": picture, "ip_adapter": layers})
        pipe.load_ip_adapter([weights], subfolder=None, weight_name=None, image_encoder_folder=None)
    results = []
    for scale in (1.0, 1.0, 0.2):
        for pipe in (plain, fast):
            pipe.set_ip_adapter_scale(scale)
        _same(plain, fast, values, ip_adapter_image_embeds=embeddings)
        results.append(_images(fast, values, ip_adapter_image_embeds=embeddings))
    assert torch.equal(*results[:2])
    assert not torch.allclose(*results[1:])
    assert "unet" in _optimized(fast)


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_tiles_of_the_decoder(pipes: Any) -> None:
    plain, fast, inputs = pipes
    _same(plain, fast, values := inputs())
    for pipe in (plain, fast):
        pipe.vae.enable_tiling()
    for _ in range(2):
        _same(plain, fast, values, height=48, width=48, num_inference_steps=1)
    assert len(fast.vae.decoder.captured.report().graphs) > 1
    assert fast.vae.decoder.captured.report().refusals == ()


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
@pytest.mark.parametrize(
    "method", ["enable_model_cpu_offload", "enable_sequential_cpu_offload", "enable_group_offload"]
)
def test_offload_undoes_it_and_is_refused_afterwards(pipes: Any, method: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("accelerate")
    plain, fast, inputs = pipes
    _same(plain, fast, values := inputs())
    options = (
        {"onload_device": torch.device("cpu"), "offload_type": "leaf_level"} if "group" in method else {"device": "cpu"}
    )
    if "sequential" in method:  # not between the CPU and the CPU
        options["device"] = "meta"
    want = _images(plain, values)
    getattr(fast, method)(**options)
    assert type(fast.unet) is type(plain.unet)
    assert f"{method}() was called, which moves the weights" in str(fast.explain())
    if "sequential" not in method:
        for _ in range(2):
            torch.testing.assert_close(_images(fast, values), want)
    assert caplog.text.count("rs.optimize is undone") == 1
    if "group" not in method:
        with pytest.raises(rs.UsageError, match="enable_model_cpu_offload"):
            rs.optimize(fast)


@torch.no_grad()
def test_hook_of_accelerate_on_an_optimized_part() -> None:
    """It puts its own `forward` into the module, and calls what it finds there."""
    hooks = pytest.importorskip("accelerate.hooks")
    plain = Policy().net.eval()
    fast, x = captured_part(copy.deepcopy(plain)), torch.randn(1, 8)
    fast(x)
    hooks.add_hook_to_module(fast, hooks.CpuOffload(execution_device="cpu"))
    for _ in range(4):
        torch.testing.assert_close(fast(x), plain(x))
    hooks.remove_hook_from_module(fast)
    torch.testing.assert_close(fast(x), plain(x))
    assert fast.captured.report().replays > 0


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_optimize_finds_the_pipeline_by_its_class(pipes: Any) -> None:
    plain, _, inputs = pipes
    reference = copy.deepcopy(plain)
    pipe = rs.optimize(plain, budget_s=0)
    assert pipe is plain
    assert rs.optimize(pipe, budget_s=0) is pipe
    assert type(pipe.unet.rocsolid.model) is type(reference.unet)
    _same(reference, pipe, inputs())
    assert pipe.unet.report().example_count == 1


@pytest.mark.parametrize("pipes", ["sd", "flux"], indirect=True)
def test_each_resolution_and_batch_size_has_a_graph(pipes: Any) -> None:
    plain, fast, inputs = pipes
    denoiser = "unet" if hasattr(plain, "unet") else "transformer"
    for size, images in ((32, 1), (48, 1), (32, 2), (32, 1)):
        _same(plain, fast, inputs(), height=size, width=size, num_images_per_prompt=images)
    report = getattr(fast, denoiser).captured.report()
    assert (len(report.graphs), report.refusals, report.evictions) == (3, (), 0), report
    assert min(graph.replays for graph in report.graphs) > 0
    (part,) = (part for part in fast.explain().parts if part.name == denoiser)
    assert f"3 graphs, {report.replays} replays" in part.detail


@pytest.mark.parametrize("pipes", ["sd", "flux"], indirect=True)
def test_graphs_of_old_shapes_are_discarded(pipes: Any) -> None:
    from rocsolid.integrations import diffusers

    plain, fast, inputs = pipes
    denoiser = "unet" if hasattr(plain, "unet") else "transformer"
    diffusers.optimize_pipeline(fast, partial(captured_part, max_graphs=2))
    for size in (32, 48, 64, 32):
        _same(plain, fast, inputs(), height=size, width=size)
    assert len(getattr(fast, denoiser).captured.report().graphs) == 2
    (part,) = (part for part in fast.explain().parts if part.name == denoiser)
    assert part.optimized
    assert "2 graphs of other shapes discarded, the least recently used first" in part.detail


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
@pytest.mark.parametrize("way", ["from_pipe", "components"])
def test_another_pipeline_with_the_parts_of_an_optimized_one(pipes: Any, way: str) -> None:
    from diffusers import StableDiffusionImg2ImgPipeline

    from rocsolid.integrations import diffusers

    plain, fast, inputs = pipes
    _same(plain, fast, inputs())
    plain, other = (
        StableDiffusionImg2ImgPipeline.from_pipe(pipe)
        if way == "from_pipe"
        else StableDiffusionImg2ImgPipeline(**pipe.components, requires_safety_checker=False)
        for pipe in (plain, fast)
    )
    assert type(other.unet) is type(plain.unet)
    for pipe in (plain, other):
        pipe.set_progress_bar_config(disable=True)
    picture = torch.rand(1, 3, 32, 32)
    _same(plain, other, inputs(), image=picture, strength=0.5, num_inference_steps=6)
    diffusers.optimize_pipeline(other, captured_part)
    for strength in (0.5, 0.9):
        _same(plain, other, inputs(), image=picture, strength=strength, num_inference_steps=6)
    assert other.unet.captured.report().replays > 0
    assert "vae.decoder: is shared with another program" in str(other.explain())
    other.undo()
    assert {"unet", "vae.decoder"} <= set(_optimized(fast))
    assert fast.unet.captured is not None


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_another_dtype_is_learned_from_the_next_call(pipes: Any) -> None:
    plain, fast, inputs = pipes
    _same(plain, fast, inputs())
    unet = fast.unet
    assert fast.to("cpu", torch.float32) is fast
    assert fast.unet is unet  # nothing has changed
    for pipe in (plain, fast):
        pipe.to(torch.float64)
    assert fast.unet is not unet
    values = {name: value.double() for name, value in inputs().items()}
    for _ in range(2):
        _same(plain, fast, values)
    assert {"unet", "vae.decoder"} <= set(_optimized(fast))
    assert fast.unet.captured.report().replays > 0
    fast.undo()
    fast.to(torch.float32)
    assert type(fast.unet) is type(plain.unet)


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_img2img(pipes: Any) -> None:
    from diffusers import StableDiffusionImg2ImgPipeline

    from rocsolid.integrations import diffusers

    plain, _, inputs = pipes
    plain = StableDiffusionImg2ImgPipeline(**plain.components, requires_safety_checker=False)
    plain.set_progress_bar_config(disable=True)
    fast = diffusers.optimize_pipeline(copy.deepcopy(plain), captured_part)
    for _ in range(3):
        _same(plain, fast, inputs(), image=torch.rand(1, 3, 32, 32), strength=0.6, num_inference_steps=6)
    assert fast.unet.captured.report().replays > 0


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_controlnet(pipes: Any) -> None:
    from diffusers import ControlNetModel, StableDiffusionControlNetPipeline

    from rocsolid.integrations import diffusers

    plain, _, inputs = pipes
    control = ControlNetModel.from_unet(plain.unet, conditioning_embedding_out_channels=(16, 32)).eval()
    with torch.no_grad():
        for parameter in control.parameters():  # the last layers are zero
            parameter.add_(torch.randn_like(parameter) * 0.1)
    plain = StableDiffusionControlNetPipeline(**plain.components, controlnet=control, requires_safety_checker=False)
    plain.set_progress_bar_config(disable=True)
    fast = diffusers.optimize_pipeline(copy.deepcopy(plain), captured_part)
    for scale in (1.0, 1.0, 0.5, 1.0):
        _same(plain, fast, inputs(), image=torch.rand(1, 3, 32, 32), controlnet_conditioning_scale=scale)
    assert {"unet", "controlnet"} <= set(_optimized(fast))
    for part in (fast.unet, fast.controlnet):
        assert part.captured.report().replays > 0, part.captured.report()


@pytest.mark.parametrize("pipes", ["sd"], indirect=True)
def test_several_controlnets(pipes: Any) -> None:
    from diffusers import ControlNetModel, StableDiffusionControlNetPipeline

    from rocsolid.integrations import diffusers

    plain, _, inputs = pipes
    controls = [
        ControlNetModel.from_unet(plain.unet, conditioning_embedding_out_channels=(16, 32)).eval() for _ in "ab"
    ]
    with torch.no_grad():
        for parameter in (parameter for control in controls for parameter in control.parameters()):
            parameter.add_(torch.randn_like(parameter) * 0.1)  # the last layers are zero
    plain = StableDiffusionControlNetPipeline(**plain.components, controlnet=controls, requires_safety_checker=False)
    plain.set_progress_bar_config(disable=True)
    fast = diffusers.optimize_pipeline(copy.deepcopy(plain), captured_part)
    for scale in ([1.0, 1.0], [0.5, 0.2]):
        images = [torch.rand(1, 3, 32, 32) for _ in "ab"]
        _same(plain, fast, inputs(), image=images, controlnet_conditioning_scale=scale)
    assert {"unet", "controlnet"} <= set(_optimized(fast))


def test_video_pipeline_with_a_decoder_that_keeps_state() -> None:
    pytest.importorskip("diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion")
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel

    from rocsolid.integrations import diffusers

    torch.manual_seed(0)
    vae = AutoencoderKLWan(
        base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True]
    )
    transformer = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=16,
        out_channels=16,
        text_dim=32,
        freq_dim=16,
        ffn_dim=32,
        num_layers=2,
        rope_max_seq_len=32,
    )
    scheduler = FlowMatchEulerDiscreteScheduler(shift=7.0)
    plain = WanPipeline(
        transformer=transformer.eval(), vae=vae.eval(), scheduler=scheduler, text_encoder=None, tokenizer=None
    )
    plain.set_progress_bar_config(disable=True)
    fast = diffusers.optimize_pipeline(copy.deepcopy(plain), captured_part)
    embeddings = {"prompt_embeds": torch.randn(1, 8, 32), "negative_prompt_embeds": torch.randn(1, 8, 32)}
    for frames in (5, 5, 9):
        videos = [
            pipe(
                **embeddings,
                height=16,
                width=16,
                num_frames=frames,
                num_inference_steps=3,
                output_type="pt",
                generator=torch.Generator().manual_seed(0),
            ).frames
            for pipe in (plain, fast)
        ]
        torch.testing.assert_close(*videos)
    assert _optimized(fast) == ["transformer"]
    assert "vae: AutoencoderKLWan keeps state" in str(fast.explain())
    assert fast.transformer.captured.report().replays > 0
