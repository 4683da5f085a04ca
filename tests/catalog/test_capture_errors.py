"""HIP and CUDA errors during a capture are recognised by name, text or number."""

import pytest

from rocsolid.api.explain import explain
from rocsolid.catalog.capture_errors import MEANINGS, error_in, meaning_of, meaning_of_code
from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS
from rocsolid.model.capture_report import Reason
from rocsolid.model.runtime_error import RuntimeErrorCode


def test_every_code_has_one_meaning() -> None:
    known = [number for meaning in MEANINGS for number in meaning.codes]

    assert sorted(known) == [error.number for error in RUNTIME_ERRORS]
    assert {*range(900, 911)} <= {*known}
    assert all(meaning.message and meaning.fix and meaning.evidence for meaning in MEANINGS)


@pytest.mark.parametrize("error", RUNTIME_ERRORS, ids=lambda error: str(error.number))
def test_an_error_is_recognised_by_name_text_and_number(error: RuntimeErrorCode) -> None:
    wanted = meaning_of_code(error.number)
    texts = [*error.names, *(f"HIP error: {text}" for text in error.texts), error.driver_name]
    if error.number > 99:  # a smaller number could be anything
        texts += [
            f"HIP error: {error.number}",
            f"CUDA error code {error.number}",
            f"Triton Error [HIP]:  Code: {error.number}, Messsage: what it says",
            f"Hip error: 'what it says'({error.number}) at hipblaslt.cpp:147",
            f"hipGraphInstantiate failed with hipError_t({error.number})",
        ]
    for text in texts:
        assert meaning_of(text) is wanted, text
        assert error_in(text) is error, text


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        # What users report from MI300X and MI350X.
        (
            "Hip error: 'operation not permitted when stream is capturing'(900) at hipblaslt.cpp:147",
            Reason.HOST_SYNC,
        ),
        ("HIP error: operation not permitted on an event last recorded in a capturing stream", Reason.EVENT_QUERIED),
        (
            "'operation would make the legacy stream depend on a capturing blocking stream'(906) at hipblaslt.cpp:148",
            Reason.DEFAULT_STREAM,
        ),
        ("HIP error: capturing stream has unjoined work", Reason.UNJOINED),
        (
            "HIP out of memory. Tried to allocate 900.00 MiB. GPU 0 has a total capacity of 191 GiB",
            Reason.OUT_OF_MEMORY,
        ),
        ("CUDA driver error: CUDA_ERROR_STREAM_CAPTURE_MERGE", Reason.UNCAPTURED_EVENT),
        # torch's own texts are matched before the runtime's.
        (
            "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned (900)",
            Reason.HOST_COPY,
        ),
    ],
)
def test_the_cause_of_a_message_is_found(text: str, cause: Reason) -> None:
    meaning = meaning_of(text)

    assert meaning is not None
    assert meaning.cause is cause


@pytest.mark.parametrize(
    "text", ["expected 900 tokens", "CUDA kernel of 906 blocks", "error 900 of the parser", "hip: (907) x", ""]
)
def test_other_numbers_are_not_taken_for_errors(text: str) -> None:
    assert meaning_of(text) is None


@pytest.mark.parametrize("name", ["906", "hipErrorStreamCaptureImplicit", "cudaErrorStreamCaptureImplicit"])
def test_explain_accepts_every_name_of_an_error(name: str) -> None:
    page = explain(name)

    assert page.startswith("# Error 906 during a capture\n")
    assert "- HIP and CUDA differ: CUDA documents it for blocking streams; HIP" in page
    assert "- fix: pass the current stream to the library" in page
    assert "## Calls that fail with this error on HIP 7.2.4\n- `hipMemcpy` to the host, on the default stream" in page
