"""`model.generate` of transformers after `rs.optimize(model)`, compared with the plain model."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("transformers.models.llama.modeling_llama")
import torch
import transformers

import rocsolid as rs
from rocsolid.integrations import transformers as integration
from rocsolid.integrations.metrics import prometheus_text

SIZES = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
WINDOW = {"sliding_window": 6}
MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **SIZES)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=1024, **SIZES)
    ),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SMALL, **SIZES)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**SMALL, **WINDOW, **SIZES)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SMALL, **WINDOW, head_dim=8, **SIZES)),
}


SEQ2SEQ: dict[str, Any] = {"d_model": 32, "vocab_size": 64, "pad_token_id": 0, "eos_token_id": None}
BART = {
    "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
ENCODER_DECODERS: dict[str, Callable[[], Any]] = {
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(**SEQ2SEQ, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=2)
    ),
    "bart": lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**SEQ2SEQ, **BART)),
    "marian": lambda: transformers.MarianMTModel(transformers.MarianConfig(**SEQ2SEQ, **BART)),
    "whisper": lambda: transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**SEQ2SEQ, **BART, num_mel_bins=8, max_source_positions=20, bos_token_id=1)
    ),
}


VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
}
TEXT = {**SMALL, "vocab_size": 64, "num_hidden_layers": 1}
ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
OTHERS: dict[str, Callable[[], Any]] = {
    "lfm2": lambda: transformers.Lfm2ForCausalLM(
        transformers.Lfm2Config(**SMALL, **SIZES, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False)
    ),
    "mamba": lambda: transformers.MambaForCausalLM(
        transformers.MambaConfig(hidden_size=16, num_hidden_layers=1, state_size=4, **SIZES)
    ),
    "qwen3_next": lambda: transformers.Qwen3NextForCausalLM(
        transformers.Qwen3NextConfig(
            **SMALL, **SIZES, head_dim=8, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
            linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, num_experts=0, mlp_only_layers=[0, 1],
        )
    ),
    "llava": lambda: transformers.LlavaForConditionalGeneration(
        transformers.LlavaConfig(
            vision_config={**VISION, "model_type": "clip_vision_model", "patch_size": 16},
            text_config={**TEXT, "model_type": "llama"}, image_token_id=5, vision_feature_layer=-1,
        )
    ),
    "qwen2_vl": lambda: transformers.Qwen2VLForConditionalGeneration(
        transformers.Qwen2VLConfig(
            vision_config={"embed_dim": 16, "hidden_size": 32, "depth": 1, "num_heads": 2, "mlp_ratio": 1, "patch_size": 8},
            text_config={**TEXT, "rope_parameters": ROPE}, image_token_id=5, vision_start_token_id=6, video_token_id=7,
        )
    ),
    "gemma3": lambda: transformers.Gemma3ForConditionalGeneration(
        transformers.Gemma3Config(
            vision_config={**VISION, "patch_size": 8, "model_type": "siglip_vision_model"},
            text_config={**TEXT, **WINDOW, "head_dim": 8, "model_type": "gemma3_text"}, image_token_index=5, mm_tokens_per_image=4,
        )
    ),
}  # fmt: skip


class Pair:
    """A model, its optimized form, and the device they are on."""

    def __init__(self, name: str, backend: str) -> None:
        torch.manual_seed(0)
        self.device = "cpu" if backend == "record" else "cuda"
        model = {**MODELS, **ENCODER_DECODERS, **OTHERS}[name]().eval()
        with torch.no_grad():  # the small weights of a fresh model give nearly equal logits for every token
            for parameter in model.parameters():
                parameter.mul_(4)
        self.plain = model.to(self.device)
        self._prompts = torch.Generator().manual_seed(0)
        self.backend = backend
        self.fast = self.optimize(copy.deepcopy(self.plain))

    def capture(self, function: Any) -> Any:
        return rs.capture(function, backend=self.backend)

    def optimize(self, model: Any, **options: Any) -> Any:
        return integration.optimize_generate(model, self.capture, devices=("cpu", "cuda"), **options)

    def ids(self, rows: int = 1, length: int = 5) -> Any:
        return torch.randint(2, 64, (rows, length), generator=self._prompts).to(self.device)

    def same(self, ids: Any = None, **options: Any) -> Any:
        """Generate with both, compare the tokens, and return those of the optimized model."""
        ids = self.ids() if ids is None else ids
        options = {"max_new_tokens": 12, "do_sample": False, **options}
        results, random_states = [], []
        for model in (self.plain, self.fast):
            torch.manual_seed(3)
            results.append(model.generate(ids, **options))
            random_states.append(torch.get_rng_state() if self.device == "cpu" else torch.cuda.get_rng_state())
        want, got = results
        assert type(got) is type(want)
        assert torch.equal(*random_states)
        assert torch.equal(*(x if isinstance(x, torch.Tensor) else x.sequences for x in (got, want)))
        return got

    @property
    def replays(self) -> int:
        slots = self.fast.rocsolid._free
        return sum(step.report().replays for slot in slots for step in slot.captured)

    def explained(self) -> str:
        return str(self.fast.explain())


@pytest.fixture(params=["record", pytest.param("device", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def llama(backend: str) -> Pair:
    return Pair("llama", backend)


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_replays_its_decode_step(name: str, backend: str) -> None:
    pair = Pair(name, backend)
    ids = pair.ids(3, 9)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0  # on the left
    pair.same(ids, attention_mask=mask)
    for length in (5, 5, 1):
        pair.same(pair.ids(1, length))
    assert pair.replays >= 30, pair.explained()


SAMPLING: dict[str, dict[str, Any]] = {
    "default": {},
    "top_k": {"top_k": 5, "temperature": 0.7},
    "top_p": {"top_p": 0.8, "top_k": 0},
    "min_p": {"min_p": 0.1},
    "typical": {"typical_p": 0.7},
    "epsilon": {"epsilon_cutoff": 0.01},
    "repetition": {"repetition_penalty": 1.4},
    "min_length": {"min_length": 9, "min_new_tokens": 6},
    "several": {"num_return_sequences": 3},
    "renormalized": {"renormalize_logits": True, "remove_invalid_values": True},
}


def test_last_and_first_token_may_be_forced(backend: str) -> None:
    """As with the models of BART and mBART."""
    pair = Pair("bart", backend)
    ids = pair.ids(2, 7)
    for new_tokens in (1, 2, 9, 9):
        options = {"forced_eos_token_id": 3, "forced_bos_token_id": 5, "eos_token_id": 3, "max_new_tokens": new_tokens}
        tokens = pair.same(ids, **options)
        pair.same(ids, do_sample=True, **options)
    assert set(tokens[:, -1].tolist()) == {3}
    assert tokens[:, 1].tolist() == [5, 5]
    assert "7 calls with one replay per token" in pair.explained()


@pytest.mark.parametrize("name", SAMPLING)
def test_sampling_draws_the_same_numbers_with_one_replay_per_token(
    llama: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integration, "_MAX_CHOICES", 8)
    ids = llama.ids(2, 6)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    for end in (None, 7, [7, *range(20, 40)]):
        for new_tokens in (1, 2, 12):
            options = {"eos_token_id": end, "max_new_tokens": new_tokens, "attention_mask": mask, **SAMPLING[name]}
            llama.same(ids, do_sample=True, **options)
            if name in ("repetition", "min_length"):
                llama.same(ids, **options)
    assert "in the loop of transformers" not in llama.explained()
    assert all(slot.step.report().replays == 0 for slot in llama.fast.rocsolid._free)
    assert llama.replays > 20


@pytest.mark.parametrize("ignored", [None, 6, 9])
def test_repetition_penalty_gets_ids_that_are_places_in_the_scores(
    llama: Pair, ignored: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With transformers 5.17 another id is an error, which on a GPU ends every use of CUDA."""

    def penalize(self: Any, ids: Any, scores: Any) -> Any:
        ids = ids[:, self.prompt_ignore_length or 0 :]
        score = scores.gather(1, ids)
        return scores.scatter(1, ids, torch.where(score < 0, score * self.penalty, score / self.penalty))

    processor = transformers.RepetitionPenaltyLogitsProcessor
    monkeypatch.setattr(processor, "__call__", penalize)
    for _ in range(2):
        llama.same(llama.ids(2, 6), do_sample=True, logits_processor=[processor(1.4, ignored)])
    assert "2 calls with one replay per token" in llama.explained()
    assert llama.replays > 15


