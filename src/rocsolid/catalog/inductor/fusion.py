"""Settings for fusion, reordering, padding and rounding."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, Variable, on

_CONFIG = "torch 2.13 _inductor/config.py"
_H200_RUN = "settings-on-h200"
_SECOND_H200_RUN = "settings-again-on-h200"

SETTINGS = (
    Setting(
        owner=Owner.INDUCTOR,
        name="epilogue_fusion",
        value_type=bool,
        summary="Fuse pointwise operations into the end of matmul templates.",
        candidates=(True, False),
        recommendations=(
            Recommendation(
                profile="balanced",
                value=True,
                why="True is the default in every release; with False, nothing became faster.",
                evidence=(
                    measured(
                        _SECOND_H200_RUN,
                        ("With False, the times of T5 encoder and GPT-2 changed by less than the noise of the run."),
                    ),
                ),
            ),
        ),
        notes=(
            "It applies only to matmuls that use a Triton, CUTLASS or C++ template, not to those that "
            "call the BLAS library."
        ),
        evidence=(source(f"{_CONFIG} epilogue_fusion", "It is on by default and has no environment variable."),),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="pattern_matcher",
        value_type=bool,
        summary="Recognise known patterns, such as attention, and replace them with better operators.",
        recommendations=(
            Recommendation(
                profile="balanced",
                value=True,
                why="True is the default in every release; with False, nothing became faster.",
                evidence=(
                    measured(
                        _SECOND_H200_RUN,
                        ("With False, the times of T5 encoder and GPT-2 changed by less than the noise of the run."),
                    ),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="reorder_for_locality",
        value_type=bool,
        summary="Move operations next to the ones that use their results.",
        candidates=(True, False),
        recommendations=(
            Recommendation(
                profile="balanced",
                value=True,
                why="True is the default in every release; with False, nothing became faster.",
                evidence=(measured(_H200_RUN, "GPT-2: 0.567 ms with False, 0.566 ms with True."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="aggressive_fusion",
        value_type=bool,
        summary="Fuse pointwise kernels even if they share no input.",
        candidates=(False, True),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why="False is the default in every release; with True, none of three models became faster.",
                evidence=(
                    measured(_H200_RUN, "With True, the speed of ResNet-50 did not change."),
                    measured(
                        _SECOND_H200_RUN,
                        ("With True, the times of T5 encoder and GPT-2 changed by less than the noise of the run."),
                    ),
                ),
            ),
        ),
        disagreement=(
            "Public ROCm guides disagree: the Inductor config guide turns it on, the overview guide turns it "
            "off. We recommend off, the upstream default: turning it on made none of three public models "
            "faster. `rocsolid tune` can try it on your model."
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="group_fusion",
        value_type=bool,
        summary="It has no effect; upstream marks it as deprecated.",
        no_effect="No code reads it in any release from 2.4 to 2.15.",
        evidence=(
            source(f"{_CONFIG} group_fusion", ("A comment marks it as deprecated; no code in ten releases reads it.")),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="max_fusion_size",
        value_type=int,
        summary="The largest number of nodes fused into one kernel.",
        candidates=(64, 128),
        notes=(
            "A public ROCm guide (Inductor config guide) raises it to 128. This did not change the "
            "speed of three public models."
        ),
        evidence=(
            measured(
                _H200_RUN,
                (
                    "With 128, the times of ResNet-50, GPT-2 and T5 stayed within 2 % of "
                    "the default, which is the noise of the run."
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="combo_kernels",
        value_type=bool,
        summary="Combine kernels that do not depend on each other into one launch (experimental).",
        candidates=(False, True),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why="With True, one model took twice as long, and wrong results were reported on ROCm.",
                evidence=(
                    measured(_H200_RUN, "ResNet-50: 0.902 ms with True, 0.409 ms with False."),
                    issue("pytorch/pytorch#168937", "Reports wrong results with combo kernels on ROCm."),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="Wrong results were reported on ROCm, and ResNet-50 ran at half its speed on CUDA.",
                evidence=(
                    issue("pytorch/pytorch#168937", "Reports wrong results with combo kernels on ROCm."),
                    measured(_H200_RUN, "ResNet-50: 0.902 ms with True, 0.409 ms with False."),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="shape_padding",
        value_type=bool,
        summary="Pad matmul operands to shapes that suit the matrix units, if a quick benchmark shows a gain.",
        variable=Variable(name="TORCHINDUCTOR_SHAPE_PADDING"),
        candidates=(True, False),
        notes=("It is on by default in every release, so setting it to True, as a guide does, changes nothing."),
        evidence=(measured(_H200_RUN, "With False, the speed of GPT-2 and T5 did not change."),),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="layout_optimization",
        value_type=bool,
        summary="Run convolutions in channels-last layout.",
        variable=Variable(name="TORCHINDUCTOR_LAYOUT_OPTIMIZATION"),
        candidates=(True, False),
        notes="One of the few settings whose default depends on the platform: it is off on ROCm.",
        evidence=(source(f"{_CONFIG} layout_opt_default", "The default is off in builds for HIP."),),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="emulate_precision_casts",
        value_type=bool,
        summary="Keep the rounding between fused low-precision operators, as eager does.",
        variable=Variable(name="TORCHINDUCTOR_EMULATE_PRECISION_CASTS"),
        candidates=(False, True),
        notes=(
            "Turn it on for models whose bf16 results differ too much from eager under "
            "torch.compile. It makes them slower."
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="triton.mix_order_reduction",
        value_type=bool,
        summary=(
            "Compute two reductions over different dimensions of one tensor in one kernel, as in the backward "
            "pass of a norm layer."
        ),
        variable=Variable(name="TORCHINDUCTOR_MIX_ORDER_REDUCTION"),
        candidates=(True, False),
        valid=on(torch="2.10.."),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why="With True, part of a gradient is lost if the scale and shift of a normalization are slices of one parameter.",
                evidence=(
                    issue(
                        "pytorch/pytorch#193061",
                        "Silently wrong gradients, bisected to 2.10; the maintainers name this setting as the workaround.",
                    ),
                    issue("pytorch/pytorch#193103", "The fix, included in 2.15."),
                ),
                when=on(torch="2.10..2.14"),
            ),
        ),
    ),
)
