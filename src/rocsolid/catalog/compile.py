"""Arguments of torch.compile."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, on

_ROCM = on(Platform.ROCM)
_MODES = source("torch 2.13 _inductor/__init__.py list_mode_options", "Each mode is a fixed set of Inductor settings.")

SETTINGS = (
    Setting(
        owner=Owner.COMPILE,
        name="mode",
        value_type=str,
        summary="A name for a set of Inductor settings. default is empty; reduce-overhead captures device graphs; "
        "max-autotune searches kernels, tunes by coordinate descent and captures; max-autotune-no-cudagraphs leaves out the last.",
        candidates=("default", "reduce-overhead", "max-autotune-no-cudagraphs"),
        recommendations=(
            Recommendation(
                profile="safe",
                value="default",
                why="The other modes switch on captures or searches whatever the config says.",
                evidence=(_MODES, issue("ROCm/clr#279", "Replays corrupt their output on ROCm 7.2.0 to 7.2.3.")),
                when=_ROCM,
                guard=True,
            ),
            Recommendation(
                profile="fast",
                value="default",
                why="Compiled in default mode and captured whole, a model is faster than under reduce-overhead.",
                evidence=(measured("settings-on-h200", "0.407 and 0.426 ms (ResNet-50), 0.566 and 0.579 ms (GPT-2)."),),
            ),
        ),
        hazards=(
            Hazard(
                value="reduce-overhead",
                severity=Severity.CRITICAL,
                why="On this ROCm a replay silently corrupts its output in about one process of five.",
                evidence=(issue("ROCm/clr#279", "ROCm 7.2.0 to 7.2.3 on MI300X."),),
                when=on(Platform.ROCM, rocm="7.2.0..7.2.3"),
            ),
            Hazard(
                value="reduce-overhead",
                severity=Severity.WARNING,
                why="Inductor's own capture on ROCm has open reports of wrong results and aborted captures.",
                evidence=(issue("pytorch/pytorch#187715", "Reported on ROCm 7.0; not reproduced on 7.14."),),
                when=_ROCM,
            ),
            Hazard(
                value="max-autotune",
                severity=Severity.CRITICAL,
                why="Searches every matmul without a deadline and captures graphs besides.",
                evidence=(
                    issue("pytorch/pytorch#140395", "A compile that never ends."),
                    issue("pytorch/pytorch#193735", "Captures are invalidated under several shapes on gfx950."),
                ),
                when=_ROCM,
            ),
            Hazard(
                value="max-autotune-no-cudagraphs",
                severity=Severity.WARNING,
                why="Searches every matmul without a deadline.",
                evidence=(issue("pytorch/pytorch#140395", "A compile that never ends."),),
                when=_ROCM,
            ),
        ),
        notes="default turns nothing off: what the environment or the config switched on stays on. mode and options exclude each "
        "other. The guides gate the mode by vendor; a mode is only a name, so rocsolid passes the settings themselves.",
        evidence=(_MODES,),
    ),
    Setting(
        owner=Owner.COMPILE,
        name="dynamic",
        value_type=bool,
        summary="Whether sizes are variables from the first compile on; unset, a size becomes one when it first changes.",
        candidates=(None, False, True),
    ),
)
