"""Tiny language models of transformers: without a cache, with a cache in an attribute or an argument, and `generate`."""

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("transformers.models.llama.modeling_llama")
import torch
from tests.programs.support import Comparison

import rocsolid as rs

TOKENS = 12
SIZES = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            **SIZES,
        )
    )


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **SIZES))


def _t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(d_model=32, d_ff=48, d_kv=8, num_layers=2, num_heads=4, decoder_start_token_id=0, **SIZES)
    )


MODELS: dict[str, Callable[[], Any]] = {"llama": _llama, "gpt2": _gpt2, "t5": _t5}
DECODERS = ("llama", "gpt2")


def _make(name: str) -> Any:
    model = MODELS[name]().eval()
    with torch.no_grad():  # the small weights of a fresh model give nearly equal logits for every token
        for parameter in model.parameters():
            parameter.mul_(4)
    return model


def _static_cache(model: Any, length: int = 32) -> Any:
    from transformers import StaticCache

    return StaticCache(config=model.config, max_cache_len=length)


def _dynamic_cache(model: Any) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=model.config)


def _ids(rows: int = 1, length: int = 5) -> Any:
    return torch.randint(2, 64, (rows, length))


@pytest.mark.parametrize("name", MODELS)
def test_forward_with_the_defaults_of_the_library(compare: Comparison, name: str) -> None:
    compare.module(_make(name))
    for rows, length in ((1, 5), (1, 5), (1, 5), (2, 7), (2, 7), (1, 5)):
        ids = _ids(rows, length)
        mask = torch.ones_like(ids)
        mask[:, :2] = 0
        extra = {"decoder_input_ids": _ids(rows, 3)} if name == "t5" else {}
        compare.call(input_ids=ids, attention_mask=mask, **extra)
    compare.finish()


@pytest.mark.parametrize("name", MODELS)
def test_forward_without_a_cache(compare: Comparison, name: str) -> None:
    compare.module(_make(name))

    def run(times: int, rows: int = 1, length: int = 5, **more: Any) -> None:
        for _ in range(times):
            ids = _ids(rows, length)
            extra = {"decoder_input_ids": _ids(rows, 3)} if name == "t5" else {}
            compare.call(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **extra, **more)

    run(3)
    run(2, rows=2, length=7)
    run(1)
    run(2, output_hidden_states=True)
    compare.change("in-place edit", lambda m: [p.data.mul_(0.9) for p in m.parameters()])
    run(2)
    compare.change("resize_token_embeddings", lambda m: m.resize_token_embeddings(80, mean_resizing=False))
    run(2)
    compare.change("set_attn_implementation eager", lambda m: m.set_attn_implementation("eager"))
    run(2)
    compare.change("half and back", lambda m: m.half().float())
    run(2)
    compare.finish()


