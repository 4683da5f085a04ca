"""Fixes that are safe: carried out exactly, and leaving the rest of the file alone."""

from pathlib import Path

import pytest

from rocsolid.errors import MissingExtraError
from rocsolid.lint.autofix import fixes
from rocsolid.lint.options import Options
from rocsolid.lint.project import lint

pytest.importorskip("libcst")


def mended(folder: Path, text: str) -> str:
    (folder / "m.py").write_text(text, encoding="utf-8", newline="")
    (fixed,) = fixes(lint([folder], Options(), jobs=1, cache=None).findings)
    assert fixed.before == text
    return fixed.after


def test_a_dead_setting_goes_and_its_block_stays_whole(tmp_path: Path) -> None:
    text = "import torch\nif on:  # keep\n    torch._inductor.config.group_fusion = True\nx = 1  # kept\n"

    assert mended(tmp_path, text) == "import torch\nif on:  # keep\n    pass\nx = 1  # kept\n"


def test_a_zip_becomes_strict_where_it_stands(tmp_path: Path) -> None:
    text = "def replay(self, *new):\n    for s, n in zip(self.slots,  new):  # é\n        s.copy_(n)\n    self.graph.replay()\n"
    after = mended(tmp_path, text)

    assert after == text.replace("zip(self.slots,  new)", "zip(self.slots,  new, strict=True)")
    (tmp_path / "m.py").write_text(after, encoding="utf-8")
    assert lint([tmp_path], Options(select=("SRC212",)), jobs=1, cache=None).findings == ()


def test_windows_line_ends_survive(tmp_path: Path) -> None:
    text = "import torch\r\nx = 1\r\ntorch._inductor.config.group_fusion = True\r\ny = 2\r\n"

    assert mended(tmp_path, text) == "import torch\r\nx = 1\r\ny = 2\r\n"


def test_nothing_to_mend_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import torch\nmodel = torch.compile(model, mode='max-autotune')\n")

    assert fixes(lint([tmp_path], Options(), jobs=1, cache=None).findings) == []


def test_without_libcst_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name == "libcst":
            raise ImportError(name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    (tmp_path / "m.py").write_text("import torch\ntorch._inductor.config.group_fusion = True\n")
    found = lint([tmp_path], Options(), jobs=1, cache=None).findings
    monkeypatch.setattr(builtins, "__import__", without)

    with pytest.raises(MissingExtraError, match=r"lint --fix needs an optional package: pip install 'rocsolid\[fix\]'"):
        fixes(found)
