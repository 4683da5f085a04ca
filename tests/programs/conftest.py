"""Every program runs under `torch.no_grad()` and under `torch.inference_mode()`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from tests.programs.support import Comparison, seed

_HERE = Path(__file__).parent
#: What `make test` runs, about a minute for each file: a test, or one of its cases.
IN_CI = {
    # generate
    "test_every_kind_of_model_replays_its_decode_step[record-llama]",
    "test_sampling_draws_the_same_numbers_with_one_replay_per_token[record-top_k]",
    "test_repetition_penalty_gets_ids_that_are_places_in_the_scores[record-6]",
    "test_memory_of_an_earlier_call_is_written_before_it_is_read[record-llama]",
    "test_streamers_get_each_token[record-options2-3]",
    "test_stopping_criteria_and_other_processors_stay_in_the_loop[record]",
    "test_beam_search_moves_the_rows_of_the_cache_in_graph_memory[record-search]",
    "test_assisted_decoding_replays_draft_and_verification[record-False-optimized]",
    "test_optimize_a_pipeline_of_transformers[record]",
    "test_optimize_a_pipeline_without_generate",
    "test_encoder_decoder_model_replays_its_decoder[record-t5]",
    "test_whisper_replays_the_decode_step_within_its_own_generate[record]",
    "test_layers_with_a_state_are_captured[record-lfm2]",
    "test_model_of_pictures_and_text[record-llava]",
    "test_undo_returns_the_plain_model[record]",
    # pipelines of diffusers
    "test_pipeline[sd]",
    "test_pipeline[flux]",
    "test_another_dtype_is_learned_from_the_next_call[sd]",
    "test_offload_undoes_it_and_is_refused_afterwards[enable_model_cpu_offload-sd]",
    "test_hook_of_accelerate_on_an_optimized_part",
    # policies, and what is common to programs
    "test_networks_of_a_policy_are_found_by_its_first_action",
    "test_policy_in_training_mode_waits",
    "test_network_that_cannot_be_captured_is_named_and_runs_in_eager",
    "test_counters_and_notebook_page_of_a_program",
    "test_explain_and_undo_of_a_model_without_a_door",
    "test_sample_actions_is_one_part_and_draws_the_same_noise",
    "test_real_time_chunking_is_left_alone_with_the_reason",
    "test_policy_of_openpi",
    "test_sampling_of_openpi_is_compiled_as_a_whole",
    "test_optimize_finds_a_policy_of_openpi_by_its_methods",
    # nodes for ComfyUI
    "test_nodes_optimize_and_explain_a_model",
    "test_the_nodes_are_declared_as_comfyui_expects",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other libraries warn about themselves and each other."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            item.add_marker(pytest.mark.torch)
            if {item.name, item.name.partition("[")[0]} & IN_CI:
                item.add_marker(pytest.mark.ci)


@pytest.fixture(params=["no_grad", "inference_mode"])
def mode(request: pytest.FixtureRequest) -> Any:
    return getattr(torch, request.param)


@pytest.fixture
def compare(request: pytest.FixtureRequest, mode: Any) -> Iterator[Comparison]:
    seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    comparison = Comparison(name=request.node.name, mode=mode)
    yield comparison
    torch.set_num_threads(threads)
    comparison.row("different" if comparison.differences else "equal")
