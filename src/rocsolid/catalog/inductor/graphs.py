"""Settings for CUDA and HIP graphs, memory planning and freezing."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel, Hazard, Owner, Recommendation, Setting, Variable, on

_CONFIG = "torch 2.13 _inductor/config.py"
_H200_RUN = "settings-on-h200"
_ROCM = on(Platform.ROCM)
_FALSE_STILL_CAPTURES = measured(
    "capture-facts-on-h200#capture-trees-legacy",
    "With False, reduce-overhead still captured graphs, with the older implementation.",
)

SETTINGS = (
    Setting(
        owner=Owner.INDUCTOR,
        name="triton.cudagraphs",
        value_type=bool,
        summary="Let Inductor capture each compiled graph as a CUDA graph or HIP graph and replay it.",
        instead="compile in the default mode and capture the whole call: rs.capture(torch.compile(model))",
        variable=Variable(name="TORCHINDUCTOR_CUDAGRAPHS"),
        candidates=(False, True),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why=(
                    "With True, Inductor captures HIP graphs, which can return wrong results or end "
                    "the process. Use rs.capture for the whole call instead: it compares a replay with "
                    "eager."
                ),
                evidence=(
                    issue(
                        "ROCm/clr#279",
                        ("On ROCm 7.2.0 to 7.2.3, replays return corrupted output in one process of five."),
                    ),
                    issue(
                        "pytorch/pytorch#187715",
                        ("Training with reduce-overhead reaches a worse loss on ROCm 7.0; not reproduced on 7.14."),
                    ),
                ),
                when=_ROCM,
                guard=True,
            ),
            Recommendation(
                profile="fast",
                value=False,
                why=(
                    "With True, there is one graph per compiled region. One graph for the whole call "
                    "(rs.capture) is faster."
                ),
                evidence=(
                    measured(
                        _H200_RUN,
                        (
                            "Whole-call capture 0.407 ms and reduce-overhead 0.426 ms (ResNet-50); 0.566 ms and 0.579 ms "
                            "(GPT-2)."
                        ),
                    ),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.CRITICAL,
                why="With ROCm 7.2.0 to 7.2.3 a replay silently corrupts its output in about one process of five.",
                evidence=(
                    issue(
                        "ROCm/clr#279", ("Affects ROCm 7.2.0 to 7.2.3 on MI300X; 7.0, 7.1.1 and 7.13 are not affected.")
                    ),
                ),
                when=on(Platform.ROCM, rocm="7.2.0..7.2.3"),
            ),
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="Inductor's graph capture on ROCm has open reports of wrong results and aborted captures.",
                evidence=(
                    issue(
                        "pytorch/pytorch#187715",
                        ("Wrong results reported on ROCm 7.0; closed, because they were not reproduced on 7.14."),
                    ),
                ),
                when=_ROCM,
            ),
        ),
        notes="The modes reduce-overhead and max-autotune turn it on, even if the config contains False.",
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="triton.cudagraph_trees",
        value_type=bool,
        summary=(
            "Which implementation Inductor uses to capture graphs. True: graph trees. False: the older implementation."
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=True,
                why=(
                    "With False, Inductor still captures graphs, but with the older implementation, which checks less."
                ),
                evidence=(_FALSE_STILL_CAPTURES,),
                when=_ROCM,
                guard=True,
            ),
            Recommendation(
                profile="safe",
                value=True,
                why=(
                    "With False, Inductor still captures graphs, but with the older implementation, which checks less."
                ),
                evidence=(_FALSE_STILL_CAPTURES,),
            ),
        ),
        hazards=(
            Hazard(
                value=False,
                severity=Severity.WARNING,
                why=(
                    "False does not disable graphs: every mode that captures then uses the older "
                    "implementation, which checks less."
                ),
                evidence=(_FALSE_STILL_CAPTURES,),
            ),
        ),
        disagreement=(
            "Three public ROCm guides (overview, porting, Docker defaults) turn it off to be safe. But off "
            "does not disable graphs: they are then captured with the older implementation. To disable "
            "graphs, set triton.cudagraphs to False. One reported problem (pytorch/pytorch#187715, ROCm 7.0) "
            "was fixed by the older implementation."
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="memory_planning",
        value_type=bool,
        summary="Allocate intermediate tensors from one pool that is planned at compile time.",
        variable=Variable(name="TORCHINDUCTOR_MEMORY_PLANNING"),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why=("With True, a compiled graph with a few hundred live buffers of one size raises RecursionError."),
                evidence=(
                    measured(
                        "compiler-facts-torch-2.13-cpu",
                        ("A graph with 250 live buffers of one size compiles, one with 300 raises RecursionError."),
                    ),
                    source(f"{_CONFIG} memory_planning", "Off by default in 2.4 to 2.15, also on HIP."),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                check="fact:memory-planning-recursion",
                why=("A compiled graph with a few hundred live buffers of one size fails with a RecursionError."),
                evidence=(
                    measured(
                        "compiler-facts-torch-2.13-cpu",
                        ("A graph with 250 live buffers of one size compiles, one with 300 raises RecursionError."),
                    ),
                ),
            ),
        ),
        notes=("Four public guides describe the RecursionError as a problem of ROCm. It occurs on every platform."),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="cpp_wrapper",
        value_type=bool,
        summary="Generate C++ instead of Python for the code that calls the kernels, which lowers the overhead of a call.",
        variable=Variable(name="TORCHINDUCTOR_CPP_WRAPPER"),
        candidates=(False, True),
        notes="It matters most where calls are short, as on the CPU. The compile takes longer.",
        evidence=(
            source(
                "torch 2.13 _inductor/config.py cpp_wrapper",
                "The code that calls the kernels is generated by cpp_wrapper_cpu.py instead of wrapper.py.",
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="freezing",
        value_type=bool,
        summary="Turn the weights into constants of the compiled code (inference only).",
        variable=Variable(name="TORCHINDUCTOR_FREEZING"),
        candidates=(False, True),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why="With True, changes of the weights after the compile are silently ignored.",
                evidence=(
                    measured(
                        "compiler-facts-torch-2.13-cpu",
                        ("A weight that was doubled after the compile did not change the result."),
                    ),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                check="fact:freezing-stale-weights",
                why="Under no_grad, changes of the weights after the compile are silently ignored.",
                evidence=(
                    measured(
                        "compiler-facts-torch-2.13-cpu",
                        ("A weight that was doubled after the compile did not change the result."),
                    ),
                ),
            ),
        ),
        via=Channel.SCOPE,
        notes=(
            "It takes effect only while gradients are disabled. If it is passed as an option of "
            "torch.compile, nothing is frozen, because Dynamo decides which tensors are weights before "
            "options are applied. Assign it in torch._inductor.config before the first call instead."
        ),
        evidence=(
            source(
                "torch 2.13 _dynamo/utils.py is_parameter_freezing",
                "Dynamo reads the config while it traces, before options are applied.",
            ),
            measured(
                "compiler-facts-torch-2.13-cpu",
                (
                    "With freezing passed as an option, the compiled code used the doubled weight, so "
                    "nothing was frozen."
                ),
            ),
        ),
    ),
)
