"""Settings of TorchDynamo. Named as `torch/_dynamo/config.py` names them."""

from rocsolid.model.evidence import measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, Variable

_CONFIG = "torch 2.13 _dynamo/config.py"

SETTINGS = (
    Setting(
        owner=Owner.DYNAMO,
        name="recompile_limit",
        value_type=int,
        summary="How many compiled versions one function may have; past it Dynamo runs that function eagerly.",
        former_names=("cache_size_limit",),
        candidates=(8, 32, 128),
        recommendations=(
            Recommendation(
                profile="safe",
                value=8,
                why="Past eight versions something keeps changing; better to hear of it than to compile for ever.",
                evidence=(
                    source(f"{_CONFIG} recompile_limit", "Default 8 in 2.9 to 2.15; cache_size_limit is an alias."),
                    measured(
                        "compiler-facts-torch-2.13-cpu", "At the limit the function runs eagerly; nothing is evicted."
                    ),
                ),
            ),
        ),
        disagreement="Guides S0 and S4 say 128, S3 says 256, against recompilation loops. A higher limit allows more "
        "recompiles, it prevents none: mark the changing dimension as dynamic, or pad to buckets.",
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="accumulated_recompile_limit",
        value_type=int,
        summary="How many compiled versions one code object may have over all its instances.",
        former_names=("accumulated_cache_size_limit",),
        recommendations=(
            Recommendation(
                profile="safe",
                value=256,
                why="The default of every supported release; a ceiling against endless compiling.",
                evidence=(source(f"{_CONFIG} accumulated_recompile_limit", "Default 256."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="suppress_errors",
        value_type=bool,
        summary="When a compile fails, say nothing and run eagerly.",
        variable=Variable(name="TORCHDYNAMO_SUPPRESS_ERRORS", any_value_enables=True),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why="A model that silently runs eagerly looks like a slow compile.",
                evidence=(source(f"{_CONFIG} suppress_errors", "Falls back to eager on any backend error."),),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="A failed compile is hidden: the program runs eagerly and nobody is told.",
                evidence=(source(f"{_CONFIG} suppress_errors", "Falls back to eager on any backend error."),),
            ),
        ),
        notes="Any value of its variable but an empty one switches it on, 0 included.",
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="disable",
        value_type=bool,
        summary="Make torch.compile do nothing.",
        variable=Variable(name="TORCH_COMPILE_DISABLE"),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why="Who calls torch.compile wants it compiled.",
                evidence=(source(f"{_CONFIG} disable", "Off by default."),),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="torch.compile returns the function unchanged, everywhere in this process.",
                evidence=(source(f"{_CONFIG} disable", "Read when a function is wrapped."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="automatic_dynamic_shapes",
        value_type=bool,
        summary="When a size changes, compile once more with that size as a variable.",
        variable=Variable(name="TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES"),
        candidates=(True, False),
        hazards=(
            Hazard(
                value=False,
                severity=Severity.INFO,
                why="Every new size is a compile of its own, up to the recompile limit.",
                evidence=(source(f"{_CONFIG} automatic_dynamic_shapes", "Off: each size is specialised."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="fail_on_recompile_limit_hit",
        value_type=bool,
        summary="Raise an error when the recompile limit is reached, instead of running eagerly.",
        recommendations=(
            Recommendation(
                profile="debug",
                value=True,
                why="The silent fall to eager becomes an error with a stack.",
                evidence=(source(f"{_CONFIG} fail_on_recompile_limit_hit", "Raises FailOnRecompileLimitHit."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.DYNAMO,
        name="verbose",
        value_type=bool,
        summary="Full stack traces with every warning and error of the compiler.",
        variable=Variable(name="TORCHDYNAMO_VERBOSE"),
        recommendations=(
            Recommendation(
                profile="debug",
                value=True,
                why="The user's own line is in the long trace and not in the short one.",
                evidence=(source(f"{_CONFIG} verbose", "Prints full stack traces."),),
            ),
        ),
    ),
)
