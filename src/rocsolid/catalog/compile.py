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
        summary=(
            "A name for a set of Inductor settings. `default` sets nothing. `reduce-overhead` captures "
            "CUDA graphs or HIP graphs. `max-autotune` benchmarks several kernels per operation, tunes "
            "them by coordinate descent and captures graphs. `max-autotune-no-cudagraphs` does the "
            "same without graphs."
        ),
        candidates=("default", "reduce-overhead", "max-autotune-no-cudagraphs"),
        recommendations=(
            Recommendation(
                profile="safe",
                value="default",
                why="The other modes turn on graph capture or autotuning, even if the config turns them off.",
                evidence=(_MODES, issue("ROCm/clr#279", ("On ROCm 7.2.0 to 7.2.3, replays return corrupted output."))),
                when=_ROCM,
                guard=True,
            ),
            Recommendation(
                profile="fast",
                value="default",
                why="A model compiled in default mode and captured as one graph is faster than with reduce-overhead.",
                evidence=(
                    measured(
                        "settings-on-h200",
                        (
                            "Default mode captured as one graph 0.407 ms and reduce-overhead 0.426 ms (ResNet-50); 0.566 ms "
                            "and 0.579 ms (GPT-2)."
                        ),
                    ),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value="reduce-overhead",
                severity=Severity.CRITICAL,
                why="With ROCm 7.2.0 to 7.2.3 a replay silently corrupts its output in about one process of five.",
                evidence=(issue("ROCm/clr#279", "Affects ROCm 7.2.0 to 7.2.3 on MI300X."),),
                when=on(Platform.ROCM, rocm="7.2.0..7.2.3"),
            ),
            Hazard(
                value="reduce-overhead",
                severity=Severity.WARNING,
                why="Inductor's graph capture on ROCm has open reports of wrong results and aborted captures.",
                evidence=(
                    issue("pytorch/pytorch#187715", ("Wrong results reported on ROCm 7.0; not reproduced on 7.14.")),
                ),
                when=_ROCM,
            ),
            Hazard(
                value="max-autotune",
                severity=Severity.CRITICAL,
                check="autotune-runs",
                why="It benchmarks kernels for every matmul without a deadline, and captures graphs as well.",
                evidence=(
                    issue("pytorch/pytorch#140395", "A compile with max-autotune never ends."),
                    issue("pytorch/pytorch#193735", ("On gfx950, captures fail if there are several input shapes.")),
                ),
                when=_ROCM,
            ),
            Hazard(
                value="max-autotune-no-cudagraphs",
                severity=Severity.WARNING,
                check="autotune-runs",
                why="It benchmarks kernels for every matmul without a deadline.",
                evidence=(issue("pytorch/pytorch#140395", "A compile with max-autotune never ends."),),
                when=_ROCM,
            ),
        ),
        notes=(
            "`default` turns nothing off: settings that the environment or the config turned on stay "
            "on. `mode` and `options` cannot be combined. Public guides choose the mode by GPU vendor. "
            "A mode is only a name for a set of settings, so rocsolid passes the settings themselves."
        ),
        evidence=(_MODES,),
    ),
    Setting(
        owner=Owner.COMPILE,
        name="dynamic",
        value_type=bool,
        summary=(
            "Whether tensor sizes are symbols in the compiled code. True: from the first compile on, "
            "so that one compile serves many sizes. False: never, every new size is compiled "
            "separately. Not set: a size becomes a symbol when it changes for the first time."
        ),
        candidates=(None, False, True),
    ),
)
