"""`--target CHIP[@RELEASE]` reports what holds on a chip that is not present, and the output says that it is simulated."""

import sys

import pytest

from rocsolid.cli import main
from rocsolid.probe.pretended import pretended_chip, simulate_target


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["env"], "# simulated chip: gfx942@7.2.1, not this machine"),
        (["env"], "on ROCm"),
        (["env"], "TORCHINDUCTOR_CUDAGRAPHS=0"),
        (["env"], "\n# Fixes for known problems of this chip and release: rocsolid probe."),
        (["env", "--profile", "fast"], "\n# These are all values that were faster in a measurement on this platform."),
        (["env", "--output", "json"], '"pretended": "gfx942@7.2.1"'),
        (["probe", "--fail-on", "never"], "PRETENDED CHIP (gfx942@7.2.1)"),
        (["probe", "--fail-on", "never"], "hip-graph-replay-corruption"),
        (["settings", "max_autotune"], "On AMD Instinct MI300X (gfx942) with ROCm 7.2.1 (simulated)"),
        (["settings", "max_autotune", "--output", "json"], "(gfx942) with ROCm 7.2.1 (simulated)"),
        (["explain", "max_autotune"], "- CRITICAL: `True`. Every compile"),
        (["explain", "CUDA_LAUNCH_BLOCKING"], "It has no effect: it is read only on CUDA."),
        (["explain", "safe"], "- `inductor.triton.cudagraphs` = `False`"),
        (["explain", "hip-graph-replay-corruption"], "This release and chip are affected."),
    ],
)
def test_the_output_is_about_the_chip_and_says_that_it_is_simulated(
    command: list[str], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    assert main([*command, "--target", "gfx942@7.2.1"]) == 0
    assert expected in capsys.readouterr().out
    assert pretended_chip() is None


def test_the_comments_of_env_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--target", "gfx942@7.2.1"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_another_release_is_not_affected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "hip-graph-replay-corruption", "--target", "gfx942@7.13"]) == 0
    assert "This release and chip are not affected." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["env", "--target", "gfx941"], "unknown target 'gfx941'; did you mean 'gfx942'"),
        (["probe", "--target", "gfx942", "--active"], "--active needs the real machine"),
        (["probe", "--target", "gfx942", "--import", "vllm"], "--import needs the real machine"),
        (["settings", "--values", "--target", "gfx942"], "--values needs the real machine"),
        (["settings", "--target", "gfx942"], "rocsolid explain safe --target gfx942"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    command: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert expected in capsys.readouterr().err


def test_a_real_gpu_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only torch must not find another GPU than the simulated one, and torch is not simulated here."""
    monkeypatch.setattr(sys.modules["rocsolid.probe.pretended"], "_GPU_DEVICE_FILES", ("dev/null",))
    with simulate_target("gfx950") as chip:
        assert pretended_chip() == chip
