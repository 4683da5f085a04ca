"""The code blocks of a set of public guides have exactly the listed findings.

The guides are not part of the repository; they are read from the folder `shared` next to the checkout, if it exists.
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
ENDINGS = {"python": "py", "bash": "sh"}

# Guide, line, rule.
EXPECTED = {
    ("S0", 15, "default-mode-taken-for-off"),  # mode="default" as the gate does not neutralise the environment
    ("S1", 27, "default-mode-taken-for-off"),
    ("S0", 39, "cudagraphs-off-taken-for-guard"),  # modes switch them on again
    ("S1", 45, "cudagraphs-off-taken-for-guard"),
    ("S3", 24, "cudagraphs-off-taken-for-guard"),
    ("S4", 43, "cudagraphs-off-taken-for-guard"),
    ("S0", 40, "graph-trees-taken-for-graphs"),  # picks the older path, or is inert
    ("S1", 46, "graph-trees-taken-for-graphs"),
    ("S4", 44, "graph-trees-taken-for-graphs"),
    ("S1", 40, "setting-assigned-its-default"),  # the "container default" is False upstream in all versions
    ("S4", 39, "setting-assigned-its-default"),
    ("S1", 69, "compile-replaced"),  # misses max-autotune, breaks options=
    ("S0", 150, "rng-patch-without-effect"),  # inert since 2.9, harmful before
    ("S2", 136, "rng-patch-without-effect"),  # never existed there
    ("S2", 52, "warmup-in-another-grad-mode"),  # no_grad warm-up in 39, grad capture
    ("S2", 62, "inputs-zipped-into-static"),  # fewer inputs: stale data silently
    ("S2", 68, "graph-output-cloned-whole"),  # fails for tuples and dicts
    ("S2", 161, "pool-shared-by-graphs"),  # the ordering rule is missing
    ("S2", 178, "shape-dependent-slice-into-replay"),
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
    ("S0", 30, "autotune-half-off"),  # every block omits max_autotune_pointwise and max_autotune_gemm
    ("S1", 40, "autotune-half-off"),
    ("S3", 21, "autotune-half-off"),
    ("S4", 39, "autotune-half-off"),
    ("S3", 20, "setting-taken-for-another"),  # backends are not read while the search is off: the pair is redundant
    ("S0", 29, "setting-taken-for-another"),
    ("S3", 27, "setting-taken-for-another"),  # with ATEN there is no template to fuse into
    ("S3", 35, "setting-taken-for-another"),  # benchmark_kernel emits a harness
    ("S3", 36, "setting-taken-for-another"),  # multi_kernel is about reductions only
    ("S3", 111, "setting-taken-for-another"),  # debug_log prints no Triton code
    ("S3", 29, "setting-in-dispute"),  # aggressive_fusion: True here, False in S0:36
    ("S0", 36, "setting-in-dispute"),
    ("S3", 34, "setting-in-dispute"),  # coordinate descent: True here, False in S0:31 and S1:42
    ("S0", 31, "setting-in-dispute"),
    ("S1", 42, "setting-in-dispute"),
    ("S3", 123, "variable-nobody-reads"),  # none of the six names exists
    ("S3", 124, "variable-nobody-reads"),
    ("S3", 125, "variable-nobody-reads"),
    ("S3", 126, "variable-nobody-reads"),
    ("S3", 127, "variable-nobody-reads"),
    ("S3", 128, "variable-nobody-reads"),
    ("S0", 165, "variable-nobody-reads"),  # HIP_CACHE_ENABLED
    ("S0", 169, "value-known-to-hurt"),  # expandable segments
    ("S4", 119, "value-known-to-hurt"),  # the variable that images leave on
}


def guides() -> list[Path]:
    return sorted(GUIDES.glob("*.txt"))


def found_in(guide: Path, folder: Path, confidence: str = "anywhere") -> list[Finding]:
    """Write every block to its own file, with the line numbers of the guide."""
    text = guide.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        above = text.count("\n", 0, block.start(2))
        (folder / f"block_{above}.{ENDINGS[block[1]]}").write_text("\n" * above + block[2], encoding="utf-8")
    return list(lint([folder], Options(confidence=confidence), jobs=1, cache=None).findings)


@pytest.mark.skipif(not guides(), reason="the guides are not next to this checkout")
def test_the_guides_have_the_listed_findings(tmp_path: Path) -> None:
    found: set[tuple[str, int, str]] = set()
    for number, guide in enumerate(guides()):
        folder = tmp_path / f"S{number}"
        folder.mkdir()
        found |= {(f"S{number}", int(f.place.rpartition(":")[2]), f.name) for f in found_in(guide, folder)}

    assert sorted(EXPECTED - found) == []


@pytest.mark.skipif(not guides(), reason="the guides are not next to this checkout")
def test_the_good_examples_of_a_guide_have_no_findings(tmp_path: Path) -> None:
    """The third guide shows bad and good code in pairs; only the bad code has findings about captures."""
    found = found_in(guides()[2], tmp_path, "reachable")
    lines = sorted({int(f.place.rpartition(":")[2]) for f in found if f.code in ("SRC201", "SRC205", "SRC209")})

    assert lines == [178, 191, 208]


def test_the_table_names_existing_rules() -> None:
    from rocsolid.rules.engine import source_rules

    assert {name for _, _, name in EXPECTED} <= {file.rule.name for file in source_rules()}
