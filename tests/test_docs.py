"""Every example in the documentation runs."""

import re
from pathlib import Path

import pytest

from tests.support import ROOT, has_gpu, run_python

PAGES = [
    file
    for folder in ("tutorial", "how-to", "background", "reference", ".")
    for file in sorted((ROOT / "docs" / folder).glob("*.md"))
    if "```python\n" in file.read_text()
]

# A page that imports one of these is skipped where it is not installed. `make test` installs transformers and diffusers.
LIBRARIES = {
    "transformers": "transformers is not installed",
    "diffusers": "diffusers is not installed",
    "lerobot": "lerobot is not installed: `make test` installs it only with the torch of the Makefile, to which torchvision has to fit",
}

# The pages show what users write; here nothing is compiled with Inductor, which would take minutes.
QUICK = """
import functools, torch, rocsolid as rs
rs.optimize = functools.partial(rs.optimize, budget_s=0)
rs.compile = functools.partial(rs.compile, backend="eager")
torch.compile = functools.partial(torch.compile, backend="eager")
"""

# With transformers 5, `import lerobot.policies` fails in a policy that no page uses.
LEROBOT = (
    (ROOT / "tests/programs/import_torchvision.py").read_text()
    + """
import importlib.util, sys, types
package = types.ModuleType("lerobot.policies")
package.__path__ = [importlib.util.find_spec("lerobot").submodule_search_locations[0] + "/policies"]
sys.modules["lerobot.policies"] = package
"""
)


@pytest.mark.torch
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    if page.stem == "pretend" and has_gpu():
        pytest.skip("pretending is for machines without an accelerator")
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    used = [library for library in LIBRARIES if any(f"from {library}" in block for block in blocks)]
    for library in used:
        pytest.importorskip(library, reason=LIBRARIES[library])
    script = tmp_path / "page.py"
    script.write_text("\n".join([QUICK, *([LEROBOT] if "lerobot" in used else []), *blocks]))
    ran = run_python(str(script))

    assert ran.code == 0, ran.err


def test_pages_do_not_teach_switches_of_the_tests() -> None:
    for page in PAGES:
        assert "budget_s=0" not in page.read_text(), page


def test_measured_evidence_about_guides_exists() -> None:
    """Every measured statement about a guide points at a stored record, and at a fact in it."""
    import json

    for claim in json.loads((ROOT / "docs/data/guides.json").read_text()):
        for evidence in claim["evidence"]:
            if evidence["rank"] == "measured":
                name, _, fact = evidence["ref"].partition("#")
                record = json.loads((ROOT / f"evidence/{name}.json").read_text())
                assert not fact or fact in record["facts"], (claim["claim"], evidence["ref"])


def test_every_claim_of_the_guides_has_a_verdict() -> None:
    import json

    claims = json.loads((ROOT / "docs/data/guides.json").read_text())
    guides = {line.partition(":")[0] for claim in claims for line in claim["lines"]}

    assert guides == {"overview", "porting", "graphs", "inductor-config", "docker-defaults"}
    assert len(claims) > 100
    assert all(claim["fact"] and claim["instead"] and claim["verdict"] for claim in claims)