def _scale_attention(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.scaling = 0.9


def test_config_and_rope_changed(compare: Comparison) -> None:
    compare.module(_make("llama"))

    def run() -> None:
        for _ in range(2):
            compare.call(input_ids=_ids(), use_cache=False)

    run()
    compare.change("attention scaling", _scale_attention)
    run()
    compare.change("rope inv_freq", lambda m: m.model.rotary_emb.inv_freq.mul_(0.5))
    run()
    compare.change("rope attention_scaling", lambda m: setattr(m.model.rotary_emb, "attention_scaling", 0.7))
    run()
    compare.change("layers dropped", lambda m: setattr(m.model, "layers", m.model.layers[:1]))
    run()
    compare.change("act_fn", lambda m: setattr(m.model.layers[0].mlp, "act_fn", torch.nn.Tanh()))
    run()
    compare.finish()


def _peft(model: Any) -> Any:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return peft.get_peft_model(model, config, adapter_name="one").eval()


def test_lora_with_peft(compare: Comparison) -> None:
    peft = pytest.importorskip("peft")
    compare.module(_peft(_make("llama")))

    def run(times: int = 2) -> None:
        for _ in range(times):
            compare.call(input_ids=_ids(), use_cache=False)

    other = peft.LoraConfig(r=2, target_modules=["k_proj"], init_lora_weights=False)
    run(3)
    compare.change("add_adapter two", lambda m: m.add_adapter("two", other) or m.eval())
    run()
    compare.change("set_adapter two", lambda m: m.set_adapter("two"))
    run()
    compare.change("set_adapter one", lambda m: m.set_adapter("one"))
    run()

    def scale(model: Any) -> None:
        for module in model.modules():
            if hasattr(module, "scaling") and isinstance(module.scaling, dict):
                module.scaling = {name: value * 2 for name, value in module.scaling.items()}

    compare.change("scaling of the adapters", scale)
    run()
    compare.change("merge_adapter", lambda m: m.merge_adapter())
    run()
    compare.change("unmerge_adapter", lambda m: m.unmerge_adapter())
    run()
    compare.finish()


@pytest.mark.parametrize("name", DECODERS)
def test_static_cache_of_a_holder_replaced_per_request(compare: Comparison, name: str) -> None:
    model = _make(name)
    holders = []
    for part in (model, copy.deepcopy(model)):
        holder = types.SimpleNamespace(cache=None)

        def step(ids: Any, positions: Any, part: Any = part, holder: Any = holder) -> Any:
            return part(ids, past_key_values=holder.cache, position_ids=positions[None], use_cache=True).logits

        holders.append((holder, part, step))
    compare.captured, compare.eager = rs.capture(holders[0][2], backend="record"), holders[1][2]
    for request in range(3):
        compare.last_change = f"cache of request {request}"
        for holder, part, _ in holders:
            holder.cache = _static_cache(part)
        ids, start = _ids(), 0
        for _ in range(6):
            positions = torch.arange(start, start + ids.shape[1])
            logits = compare.call(ids, positions)
            start += ids.shape[1]
            ids = logits[:, -1:].argmax(-1).clone()
            compare.state(holders[0][0].cache, holders[1][0].cache)
    compare.finish(refused="side effect|host sync|argument|error")


@pytest.mark.parametrize("kind", [_dynamic_cache, _static_cache])
@pytest.mark.parametrize("name", DECODERS)
def test_cache_as_a_static_argument(compare: Comparison, name: str, kind: Any) -> None:
    model = _make(name)
    reference = copy.deepcopy(model)

    def step(model: Any) -> Callable[..., Any]:
        def run(ids: Any, past_key_values: Any) -> Any:
            return model(ids, past_key_values=past_key_values, use_cache=True).logits[:, -1:].argmax(-1)

        return run

    compare.captured, compare.eager = (
        rs.capture(step(model), static=("past_key_values",), backend="record"),
        step(reference),
    )
    for request in range(2):
        compare.last_change = f"cache of request {request}"
        ours, theirs = kind(model), kind(reference)
        ids = _ids()
        for _ in range(TOKENS):
            token = compare.each({"past_key_values": ours}, {"past_key_values": theirs}, ids)
            compare.state(ours, theirs)
            ids = token.clone()
    # The cache changes in Python with each call: a list of tensors grows, or a number of tokens is counted.
    compare.finish(refused="side effect|argument|host sync|error|data-dependent")


def _decode(compare: Comparison, make_cache: Callable[[Any], Any], requests: int = 3, **more: Any) -> Any:
    """A prompt and a few tokens for each of several requests, each with a cache of its own."""
    rows = more["encoder_outputs"][0].shape[0] if more else 1
    for request in range(requests):
        compare.last_change = f"cache of request {request}"
        ours, theirs = make_cache(compare.model), make_cache(compare.reference)
        name, ids = ("decoder_input_ids", _ids(rows, 1)) if more else ("input_ids", _ids(rows))
        for _ in range(6):
            given = {name: ids, "use_cache": True, **more}
            result = compare.each({"past_key_values": ours}, {"past_key_values": theirs}, **given)
            compare.state(ours, theirs)
            got, _ = compare.kept[-1]
            assert got.past_key_values is ours
            ids = result.logits[:, -1:].argmax(-1).clone()
    return compare.report()


@pytest.mark.parametrize("name", DECODERS)
def test_static_cache_as_an_argument(compare: Comparison, name: str) -> None:
    compare.module(_make(name))
    report = _decode(compare, _static_cache)
    compare.finish()
    assert not report.refusals
    # The prompt of later requests, and all tokens but the first; a graph's first replay with other integers is compared with eager.
    assert (report.captures, report.replays) == (2, 18 - 2 - 2)


def test_static_cache_of_an_encoder_decoder_as_an_argument(compare: Comparison) -> None:
    from transformers import DynamicCache, EncoderDecoderCache

    compare.module(_make("t5"))
    for length in (7, 5):
        with torch.no_grad():
            encoded = compare.reference.get_encoder()(_ids(2, length))
        for make_cache in (
            lambda model: EncoderDecoderCache(_static_cache(model), _static_cache(model)),
            lambda model: EncoderDecoderCache(_static_cache(model), DynamicCache()),
        ):
            report = _decode(compare, make_cache, requests=2, encoder_outputs=encoded)
    compare.finish(refused="nothing")
    assert report.replays > 0


@pytest.mark.parametrize("name", DECODERS)
def test_dynamic_cache_as_an_argument(compare: Comparison, name: str) -> None:
    compare.module(_make(name))
    report = _decode(compare, _dynamic_cache)
    compare.finish()
    assert [refusal.reason.value for refusal in report.refusals] == ["argument"]
    assert "past_key_values.layers[0].keys` has another size" in report.refusals[0].message
    assert "StaticCache" in report.refusals[0].message
    assert report.replays == 1  # of the prompt, whose cache is empty
    assert report.eager_calls["argument"] == 14


@pytest.mark.parametrize("name", DECODERS)
def test_dynamic_cache_with_buckets_for_its_length(compare: Comparison, name: str) -> None:
    compare.module(_make(name), buckets={"past_key_values": rs.Bucket(dim=2, sizes=[8, 16, 32])})
    for request in range(3):
        compare.last_change = f"cache of request {request}"
        ours, theirs = _dynamic_cache(compare.model), _dynamic_cache(compare.reference)
        ids = _ids(2)
        mask = torch.ones_like(ids)
        mask[0, :2] = 0
        for _ in range(10):
            given = {"input_ids": ids, "attention_mask": mask, "use_cache": True}
            result = compare.each({"past_key_values": ours}, {"past_key_values": theirs}, **given)
            compare.state(ours, theirs)
            got, _ = compare.kept[-1]
            assert got.past_key_values is ours
            ids = result.logits[:, -1:].argmax(-1).clone()
            mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
    compare.finish()
    report = compare.report()
    assert (report.captures, report.refusals) == (3, ())  # the prompt, and two sizes
    assert (
        report.replays == 30 - 3 - 3
    )  # the first calls, and first replays with other integers, which are compared with eager


def test_dynamic_cache_of_an_encoder_decoder_with_buckets_for_its_length(compare: Comparison) -> None:
    from transformers import DynamicCache, EncoderDecoderCache

    compare.module(_make("t5"), buckets={"past_key_values": rs.Bucket(dim=2, sizes=[16])})
    with torch.no_grad():
        encoded = compare.reference.get_encoder()(_ids(2, 7))
    report = _decode(compare, lambda _: EncoderDecoderCache(DynamicCache(), DynamicCache()), encoder_outputs=encoded)
    compare.finish()
    assert (report.captures, report.refusals, report.replays) == (2, (), 18 - 2 - 2)


@pytest.mark.parametrize(
    "options", [{}, {"cache_implementation": "static"}, {"use_cache": False}, {"num_beams": 2}], ids=str
)
@pytest.mark.parametrize("name", MODELS)
def test_generate(compare: Comparison, name: str, options: dict[str, Any]) -> None:
    compare.module(_make(name))
    for length in (5, 5, 7):
        ids = _ids(length=length)

        def run(model: Any, ids: Any = ids) -> Any:
            return model.generate(
                ids.clone(),
                attention_mask=torch.ones_like(ids),
                max_new_tokens=TOKENS,
                do_sample=False,
                disable_compile=True,
                **options,
            )

        compare.both(run, run)
    # `generate` is a method of the model: what it calls has to show up in the report, replayed or with a reason.
    compare.finish(refused="argument|side effect|host sync|error", direct=False)