def test_sampling_ends_with_the_same_random_state_after_an_early_end(llama: Pair) -> None:
    lengths = {llama.same(llama.ids(), do_sample=True, eos_token_id=list(range(10, 18))).shape[1] for _ in range(12)}
    assert len(lengths) > 2
    assert min(lengths) < 17


def test_nan_after_the_first_token_raises(llama: Pair) -> None:
    """The graph draws without a check, so the result is checked: at the end, or with each token that is read."""
    ids = llama.ids()
    first = int(llama.same(ids, do_sample=True, top_k=1)[0, 5])
    assert first not in ids  # torch.multinomial, which chooses the first token, ends all use of CUDA for NaN
    with torch.no_grad():
        llama.fast.get_input_embeddings().weight[first] = torch.nan
    for end in (None, 1):
        with pytest.raises(RuntimeError, match="probability tensor contains"):
            llama.fast.generate(ids, do_sample=True, top_k=1, max_new_tokens=8, eos_token_id=end)


def test_new_sampling_parameters_get_a_graph_when_they_are_used_again(llama: Pair) -> None:
    ids = llama.ids()
    for number in range(integration._MAX_CHOICES + 2):
        llama.same(ids, do_sample=True, temperature=0.5 + number / 10)
    assert "2 calls in the loop of transformers: these sampling parameters are new" in llama.explained()
    llama.same(ids, do_sample=True, temperature=0.5 + number / 10)
    assert f"{integration._MAX_CHOICES + 1} calls with one replay per token" in llama.explained()
    (slot,) = llama.fast.rocsolid._free
    assert len(slot.token_steps) == integration._MAX_CHOICES


