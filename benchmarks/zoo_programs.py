"""The programs of `benchmarks.zoo`: `generate` of transformers and pipelines of diffusers, tiny and with random weights.

A program is optimized in place by the module of rocsolid for its library, with parts that are captured without a race, and its calls
are compared with those of a plain copy.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.zoo_models import transformers_models, transformers_names

_NEW_TOKENS: Final = 6
_SCALE: Final = 3.0  # the small weights of a fresh model give nearly equal logits for every token
_SIZES: Final = ((32, 32), (32, 32), (48, 32), (32, 32))  # of the pictures; another one needs a graph of its own
_TIE: Final = 1e-3  # of the spread of the logits: a static cache has another attention kernel


@dataclass(frozen=True, kw_only=True)
class ProgramAttempt:
    """A program, a call of it with the inputs of a seed, and how its parts are captured without a race."""

    program: Any
    call: Callable[[Any, int], Any]
    optimize: Callable[[Any, str], Any]  # of a copy, for a backend of `rs.capture`
    is_near_tie: Callable[[Any, int, Any], bool] = lambda *_: (
        False
    )  # with the plain program, the seed and the other result


def generate_names() -> list[str]:
    """Every model type of transformers that has a model with `generate`."""
    from transformers.models.auto import modeling_auto

    heads = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
    named = {name for head in heads for name in getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES")}
    return [name for name in transformers_names() if name in named]


def generate_programs(name: str) -> Iterator[ProgramAttempt]:
    """A model with `generate`, and inputs of its kinds."""
    from transformers import GenerationMixin

    for model, make in transformers_models(name):
        if isinstance(model, GenerationMixin) and model.can_generate():
            model.eval().generation_config.eos_token_id = None
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(_SCALE)
            call = partial(_generate, make)
            yield ProgramAttempt(
                program=model, call=call, optimize=_optimized_generate, is_near_tie=partial(_is_near_tie, call)
            )


def _generate(make: Callable[[], Any], model: Any, seed: int, **options: Any) -> Any:
    torch.manual_seed(seed)
    inputs = {name: value.to(model.device) for name, value in make()[1].items() if not name.startswith("decoder_")}
    lengths = {"max_new_tokens": _NEW_TOKENS, "min_new_tokens": _NEW_TOKENS}
    with torch.no_grad():
        return model.generate(**inputs, do_sample=False, **lengths, **options)


def _optimized_generate(model: Any, backend: str) -> Any:
    import rocsolid as rs
    from rocsolid.integrations.transformers import optimize_generate

    return optimize_generate(model, partial(rs.capture, backend=backend), devices=("cpu", "cuda"))


def _is_near_tie(call: Callable[..., Any], model: Any, seed: int, got: Any) -> bool:
    """Whether another token was chosen where two have nearly the same logits."""
    want = call(model, seed, return_dict_in_generate=True, output_logits=True)
    if not isinstance(got, torch.Tensor) or got.shape != want.sequences.shape:
        return False
    different = (got != want.sequences).any(0).nonzero()
    logits = want.logits[int(different[0]) - got.shape[1] + len(want.logits)].float()
    best = logits.topk(2).values
    return bool(((best[:, 0] - best[:, 1]) < _TIE * logits.std()).any())


def pipeline_names() -> list[str]:
    """The tiny pipelines of the tests."""
    return list(_tests_of_pipelines().PIPELINES)


def _tests_of_pipelines() -> Any:
    import pytest

    root = Path(__file__).parents[1]
    sys.path.append(str(root))
    import tests

    tests.__path__.append(str(root / "tests"))  # draccus installs a package of this name, which is found first
    try:
        from tests.programs import test_diffusers
    except pytest.skip.Exception as why:
        raise ImportError(str(why)) from None
    return test_diffusers


def pipeline_programs(name: str) -> Iterator[ProgramAttempt]:
    """A pipeline with embeddings as the prompt."""
    pipe, _, inputs = _tests_of_pipelines().PIPELINES[name]()
    pipe.set_progress_bar_config(disable=True)
    yield ProgramAttempt(program=pipe, call=partial(_draw, inputs), optimize=_optimized_pipeline)


def _draw(inputs: Callable[[], dict[str, Any]], pipe: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    values = {name: value.to(pipe.device) for name, value in inputs().items()}
    height, width = _SIZES[seed % len(_SIZES)]
    options = {"num_inference_steps": 3, "guidance_scale": 2.0, "output_type": "pt"}
    generator = torch.Generator().manual_seed(seed)
    return pipe(**values, height=height, width=width, generator=generator, **options)[0]


def _optimized_pipeline(pipe: Any, backend: str) -> Any:
    from tests.programs.support import captured_part

    from rocsolid.integrations.diffusers import optimize_pipeline

    return optimize_pipeline(pipe, partial(captured_part, backend=backend))


PROGRAMS: dict[str, tuple[Callable[[], list[str]], Callable[[str], Iterator[ProgramAttempt]]]] = {
    "transformers generate": (generate_names, generate_programs),
    "diffusers pipelines": (pipeline_names, pipeline_programs),
}
