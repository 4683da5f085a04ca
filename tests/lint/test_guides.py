"""Code blocks of public tuning guides produce the findings that a study of them lists.

The guides are not part of the repository. They are read from the folder `shared` next to the checkout, if it exists.
"""

import re
from pathlib import Path

import pytest
from tests.support import ROOT

from rocsolid.lint.options import Options
from rocsolid.lint.project import lint
from rocsolid.model.finding import Finding

GUIDES = ROOT.parent / "shared/seeds"
FENCE = re.compile(r"^```(python|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE_ENDINGS = {"python": "py", "bash": "sh"}

# Guide (S0 is the first file in alphabetical order), line, rule: the expected findings in each guide.
EXPECTED = {
    ("S0", 15, "default-mode-disables-nothing"),  # mode="default" does not undo what the environment turns on
    ("S1", 27, "default-mode-disables-nothing"),
    ("S0", 39, "cudagraphs-off-overridden-by-mode"),  # modes turn graphs on again
    ("S1", 45, "cudagraphs-off-overridden-by-mode"),
    ("S3", 24, "cudagraphs-off-overridden-by-mode"),
    ("S4", 43, "cudagraphs-off-overridden-by-mode"),
    ("S0", 40, "cudagraph-trees-disabled"),  # selects the older capture implementation, or does nothing
    ("S1", 46, "cudagraph-trees-disabled"),
    ("S4", 44, "cudagraph-trees-disabled"),
    ("S1", 40, "setting-assigned-its-default"),  # the "container default" is False upstream in all versions
    ("S4", 39, "setting-assigned-its-default"),
    ("S1", 69, "torch-compile-monkey-patched"),  # misses max-autotune, breaks options=
    ("S0", 150, "ineffective-rng-patch"),  # no effect since 2.9, harmful before
    ("S2", 136, "ineffective-rng-patch"),  # this name never existed in torch._dynamo.utils
    ("S2", 52, "warmup-in-another-grad-mode"),  # warm-up under no_grad in line 39, capture with gradients
    ("S2", 62, "static-inputs-zip-without-strict"),  # with fewer inputs, silently stale data
    ("S2", 68, "graph-output-clone-assumes-tensor"),  # fails for tuples and dicts
    ("S2", 161, "pool-shared-by-graphs"),  # the required order of replays is not mentioned
    ("S2", 178, "variable-length-slice-in-replay"),
    ("S2", 191, "capture-without-warmup"),
    ("S2", 208, "host-sync-in-captured-region"),
    ("S0", 105, "graph-output-kept-across-replays"),
    ("S0", 71, "vendor-wrapper-in-compiled-region"),
    ("S3", 30, "dead-setting"),  # nothing reads group_fusion
    ("S3", 37, "setting-assigned-its-default"),  # shape_padding is True anyway
    ("S3", 43, "setting-assigned-its-default"),  # memory_planning is off anyway
    ("S0", 44, "setting-assigned-its-default"),
    ("S4", 47, "setting-assigned-its-default"),
    ("S3", 40, "freezing-for-all-compiles"),  # silently stale weights
    ("S3", 46, "recompile-limit-raised"),  # allows more recompiles; no eviction
    ("S0", 50, "recompile-limit-raised"),
    ("S4", 50, "recompile-limit-raised"),
    ("S0", 30, "autotune-partly-disabled"),  # every block omits max_autotune_pointwise and max_autotune_gemm
    ("S1", 40, "autotune-partly-disabled"),
    ("S3", 21, "autotune-partly-disabled"),
    ("S4", 39, "autotune-partly-disabled"),
    ("S3", 20, "misunderstood-setting"),  # backends are not read while autotuning is off
    ("S0", 29, "misunderstood-setting"),
    ("S3", 27, "misunderstood-setting"),  # with ATEN there is no template to fuse into
    ("S3", 35, "misunderstood-setting"),  # benchmark_kernel emits a harness
    ("S3", 36, "misunderstood-setting"),  # multi_kernel is about reductions only
    ("S3", 111, "misunderstood-setting"),  # debug_log does not print Triton code
    ("S3", 29, "disputed-setting"),  # aggressive_fusion: True here, False in S0:36
    ("S0", 36, "disputed-setting"),
    ("S3", 34, "disputed-setting"),  # coordinate descent: True here, False in S0:31 and S1:42
    ("S0", 31, "disputed-setting"),
    ("S1", 42, "disputed-setting"),
    ("S3", 123, "unread-variable"),  # none of the six names exists
    ("S3", 124, "unread-variable"),
    ("S3", 125, "unread-variable"),
    ("S3", 126, "unread-variable"),
    ("S3", 127, "unread-variable"),
    ("S3", 128, "unread-variable"),
    ("S0", 165, "unread-variable"),  # HIP_CACHE_ENABLED
    ("S0", 169, "harmful-value"),  # expandable segments
    ("S4", 119, "harmful-value"),  # the variable that container images set
}


def guides() -> list[Path]:
    return sorted(GUIDES.glob("*.txt"))


def found_in(guide: Path, folder: Path, confidence: str = "anywhere") -> list[Finding]:
    """Lint every code block as its own file, with the line numbers of the guide."""
    text = guide.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        lines_above = text.count("\n", 0, block.start(2))
        (folder / f"block_{lines_above}.{FILE_ENDINGS[block[1]]}").write_text(
            "\n" * lines_above + block[2], encoding="utf-8"
        )
    return list(lint([folder], Options(confidence=confidence, select=("SRC",)), jobs=1, cache=None).findings)


@pytest.mark.skipif(not guides(), reason="the guides are not next to this checkout")
def test_guides_produce_the_expected_findings(tmp_path: Path) -> None:
    found: set[tuple[str, int, str]] = set()
    for index, guide in enumerate(guides()):
        folder = tmp_path / f"S{index}"
        folder.mkdir()
        found |= {(f"S{index}", int(f.location.rpartition(":")[2]), f.name) for f in found_in(guide, folder)}

    assert sorted(EXPECTED - found) == []


@pytest.mark.skipif(not guides(), reason="the guides are not next to this checkout")
def test_good_examples_of_a_guide_are_not_reported(tmp_path: Path) -> None:
    """The third guide shows bad and good code side by side. Only the bad code is reported by the capture rules."""
    found = found_in(guides()[2], tmp_path, "reachable")
    lines = sorted({int(f.location.rpartition(":")[2]) for f in found if f.code in ("SRC201", "SRC205", "SRC209")})

    assert lines == [178, 191, 208]


def test_expected_findings_name_existing_rules() -> None:
    from rocsolid.rules.engine import source_rules

    assert {name for _, _, name in EXPECTED} <= {file.rule.name for file in source_rules()}