def test_cache_grows_by_bucket(llama: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "_SMALLEST_BUCKET", 8)
    ids = llama.ids(2, 5)
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    for _ in range(2):
        llama.same(ids, max_new_tokens=40, attention_mask=mask)
    llama.same(ids, max_new_tokens=12)
    assert "2 × 64, 2 × 16, 2 × 32" in llama.explained()


def test_a_capture_has_room_where_the_prompt_nearly_fills_a_bucket(
    llama: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It repeats the step after it was done. On a GPU a write behind the end of the cache would end every use of CUDA."""
    monkeypatch.setattr(integration, "_SMALLEST_BUCKET", 32)
    for length in (31, 24, 23):
        llama.same(llama.ids(1, length), max_new_tokens=4)
    assert llama.replays >= 6, llama.explained()
    assert "unchanged  decode step" not in llama.explained()


class Streamer:
    """Keeps what it got."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def put(self, value: Any) -> None:
        self.got.append((value.device, value.dtype, value.shape, value.tolist()))

    def end(self) -> None:
        self.got.append("end")


@pytest.mark.parametrize("name", ["llama", "t5", "lfm2"])
def test_memory_of_an_earlier_call_is_written_before_it_is_read(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NaN in the cache would go through a masked attention, because 0 * NaN is NaN."""
    monkeypatch.setattr(integration, "_SMALLEST_BUCKET", 16)
    pair = Pair(name, backend)
    options: list[dict[str, Any]] = [{"repetition_penalty": 1.3}, {"num_beams": 2}]
    options += [{"prompt_lookup_num_tokens": 2}] if name != "lfm2" else []
    ids = pair.ids(1, 6)
    for _ in range(3):
        for option in options:
            pair.same(ids, max_new_tokens=16, **option)
        for slot in pair.fast.rocsolid._free:
            tensors = [x for layer in slot.cache.layers for x in integration._tensors(layer)]
            tensors += [x for step in slot.token_steps.values() for x in (step.log, step.column)]
            with torch.inference_mode(slot.key[3]):
                for tensor in tensors:
                    tensor.fill_(torch.nan if tensor.is_floating_point() else 10**9)
    assert pair.replays > 20


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("options", [{}, {"do_sample": True}, {"eos_token_id": list(range(10, 18))}])
def test_streamers_get_each_token(llama: Pair, rows: int, options: dict[str, Any]) -> None:
    for new_tokens in (1, 2, 9):
        ids = llama.ids(rows)
        streamers = [Streamer(), Streamer()]
        for model, streamer in zip((llama.plain, llama.fast), streamers, strict=True):
            torch.manual_seed(3)
            model.generate(ids, **{"max_new_tokens": new_tokens, "do_sample": False, "streamer": streamer, **options})
        assert streamers[0].got == streamers[1].got
        assert streamers[1].got[-1] == "end"
    assert "3 calls with one replay per token" in llama.explained()


def test_a_streamer_gets_each_token_once_if_the_loop_has_to_run_again(
    llama: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integration, "same_inputs", lambda *_: False)
    streamer = Streamer()
    tokens = llama.same(do_sample=True)
    torch.manual_seed(3)
    llama.fast.generate(tokens[:, :5], max_new_tokens=12, do_sample=True, streamer=streamer)
    assert [value[3][0] for value in streamer.got[1:-1]] == tokens[0, 5:].tolist()


def test_stopping_criteria_and_other_processors_stay_in_the_loop(llama: Pair) -> None:
    ids = llama.ids()
    stop = [lambda ids, _scores, **_: torch.full((ids.shape[0],), ids.shape[1] > 9, device=ids.device)]
    assert llama.same(ids, stopping_criteria=stop).shape[1] == 10
    llama.same(ids, repetition_penalty=1.3, no_repeat_ngram_size=2)
    llama.same(ids, do_sample=True, eta_cutoff=0.01)
    explained = llama.explained()
    for reason in (
        "stopping criterion function",
        "logits processor NoRepeatNGramLogitsProcessor",
        "logits processor EtaLogitsWarper",
    ):
        assert f"unchanged  decode loop: 1 call in the loop of transformers: the {reason}" in explained
    (slot,) = llama.fast.rocsolid._free
    assert slot.step.report().replays > 10
    tokens = llama.same(ids)
    assert llama.same(ids, eos_token_id=int(tokens[0, 8])).shape[1] <= 9


def test_results_with_everything_have_the_same_types(llama: Pair) -> None:
    options = {
        "return_dict_in_generate": True, "output_scores": True, "output_logits": True, "output_hidden_states": True,
    }  # fmt: skip
    ids = llama.ids()
    want, got = (
        model.generate(ids, max_new_tokens=6, do_sample=False, **options) for model in (llama.plain, llama.fast)
    )
    assert type(got.past_key_values) is type(want.past_key_values)
    for name in ("scores", "logits"):
        for ours, theirs in zip(got[name], want[name], strict=True):
            torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(got.hidden_states, want.hidden_states, strict=True):
        torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(got.past_key_values.layers, want.past_key_values.layers, strict=True):
        torch.testing.assert_close(ours.keys, theirs.keys)
    assert "1 call in the loop of transformers: return_dict_in_generate= is set" in llama.explained()
    # The returned cache can be passed to the next call.
    longer = torch.cat([got.sequences, llama.ids(length=2)], 1)
    again = [
        model.generate(longer, past_key_values=result.past_key_values, max_new_tokens=4, do_sample=False)
        for model, result in ((llama.plain, want), (llama.fast, got))
    ]
    assert torch.equal(*again)


def test_embeddings_as_the_prompt(llama: Pair) -> None:
    embeds = llama.plain.get_input_embeddings()(llama.ids()).detach()
    want, got = (
        model.generate(inputs_embeds=embeds, max_new_tokens=8, do_sample=False) for model in (llama.plain, llama.fast)
    )
    assert torch.equal(got, want)
    assert llama.replays > 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"use_cache": False}, "uses none"),
        ({"cache_implementation": "static", "disable_compile": True}, "cache_implementation="),
        ({"prefill_chunk_size": 2}, "prefill_chunk_size="),
    ],
)
def test_other_ways_to_generate_are_left_to_transformers(llama: Pair, options: dict[str, Any], reason: str) -> None:
    llama.same(**options)
    assert llama.replays == 0
    assert f"1 call: {reason}" in llama.explained() or reason in llama.explained()
    llama.same()
    assert llama.replays > 0


def test_models_whose_cache_cannot_be_captured_are_named(backend: str) -> None:
    pair = Pair("mamba", backend)
    pair.same()
    assert "1 call: its cache is `cache_params`, which holds states alone" in pair.explained()


BEAMS: dict[str, dict[str, Any]] = {
    "search": {},
    "early": {"early_stopping": True, "length_penalty": 2.0, "eos_token_id": list(range(10, 18))},
    "several": {"num_return_sequences": 2, "no_repeat_ngram_size": 2},
    "sample": {"do_sample": True, "top_k": 20},
}


@pytest.mark.parametrize("name", BEAMS)
def test_beam_search_moves_the_rows_of_the_cache_in_graph_memory(
    llama: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integration, "_SMALLEST_BUCKET", 16)  # so that the cache grows between the steps
    ids = llama.ids(2, 6)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    options = {"num_beams": 3, "attention_mask": mask, "max_new_tokens": 14, **BEAMS[name]}
    for _ in range(2):
        got = llama.same(ids, **options, return_dict_in_generate=True, output_scores=True)
        torch.manual_seed(3)
        want = (
            llama.plain.generate(ids, do_sample=False, **options, return_dict_in_generate=True, output_scores=True)
            if "do_sample" not in options
            else None
        )
        if want is not None:
            torch.testing.assert_close(got.sequences_scores, want.sequences_scores)
            assert torch.equal(got.beam_indices, want.beam_indices)
    assert llama.replays > 10, llama.explained()
    assert sum(slot.reorder.report().replays for slot in llama.fast.rocsolid._free) > 10
    assert "2 calls in the loop of transformers: beam s" in llama.explained()


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_beam_search_of_an_encoder_decoder_model(name: str, backend: str) -> None:
    pair = Pair(name, backend)
    for _ in range(3):
        pair.same(pair.ids(2, 7), num_beams=3, num_return_sequences=2)
    assert pair.replays > 10, pair.explained()


@pytest.mark.parametrize("draft", ["plain", "optimized"])
@pytest.mark.parametrize("do_sample", [False, True])
def test_assisted_decoding_replays_draft_and_verification(llama: Pair, draft: str, do_sample: bool) -> None:  # noqa: FBT001 - a case
    assistant = copy.deepcopy(llama.plain)
    with torch.no_grad():  # so that some of its tokens are not accepted
        assistant.lm_head.weight.add_(torch.randn_like(assistant.lm_head.weight) * 0.1)
    assistant.generation_config.num_assistant_tokens = 3
    assistant.generation_config.assistant_confidence_threshold = 0.1
    fast = llama.optimize(copy.deepcopy(assistant)) if draft == "optimized" else assistant
    ids = llama.ids()
    for _ in range(2):
        results, random_states = [], []
        for model, helper in ((llama.plain, assistant), (llama.fast, fast)):
            torch.manual_seed(3)
            results.append(model.generate(ids, max_new_tokens=24, do_sample=do_sample, assistant_model=helper))
            random_states.append(torch.get_rng_state())
        assert torch.equal(*results)
        assert torch.equal(*random_states)
    blocks = sum(slot.block.report().replays for slot in llama.fast.rocsolid._free)
    assert blocks > 10, llama.explained()
    assert "2 calls in the loop of transformers: assisted decoding verifies several tokens" in llama.explained()
    if draft == "optimized":
        assert "optimized  decode step" in str(fast.explain())
        assert sum(slot.block.report().replays for slot in fast.rocsolid._free) > 20, str(fast.explain())
        assert len(fast.rocsolid._free) == 1  # of the caches of both calls


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "t5"])
def test_prompt_lookup_replays_the_verification(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "_SMALLEST_BUCKET", 32)
    pair = Pair(name, backend)
    ids = pair.ids(1, 6).repeat(1, 3)
    for _ in range(3):
        got = pair.same(ids, prompt_lookup_num_tokens=3, max_new_tokens=40, return_dict_in_generate=True)
    want = pair.plain.generate(ids, do_sample=False, max_new_tokens=40, return_dict_in_generate=True)
    assert sum(slot.block.report().replays for slot in pair.fast.rocsolid._free) > 10, pair.explained()
    ours, theirs = (getattr(x.past_key_values, "self_attention_cache", x.past_key_values) for x in (got, want))
    for mine, other in zip(ours.layers, theirs.layers, strict=True):
        torch.testing.assert_close(mine.keys, other.keys)


def test_changed_weights_are_used(llama: Pair) -> None:
    ids = llama.ids()
    before = llama.same(ids)
    for change in (_scale_in_place, _replace_weight, _load_weights, lambda model: model.double(), _resize):
        for model in (llama.plain, llama.fast):
            torch.manual_seed(1)
            change(model)
        llama.same(ids)
        after = llama.same(ids)
    assert not torch.equal(before, after)


def _scale_in_place(model: Any) -> None:
    with torch.no_grad():
        model.lm_head.weight.mul_(torch.linspace(-1, 1, 64, device=model.device)[:, None])


def _replace_weight(model: Any) -> None:
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().flip(0))


def _load_weights(model: Any) -> None:
    model.load_state_dict({name: value * 0.9 for name, value in model.state_dict().items()})


def _resize(model: Any) -> None:
    model.resize_token_embeddings(80, mean_resizing=False)


def test_adapters_of_peft(llama: Pair) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    ids = llama.ids()
    with_adapter = peft.get_peft_model(copy.deepcopy(llama.plain), config).eval()
    without = llama.plain.generate(ids, max_new_tokens=12, do_sample=False)
    want = with_adapter.generate(input_ids=ids, max_new_tokens=12, do_sample=False)
    assert integration.is_generator(with_adapter)
    assert llama.optimize(with_adapter) is with_adapter
    for _ in range(2):
        assert torch.equal(with_adapter.generate(input_ids=ids, max_new_tokens=12, do_sample=False), want)
    assert "optimized  decode step: 2 calls" in str(with_adapter.explain())
    with with_adapter.disable_adapter():
        assert torch.equal(with_adapter.generate(input_ids=ids, max_new_tokens=12, do_sample=False), without)
    assert not torch.equal(want, without)
    with_adapter.undo()
    assert torch.equal(with_adapter.generate(input_ids=ids, max_new_tokens=12, do_sample=False), want)


def test_training_mode_and_inference_mode(llama: Pair) -> None:
    with torch.inference_mode():
        llama.same()
    llama.same()
    with torch.inference_mode():
        llama.same()
    llama.fast.train()
    llama.fast.generate(llama.ids(), max_new_tokens=3)
    assert "1 call: the model is in training mode" in llama.explained()
    assert llama.plain.training is False


def test_undo_returns_the_plain_model(llama: Pair) -> None:
    llama.same()
    plain = llama.fast.undo()
    assert type(plain) is type(llama.plain)
    assert type(rs.optimize(llama.fast).rocsolid.model) is type(llama.plain)
    llama.same()
    assert llama.replays == 0
    assert "undo() was called" in llama.explained()
    assert isinstance(copy.deepcopy(llama.fast), type(llama.plain))


def test_threads_have_a_cache_each(llama: Pair) -> None:
    prompts = [llama.ids() for _ in range(3)]
    want = [llama.plain.generate(ids, max_new_tokens=8, do_sample=False) for ids in prompts]
    got: list[Any] = [None] * 3

    def work(index: int) -> None:
        for _ in range(3):
            got[index] = llama.fast.generate(prompts[index], max_new_tokens=8, do_sample=False)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(map(torch.equal, got, want))


def test_step_that_cannot_be_captured_keeps_the_way_of_transformers(llama: Pair) -> None:
    original = type(llama.fast.model).forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        return result if result.last_hidden_state.sum().item() else None

    llama.fast.model.forward = forward.__get__(llama.fast.model)
    llama.same()
    llama.same()
    assert "the decode step cannot be captured" in llama.explained()
    assert llama.replays == 0


def test_optimize_finds_the_model_by_its_class() -> None:
    model = MODELS["llama"]().eval()
    fast = rs.optimize(model)
    assert isinstance(fast, transformers.LlamaForCausalLM)
    assert str(fast.explain()).splitlines()[1].endswith("generate: was not called yet")
    ids = torch.ones(1, 4, dtype=torch.long)
    assert torch.equal(fast.generate(ids, max_new_tokens=4), model.generate(ids, max_new_tokens=4))
    assert "the model is on cpu, and graphs need a GPU" in str(fast.explain())


def _tokenizer() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({f"w{number}": number for number in range(64)}, unk_token="w1")  # noqa: S106 - no password
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="w0", padding_side="left")  # noqa: S106


def test_pipeline_of_transformers(llama: Pair) -> None:
    prompts = ["w3 w4 w5", "w9 w8 w7 w6 w5"]
    want, got = (
        transformers.pipeline("text-generation", model=model, tokenizer=_tokenizer())(
            prompts, max_new_tokens=8, do_sample=False, batch_size=2
        )
        for model in (llama.plain, llama.fast)
    )
    assert got == want
    assert llama.replays > 0


def test_optimize_a_pipeline_of_transformers(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair("llama", backend)
    original = integration.optimize_generate
    monkeypatch.setattr(
        integration,
        "optimize_generate",
        lambda model, *_, **__: original(model, pair.capture, devices=("cpu", "cuda")),
    )
    pipe = transformers.pipeline("text-generation", model=copy.deepcopy(pair.plain), tokenizer=_tokenizer())
    call: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False}
    want, model = pipe("w3 w4 w5", **call), pipe.model
    for _ in range(2):  # optimized again
        assert rs.optimize(pipe) is pipe
        assert isinstance(pipe, transformers.TextGenerationPipeline)
        assert pipe("w3 w4 w5", **call) == want
    explained = str(pipe.explain())
    assert explained.startswith("TextGenerationPipeline\n  optimized  decode step: 1 call of generate")
    text = prometheus_text(pipe=pipe, model=pipe.model)
    for name in ("pipe", "model"):
        assert f'rocsolid_generate_calls_total{{function="{name}",part="decode loop",loop="graph"}} 1\n' in text
        assert f'rocsolid_captures_total{{function="{name}",part="decode step"}} 1\n' in text
    assert "optimized  decode step" in pipe.model._repr_html_()
    assert pipe.undo() is pipe
    assert pipe.model is model


@pytest.mark.skipif(torch.cuda.is_available(), reason="the forms are raced there, which takes long")
def test_optimize_a_pipeline_without_generate() -> None:
    config = transformers.BertConfig(**{**SMALL, **SIZES, "num_hidden_layers": 1})
    model = transformers.BertForSequenceClassification(config).eval()
    pipe = transformers.pipeline("text-classification", model=model, tokenizer=_tokenizer())
    want = pipe("w3 w4 w5")
    assert rs.optimize(pipe, budget_s=0) is pipe
    assert "model: eager, waiting for the first call" in str(pipe.explain())
    assert pipe("w3 w4 w5") == want
    assert pipe.model.report().example_count == 1
    assert pipe.undo().model is model


def test_greedy_decoding_replays_one_graph_per_token(llama: Pair) -> None:
    for new_tokens in (1, 2, 3, 20):
        llama.same(max_new_tokens=new_tokens)
    before = llama.replays
    llama.same(max_new_tokens=30)
    assert llama.replays - before == 29  # the first token comes from the prompt
    (slot,) = llama.fast.rocsolid._free
    assert slot.step.report().replays == 0  # the loop of transformers was not used
    assert len(slot.token_steps) == 1


def test_greedy_decoding_ends_at_a_token_as_transformers_does(llama: Pair) -> None:
    ids = llama.ids(3, 4)
    free = llama.plain.generate(ids, max_new_tokens=12, do_sample=False)
    for end in {int(free[0, 5]), int(free[1, 7]), int(free[2, 4])}:  # some rows end early, one with the first token
        for also in (end, [end, int(free[0, 9])]):
            got = llama.same(ids, eos_token_id=also, pad_token_id=0)
            assert got.shape[1] <= 16


def test_greedy_decoding_goes_on_in_a_larger_cache(llama: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "_SMALLEST_BUCKET", 16)
    mask = torch.ones(2, 6, dtype=torch.long, device=llama.device)
    mask[1, :3] = 0
    for _ in range(2):
        llama.same(llama.ids(2, 6), attention_mask=mask, max_new_tokens=40)
    assert {slot.bucket for slot in llama.fast.rocsolid._free} == {16, 32, 64}


def test_another_position_than_expected_stays_in_the_loop_of_transformers(
    llama: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integration, "same_inputs", lambda *_: False)
    for _ in range(2):
        llama.same()
    (slot,) = llama.fast.rocsolid._free
    assert not slot.token_steps
    assert slot.step.report().replays > 10
    assert "2 calls in the loop of transformers: its inputs are not those that we expect" in llama.explained()


def test_prompt_of_a_known_length_is_replayed(llama: Pair) -> None:
    mask = torch.ones(2, 6, dtype=torch.long, device=llama.device)
    for rows in (1, 2):
        for length in (6, 3):
            for _ in range(5):
                llama.same(llama.ids(rows, length))
    mask[1, :3] = 0
    for _ in range(5):
        llama.same(llama.ids(2, 6), attention_mask=mask)
    assert "optimized  prefill: 13 of 25 calls replayed" in llama.explained()
    llama.same(llama.ids(1, 7))  # not seen before
    assert "optimized  prefill: 13 of 26 calls replayed" in llama.explained()


def test_prompt_that_cannot_be_captured_does_not_stop_the_decode_step(llama: Pair) -> None:
    original = type(llama.fast.model).forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if result.last_hidden_state.shape[1] > 1:
            result.last_hidden_state.sum().item()
        return result

    llama.fast.model.forward = forward.__get__(llama.fast.model)
    for _ in range(4):
        llama.same()
    assert llama.replays > 30
    assert "unchanged  prefill: 0 of 4 calls replayed" in llama.explained()


def test_long_prompt_stays_in_eager(llama: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "_MAX_PREFILL_TOKENS", 8)
    for _ in range(4):
        llama.same(llama.ids(2, 5))
    assert "unchanged  prefill: 0 of 4 calls replayed" in llama.explained()


@pytest.mark.parametrize("name", ["t5", "bart", "marian"])
def test_encoder_decoder_model_replays_its_decoder(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "_SMALLEST_BUCKET", 32)
    pair = Pair(name, backend)
    mask = torch.ones(2, 7, dtype=torch.long, device=pair.device)
    mask[0, 5:] = 0
    for options in (
        {},
        {"attention_mask": mask, "do_sample": True, "eos_token_id": list(range(20, 30))},
        {"no_repeat_ngram_size": 2, "return_dict_in_generate": True},
        {"max_new_tokens": 40},
    ):
        for _ in range(2):
            pair.same(pair.ids(2, 7), **options)
    explained = pair.explained()
    assert "generate: 1 call: the shape of the encoder's output is new" in explained
    assert "5 calls with one replay per token" in explained
    assert "2 calls in the loop of transformers: return_dict_in_generate" in explained
    assert pair.replays > 80
    before = pair.replays
    pair.same(pair.ids(2, 8))  # another length
    assert pair.replays == before


def test_encoder_decoder_cache_is_returned_as_transformers_does(backend: str) -> None:
    pair = Pair("bart", backend)
    ids = pair.ids(1, 7)
    for _ in range(2):
        want, got = (
            model.generate(ids, max_new_tokens=6, do_sample=False, return_dict_in_generate=True)
            for model in (pair.plain, pair.fast)
        )
    assert pair.replays > 0
    for part in ("self_attention_cache", "cross_attention_cache"):
        ours, theirs = (getattr(result.past_key_values, part) for result in (got, want))
        assert type(ours) is type(theirs)
        for mine, other in zip(ours.layers, theirs.layers, strict=True):
            torch.testing.assert_close(mine.keys, other.keys)
            torch.testing.assert_close(mine.values, other.values)


def test_whisper_replays_the_decode_step_within_its_own_generate(backend: str) -> None:
    pair = Pair("whisper", backend)
    sound = torch.randn(1, 8, 40, device=pair.device)
    for options in ({}, {}, {"return_dict_in_generate": True}):
        want, got = (
            model.generate(sound, max_new_tokens=8, do_sample=False, **options) for model in (pair.plain, pair.fast)
        )
        assert type(got) is type(want)
        assert torch.equal(*(x if isinstance(x, torch.Tensor) else x.sequences for x in (got, want)))
    for ours, theirs in zip(
        got.past_key_values.self_attention_cache.layers, want.past_key_values.self_attention_cache.layers, strict=True
    ):
        torch.testing.assert_close(ours.keys, theirs.keys)
    assert pair.replays >= 12, pair.explained()
    explained = pair.explained()
    assert "decode loop: 2 calls in the loop of transformers: the model prepares its inputs itself" in explained
    assert "generate: 1 call: the shape of the encoder's output is new" in explained
    assert len(pair.fast.rocsolid._free) == 1


@pytest.mark.parametrize("name", ["lfm2", "qwen3_next"])
def test_layers_with_a_state_are_captured(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "_SMALLEST_BUCKET", 32)
    pair = Pair(name, backend)
    ids = pair.ids(2, 6)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    pair.same(ids, attention_mask=mask, max_new_tokens=24)  # the state moves to a larger cache
    pair.same(ids, attention_mask=mask, max_new_tokens=6, do_sample=True, top_k=9)
    pair.same(ids, num_beams=2, max_new_tokens=6)
    assert pair.replays > 20, pair.explained()
    assert "2 calls with one replay per token" in pair.explained()
    assert "cannot be captured" not in pair.explained()
    if name == "lfm2":  # of the other one, transformers refuses it
        pair.same(ids[:1], prompt_lookup_num_tokens=2)
        assert "1 call: layers with a state cannot forget the tokens" in pair.explained()


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "gemma3"])
def test_model_of_pictures_and_text(name: str, backend: str) -> None:
    pair = Pair(name, backend)
    for number in range(4):
        ids = pair.ids(1, 12)
        ids[:, 2:6] = 5  # the tokens of a picture
        inputs = {"pixel_values": torch.randn(1, 3, 32, 32, device=pair.device)}
        if name == "qwen2_vl":
            ids[:, 1] = 6
            inputs = {
                "pixel_values": torch.randn(16, 3 * 2 * 8 * 8, device=pair.device),
                "image_grid_thw": torch.tensor([[1, 4, 4]], device=pair.device),
            }
        if name != "llava":
            inputs["mm_token_type_ids" if name == "qwen2_vl" else "token_type_ids"] = (ids == 5).long()
        if number == 3:  # without a picture
            ids, inputs = pair.ids(1, 12), {}
        pair.same(ids, **inputs)
    assert pair.replays > 20, pair.explained()
    loop = (
        "in the loop of transformers: the model prepares its inputs itself"
        if name == "gemma3"
        else "with one replay per token"
    )
    assert f"decode loop: 4 calls {loop}" in pair.explained()
    (slot,) = pair.fast.rocsolid._free
    step = slot.step if name == "gemma3" else next(iter(slot.token_steps.values())).step
    assert len(step.report().invalidated) <= 1  # `rope_deltas`, once


class Changed(torch.nn.Module):  # type: ignore[misc]
    """A "compiled" model whose logits are wrong by a factor, or that raises."""

    def __init__(self, model: Any, factor: float) -> None:
        super().__init__()
        self.model = model
        self.factor = factor

    def forward(self, **inputs: Any) -> Any:
        if not self.factor:
            message = "no such kernel\nand more"
            raise RuntimeError(message)
        result = self.model(**inputs)
        result.logits = result.logits * self.factor
        return result


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_decode_step_is_compiled_for_each_size_of_cache(backend: str, name: str) -> None:
    pair = Pair(name, backend)
    compiler = "inductor" if backend == "device" else "aot_eager"

    def compile_model(model: Any, *, exact: bool) -> Any:
        assert not exact
        return rs.compile(model, dynamic=False, backend=compiler)

    pair.fast = pair.optimize(copy.deepcopy(pair.plain), compile_model=compile_model, limit=1e-4)
    for length in (5, 5, 300) if name == "llama" else (5, 5):
        pair.same(pair.ids(1, length))
    assert pair.replays > 0
    explained = pair.explained()
    assert "optimized  compiled step: cache 1 × 256: relative error" in explained
    assert "against eager, 0.0001 is allowed" in explained
    assert ("cache 1 × 512" in explained) is (name == "llama")


@pytest.mark.parametrize(
    ("factor", "reason"),
    [(1.01, "relative error 1.0e-02 against eager, 0.001 is allowed"), (0.0, "RuntimeError: no such kernel")],
)
def test_compiled_step_that_is_wrong_is_not_used(backend: str, factor: float, reason: str) -> None:
    pair = Pair("llama", backend)
    pair.fast = pair.optimize(
        copy.deepcopy(pair.plain), compile_model=lambda model, **_: Changed(model, factor), limit=1e-3
    )
    for _ in range(2):
        pair.same()
    assert pair.replays > 0
    assert f"unchanged  compiled step: cache 1 × 256: {reason}\n" in pair.explained() + "\n"


def test_compiled_step_that_runs_in_eager_is_not_called_compiled(backend: str) -> None:
    def fails(*_: Any) -> Any:
        message = "no such kernel"
        raise RuntimeError(message)

    pair = Pair("llama", backend)
    pair.fast = pair.optimize(
        copy.deepcopy(pair.plain), compile_model=lambda model, **_: rs.compile(model, backend=fails), limit=1e-3
    )
    pair.same()
    assert "unchanged  compiled step: cache 1 × 256:" in pair.explained()


class WrongForSomeTokens(torch.nn.Module):  # type: ignore[misc]
    """A "compiled" model whose logits are wrong in one bit after some tokens."""

    def __init__(self, model: Any, tokens: Any) -> None:
        super().__init__()
        self.model, self.tokens = model, tokens

    def forward(self, **inputs: Any) -> Any:
        result = self.model(**inputs)
        wrong = (inputs["input_ids"][..., None] == self.tokens).any(-1, keepdim=True)
        result.logits = torch.where(wrong, result.logits.nextafter(result.logits + 1), result.logits)
        return result


def test_with_a_limit_of_0_a_compiled_step_has_the_logits_of_eager(backend: str) -> None:
    pair = Pair("llama", backend)
    pair.fast = pair.optimize(
        copy.deepcopy(pair.plain), compile_model=lambda model, exact: copy.deepcopy(model) if exact else None, limit=0
    )
    for rows in (1, 1, 3):
        pair.same(pair.ids(rows), do_sample=rows > 1)
    assert pair.replays > 0
    for size in ("1 × 256", "3 × 256"):
        assert (
            f"optimized  compiled step: cache {size}: the logits of 64 steps are bitwise those of eager"
            in pair.explained()
        )


def test_with_a_limit_of_0_a_compiled_step_that_differs_in_one_of_many_steps_is_not_used(backend: str) -> None:
    pair = Pair("llama", backend)
    ids = pair.ids()
    generated = pair.plain.generate(ids, max_new_tokens=12, do_sample=False)[0].tolist()
    others = torch.tensor(sorted({*range(64)} - {*generated}), device=pair.device)
    pair.fast = pair.optimize(
        copy.deepcopy(pair.plain), compile_model=lambda model, **_: WrongForSomeTokens(model, others), limit=0
    )
    pair.same(ids)
    assert pair.replays > 0
    assert "unchanged  compiled step: cache 1 × 256: the logits differ from eager's in step" in pair.explained()


@pytest.mark.parametrize(("limit", "budget_s"), [(None, None), (1e-3, None), (0.0, None), (0.0, 0)])
def test_optimize_passes_on_the_limit(
    limit: float | None, budget_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(integration, "optimize_generate", lambda *_, **options: given.update(options))
    model = Pair("llama", "record").plain
    rs.optimize(model, limit=limit, budget_s=budget_s)
    assert given["limit"] == limit
    compiled = given["compile_model"](model, exact=limit == 0)
    assert compiled is None if budget_s == 0 else isinstance(compiled, torch.nn.Module)
