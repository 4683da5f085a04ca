"""The code blocks of the guides yield the findings that our study of them lists.

The guides are not ours to keep; they are read from the folder `shared` beside the checkout, where there is one.
"""

import re
from pathlib import Path

import pytest
from tests.support import ROOT

from rocsolid.lint.options import Options
from rocsolid.lint.project import lint
from rocsolid.model.finding import Finding

BESIDE = ROOT.parent / "shared/seeds"
FENCE = re.compile(r"^```(python|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ENDINGS = {"python": "py", "bash": "sh"}

# Guide, line, rule: what the study says about each line of code (facts/torch.md, section 9).
EXPECTED = {
    ("S0", 15, "default-mode-disables-nothing"),  # mode="default" as the gate does not neutralise the environment
    ("S1", 27, "default-mode-disables-nothing"),
    ("S0", 39, "cudagraphs-off-overridden-by-mode"),  # modes switch them on again
    ("S1", 45, "cudagraphs-off-overridden-by-mode"),
    ("S3", 24, "cudagraphs-off-overridden-by-mode"),
    ("S4", 43, "cudagraphs-off-overridden-by-mode"),
    ("S0", 40, "cudagraph-trees-disabled"),  # picks the older path, or is inert
    ("S1", 46, "cudagraph-trees-disabled"),
    ("S4", 44, "cudagraph-trees-disabled"),
    ("S1", 40, "setting-assigned-its-default"),  # the "container default" is False upstream in all versions
    ("S4", 39, "setting-assigned-its-default"),
    ("S1", 69, "torch-compile-monkey-patched"),  # misses max-autotune, breaks options=
    ("S0", 150, "ineffective-rng-patch"),  # inert since 2.9, harmful before
    ("S2", 136, "ineffective-rng-patch"),  # never existed there
    ("S2", 52, "warmup-in-another-grad-mode"),  # no_grad warm-up in 39, grad capture
    ("S2", 62, "static-inputs-zip-without-strict"),  # fewer inputs: stale data silently
    ("S2", 68, "graph-output-clone-assumes-tensor"),  # fails for tuples and dicts
    ("S2", 161, "pool-shared-by-graphs"),  # the ordering rule is missing
    ("S2", 178, "variable-length-slice-in-replay"),
    ("S2", 191, "capture-without-warmup"),
    ("S2", 208, "host-sync-in-captured-region"),
    ("S0", 105, "graph-output-kept-across-replays"),
    ("S0", 71, "vendor-wrapper-in-compiled-region"),
    ("S3", 30, "dead-setting"),  # group_fusion has no reader
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
    ("S3", 20, "misunderstood-setting"),  # backends are not read while the search is off: the pair is redundant
    ("S0", 29, "misunderstood-setting"),
    ("S3", 27, "misunderstood-setting"),  # with ATEN there is no template to fuse into
    ("S3", 35, "misunderstood-setting"),  # benchmark_kernel emits a harness
    ("S3", 36, "misunderstood-setting"),  # multi_kernel is about reductions only
    ("S3", 111, "misunderstood-setting"),  # debug_log prints no Triton code
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
    ("S4", 119, "harmful-value"),  # the variable that images leave on
}


def guides() -> list[Path]:
    return sorted(BESIDE.glob("*.txt"))


def found_in(guide: Path, folder: Path, confidence: str = "anywhere") -> list[Finding]:
    """Every block as a file of its own whose lines keep their numbers."""
    text = guide.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        above = text.count("\n", 0, block.start(2))
        (folder / f"block_{above}.{ENDINGS[block[1]]}").write_text("\n" * above + block[2], encoding="utf-8")
    return list(lint([folder], Options(confidence=confidence), jobs=1, cache=None).findings)


@pytest.mark.skipif(not guides(), reason="the guides are not beside this checkout")
def test_the_guides_code_yields_what_the_study_lists(tmp_path: Path) -> None:
    found: set[tuple[str, int, str]] = set()
    for number, guide in enumerate(guides()):
        folder = tmp_path / f"S{number}"
        folder.mkdir()
        found |= {(f"S{number}", int(f.location.rpartition(":")[2]), f.name) for f in found_in(guide, folder)}

    assert sorted(EXPECTED - found) == []


@pytest.mark.skipif(not guides(), reason="the guides are not beside this checkout")
def test_what_a_guide_calls_good_is_left_alone(tmp_path: Path) -> None:
    """The third guide shows bad and good side by side; only the bad halves trip the rules about captures."""
    found = found_in(guides()[2], tmp_path, "reachable")
    lines = sorted({int(f.location.rpartition(":")[2]) for f in found if f.code in ("SRC201", "SRC205", "SRC209")})

    assert lines == [178, 191, 208]


def test_the_table_names_rules_that_exist() -> None:
    from rocsolid.rules.engine import source_rules

    assert {name for _, _, name in EXPECTED} <= {file.rule.name for file in source_rules()}
