"""Device graphs, memory and weights."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel, Choice, Hazard, Owner, Setting, Variable, on

_CONFIG = "torch 2.13 _inductor/config.py"
_H200 = "settings-on-h200"
_ROCM = on(Platform.ROCM)
_LEGACY = measured(
    "capture-facts-on-h200#capture-trees-legacy", "Off, reduce-overhead still captured, in the older way."
)

SETTINGS = (
    Setting(
        owner=Owner.INDUCTOR,
        name="triton.cudagraphs",
        kind=bool,
        summary="Let Inductor capture each compiled graph as a device graph and replay it.",
        instead="compile in the default mode and capture the whole call: rs.capture(torch.compile(model))",
        variable=Variable(name="TORCHINDUCTOR_CUDAGRAPHS"),
        candidates=(False, True),
        choices=(
            Choice(
                profile="safe",
                value=False,
                why="HIP graphs can answer wrongly or end the process; capture the whole call with a check instead.",
                evidence=(
                    issue(
                        "ROCm/clr#279", "Replays corrupt their output in one process of five on ROCm 7.2.0 to 7.2.3."
                    ),
                    issue(
                        "pytorch/pytorch#187715",
                        "Training drifts under reduce-overhead on ROCm 7.0; not reproduced on 7.14.",
                    ),
                ),
                when=_ROCM,
                guard=True,
            ),
            Choice(
                profile="fast",
                value=False,
                why="One graph over the whole call is faster than a graph per compiled region.",
                evidence=(
                    measured(
                        _H200,
                        "Whole-call capture against reduce-overhead: 0.407 and 0.426 ms (ResNet-50), "
                        "0.566 and 0.579 ms (GPT-2).",
                    ),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.CRITICAL,
                why="On this ROCm a replay silently corrupts its output in about one process of five.",
                evidence=(issue("ROCm/clr#279", "ROCm 7.2.0 to 7.2.3 on MI300X; 7.0, 7.1.1 and 7.13 are sound."),),
                when=on(Platform.ROCM, rocm="7.2.0..7.2.3"),
            ),
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="Inductor's own capture on ROCm has open reports of wrong results and aborted captures.",
                evidence=(issue("pytorch/pytorch#187715", "Closed as not reproduced on ROCm 7.14; reported on 7.0."),),
                when=_ROCM,
            ),
        ),
        notes="A mode switches it on whatever the config says: reduce-overhead and max-autotune both do.",
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="triton.cudagraph_trees",
        kind=bool,
        summary="Which implementation captures when Inductor captures: trees (on) or the older one (off).",
        choices=(
            Choice(
                profile="safe",
                value=True,
                why="Off does not switch capturing off, it picks the older implementation, which checks less.",
                evidence=(_LEGACY,),
                when=_ROCM,
                guard=True,
            ),
            Choice(
                profile="safe",
                value=True,
                why="Off does not switch capturing off, it picks the older implementation, which checks less.",
                evidence=(_LEGACY,),
            ),
        ),
        hazards=(
            Hazard(
                value=False,
                severity=Severity.WARNING,
                why="Graphs are not off: any mode that wants them now takes the older capture, which checks less.",
                evidence=(_LEGACY,),
            ),
        ),
        dispute="Guides S0, S1 and S4 switch it off to be safe. Off is not off: graphs are then captured in the older way. "
        "triton.cudagraphs is the switch. One report (pytorch/pytorch#187715, ROCm 7.0) was fixed by the older way.",
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="memory_planning",
        kind=bool,
        summary="Allocate intermediate tensors from one pool planned at compile time.",
        variable=Variable(name="TORCHINDUCTOR_MEMORY_PLANNING"),
        choices=(
            Choice(
                profile="safe",
                value=False,
                why="It runs out of recursion on graphs with some hundred live buffers of one size.",
                evidence=(
                    measured(
                        "compiler-facts-torch-2.13-cpu",
                        "250 live buffers of one size compile, 300 raise RecursionError.",
                    ),
                    source(f"{_CONFIG} memory_planning", "Off by default in 2.4 to 2.15, with no branch for HIP."),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="A graph with some hundred live buffers of one size fails to compile with a RecursionError.",
                evidence=(
                    measured(
                        "compiler-facts-torch-2.13-cpu",
                        "250 live buffers of one size compile, 300 raise RecursionError.",
                    ),
                ),
            ),
        ),
        notes="Four guides blame ROCm. The recursion is real and has nothing to do with the platform.",
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="freezing",
        kind=bool,
        summary="Fold the weights into the compiled code as constants (inference only).",
        variable=Variable(name="TORCHINDUCTOR_FREEZING"),
        candidates=(False, True),
        choices=(
            Choice(
                profile="safe",
                value=False,
                why="Weights that change afterwards are ignored without a word.",
                evidence=(
                    measured(
                        "compiler-facts-torch-2.13-cpu", "A weight doubled after the compile left the answer unchanged."
                    ),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="Under no_grad, weights that are updated after the compile are ignored without a word.",
                evidence=(
                    measured(
                        "compiler-facts-torch-2.13-cpu", "A weight doubled after the compile left the answer unchanged."
                    ),
                ),
            ),
        ),
        via=Channel.SCOPE,
        notes="It acts only while gradients are off. Given as an option of torch.compile it freezes nothing, because "
        "Dynamo decides what is a weight before the options are looked at: set it around the compiling call.",
        evidence=(
            source(
                "torch 2.13 _dynamo/utils.py is_parameter_freezing",
                "Asks the config while tracing, before options apply.",
            ),
            measured(
                "compiler-facts-torch-2.13-cpu", "As an option: the doubled weight was seen, so nothing was frozen."
            ),
        ),
    ),
)
