"""Settings of TorchDynamo, named as in `torch/_dynamo/config.py`."""

from rocsolid.model.evidence import measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.release import span
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, Variable

_CONFIG = "torch 2.13 _dynamo/config.py"

SETTINGS = (
    Setting(
        owner=Owner.DYNAMO,
        name="recompile_limit",
        value_type=int,
        summary=("How many compiled versions one function may have; beyond that, Dynamo runs the function in eager."),
        former_names=("cache_size_limit",),
        candidates=(8, 32, 128),
        recommendations=(
            Recommendation(
                profile="safe",
                value=8,
                why=(
                    "A function that needs more than eight versions has an input that changes all the "
                    "time. With a higher limit it would only be compiled more often."
                ),
                evidence=(
                    source(
                        f"{_CONFIG} recompile_limit", ("The default is 8 in 2.9 to 2.15; cache_size_limit is an alias.")
                    ),
                    measured(
                        "compiler-facts-torch-2.13-cpu",
                        ("At the limit, new inputs run in eager; compiled versions are kept."),
                    ),
                ),
            ),
        ),
        disagreement=(
            "Public ROCm guides raise it to stop recompile loops: the overview guide and the Docker defaults "
            "guide to 128, the Inductor config guide to 256. A higher limit allows more recompiles and "
            "prevents none. Mark the changing dimension as dynamic, or pad to buckets."
        ),
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="accumulated_recompile_limit",
        value_type=int,
        summary=("How many compiled versions one function may have in total, over all module instances that use it."),
        former_names=("accumulated_cache_size_limit",),
        recommendations=(
            Recommendation(
                profile="safe",
                value=256,
                why="256 is the default in every supported release; it ends endless recompiling.",
                evidence=(source(f"{_CONFIG} accumulated_recompile_limit", "The default is 256."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="suppress_errors",
        value_type=bool,
        summary="If a compile fails, run in eager without an error.",
        variable=Variable(name="TORCHDYNAMO_SUPPRESS_ERRORS", any_value_enables=True),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why=(
                    "With True, a model runs in eager without a message if its compile fails. It then "
                    "looks like a slow compiled model."
                ),
                evidence=(
                    source(
                        f"{_CONFIG} suppress_errors",
                        ("With True, the function runs in eager after any error of the backend."),
                    ),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="A failed compile is hidden: the program runs in eager without a message.",
                evidence=(
                    source(
                        f"{_CONFIG} suppress_errors",
                        ("With True, the function runs in eager after any error of the backend."),
                    ),
                ),
            ),
        ),
        notes="Any non-empty value of its variable turns it on, even 0.",
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="disable",
        value_type=bool,
        summary="Make torch.compile return functions unchanged.",
        variable=Variable(name="TORCH_COMPILE_DISABLE"),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why="With True, torch.compile returns every function unchanged: nothing is compiled.",
                evidence=(source(f"{_CONFIG} disable", "It is off by default."),),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="torch.compile returns every function unchanged in this process: nothing is compiled.",
                evidence=(source(f"{_CONFIG} disable", "It is read when torch.compile is called."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="automatic_dynamic_shapes",
        value_type=bool,
        summary=(
            "If a tensor size changes, compile once more with that size as a symbol, so that "
            "further sizes need no compile."
        ),
        variable=Variable(name="TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES", torch=span("2.11..")),
        candidates=(True, False),
        hazards=(
            Hazard(
                value=False,
                severity=Severity.INFO,
                why="Every new size causes another compile, up to the recompile limit.",
                evidence=(
                    source(f"{_CONFIG} automatic_dynamic_shapes", ("With False, each size is compiled separately.")),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="fail_on_recompile_limit_hit",
        value_type=bool,
        summary="Raise an error at the recompile limit instead of running in eager.",
        recommendations=(
            Recommendation(
                profile="debug",
                value=True,
                why=(
                    "The recompile limit then raises an error with a stack trace instead of a silent fallback to eager."
                ),
                evidence=(
                    source(f"{_CONFIG} fail_on_recompile_limit_hit", ("With True, FailOnRecompileLimitHit is raised.")),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="verbose",
        value_type=bool,
        summary="Print full stack traces with every warning and error of the compiler.",
        variable=Variable(name="TORCHDYNAMO_VERBOSE"),
        recommendations=(
            Recommendation(
                profile="debug",
                value=True,
                why="Only the full stack trace contains the line of your own code.",
                evidence=(source(f"{_CONFIG} verbose", "With True, full stack traces are printed."),),
            ),
        ),
    ),
)
