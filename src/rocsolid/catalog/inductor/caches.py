"""Settings for compile caches and for debug output."""

from rocsolid.model.evidence import source
from rocsolid.model.finding import Severity
from rocsolid.model.setting import Channel, Hazard, Owner, Recommendation, Setting, Variable

_CONFIG = "torch 2.13 _inductor/config.py"

SETTINGS = (
    Setting(
        owner=Owner.INDUCTOR,
        name="fx_graph_cache",
        value_type=bool,
        summary="Store compiled graphs on disk and reuse them in the next process.",
        variable=Variable(name="TORCHINDUCTOR_FX_GRAPH_CACHE", overrides_config=True),
        recommendations=(
            Recommendation(
                profile="balanced",
                value=True,
                why="With the cache, the second start of a program skips the compile.",
                evidence=(
                    source(
                        f"{_CONFIG} fx_graph_cache", ("It is on by default; its variable overrides any assignment.")
                    ),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=False,
                severity=Severity.WARNING,
                why="Every start of every process compiles everything again.",
                evidence=(
                    source(f"{_CONFIG} fx_graph_cache", ("It turns the local cache of compiled graphs on or off.")),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="force_disable_caches",
        value_type=bool,
        summary="Disable every compile cache, local and remote.",
        variable=Variable(name="TORCHINDUCTOR_FORCE_DISABLE_CACHES", overrides_config=True),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why="With True, nothing is cached, so everything is compiled again after a crash.",
                evidence=(
                    source(
                        "torch 2.13 compiler/config.py force_disable_caches",
                        "Both of its variables override any assignment.",
                    ),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="Every start of every process compiles everything again.",
                evidence=(
                    source("torch 2.13 compiler/config.py force_disable_caches", ("It overrides all cache settings.")),
                ),
            ),
        ),
        via=Channel.SCOPE,
        notes=(
            "Since 2.9 this is an alias of the entry in torch.compiler.config. "
            "TORCH_COMPILE_FORCE_DISABLE_CACHES has the same effect."
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="trace.enabled",
        value_type=bool,
        summary="Write a folder with the graphs and the generated code of every compile.",
        variable=Variable(name="TORCH_COMPILE_DEBUG"),
        recommendations=(
            Recommendation(
                profile="debug",
                value=True,
                why="The generated code is saved next to the graphs it was made from.",
                evidence=(source(f"{_CONFIG} trace.enabled", "The files are written to torch_compile_debug/."),),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.INFO,
                why="Every compile writes a folder of files.",
                evidence=(source(f"{_CONFIG} trace.enabled", "The files are written to torch_compile_debug/."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="trace.debug_log",
        value_type=bool,
        summary="Save Inductor's debug log in the trace folder.",
        recommendations=(
            Recommendation(
                profile="debug",
                value=True,
                why="The log is saved next to the code it describes.",
                evidence=(source(f"{_CONFIG} trace.debug_log", "The log is saved in a file."),),
            ),
        ),
        notes="It does not print generated code; TORCH_LOGS=output_code does.",
    ),
)
