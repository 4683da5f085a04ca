"""Safe fixes are applied exactly and leave the rest of the file unchanged."""

from pathlib import Path

import pytest

from rocsolid.errors import MissingExtraError
from rocsolid.lint.autofix import fix_files
from rocsolid.lint.options import Options
from rocsolid.lint.project import lint

CASES = Path(__file__).with_name("cases")

pytest.importorskip("libcst")


def fixed_text(folder: Path, text: str) -> str:
    (folder / "m.py").write_text(text, encoding="utf-8", newline="")
    (fixed,) = fix_files(lint([folder], Options(), jobs=1, cache=None).findings)
    assert fixed.before == text
    return fixed.after


def test_removes_a_dead_setting_and_keeps_its_block_valid(tmp_path: Path) -> None:
    text = "import torch\nif on:  # keep\n    torch._inductor.config.group_fusion = True\nx = 1  # kept\n"

    assert fixed_text(tmp_path, text) == "import torch\nif on:  # keep\n    pass\nx = 1  # kept\n"


def test_makes_a_zip_strict_in_place(tmp_path: Path) -> None:
    text = "def replay(self, *new):\n    for s, n in zip(self.slots,  new):  # é\n        s.copy_(n)\n    self.graph.replay()\n"
    after = fixed_text(tmp_path, text)

    assert after == text.replace("zip(self.slots,  new)", "zip(self.slots,  new, strict=True)")
    (tmp_path / "m.py").write_text(after, encoding="utf-8")
    assert lint([tmp_path], Options(select=("SRC212",)), jobs=1, cache=None).findings == ()


def test_replaces_nvidias_libdevice_by_the_common_one(tmp_path: Path) -> None:
    text = (CASES / "cuda-libdevice-in-kernel/bad.py").read_text(encoding="utf-8")
    after = fixed_text(tmp_path, text)

    mixed = "from triton.language.extra.cuda import globaltimer, libdevice"  # not all of it exists elsewhere
    assert after == text.replace("extra.cuda", "extra").replace(mixed.replace(".cuda", ""), mixed)


def test_keeps_windows_line_endings(tmp_path: Path) -> None:
    text = "import torch\r\nx = 1\r\ntorch._inductor.config.group_fusion = True\r\ny = 2\r\n"

    assert fixed_text(tmp_path, text) == "import torch\r\nx = 1\r\ny = 2\r\n"


def test_returns_nothing_without_safe_fixes(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import torch\nmodel = torch.compile(model, mode='max-autotune')\n")

    assert fix_files(lint([tmp_path], Options(), jobs=1, cache=None).findings) == []


def test_without_libcst_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        fix_files(found)
