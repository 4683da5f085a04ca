"""Run as a program: lowers two-layer models for a pretended sm_90 with some graph passes, and writes the kernels of each.

The arguments are cases such as `bert:merged_projections,attention`. The result is JSON: a list of kernels by case, and one of the
products whose kernels Inductor would benchmark. With `combo_kernels` or another option of Inductor after a second colon, that is
switched on, too.
"""

import json
import sys
import tempfile
from pathlib import Path

from rocsolid.catalog.chips import DEFAULT_RELEASE, chip
from rocsolid.torchapi.pretend.device import build_stub_library, fake_mode, pretend_device

_VIEWS = ("joined_weights",)  # they launch nothing


def main(cases: list[str]) -> None:
    """Write the kernels of each case to stdout."""
    sm_90 = chip("sm_90")
    torch = pretend_device(sm_90, DEFAULT_RELEASE[sm_90.platform], build_stub_library(Path(tempfile.gettempdir())))
    from tests.optimize.small_models import two_layers

    from rocsolid.ops import joined_weights
    from rocsolid.optimize.graph_passes import pass_options
    from rocsolid.optimize.passes.merge_projections import SharedInputs
    from rocsolid.torchapi.inductor.lowering import record_lowering

    record = record_lowering(lambda _: None)
    found = {}
    vars(joined_weights)["_can_move"] = lambda _: True  # fake weights, too
    mode = fake_mode()
    for case in cases:
        kind, passes, *options = case.split(":")
        torch._dynamo.reset()
        record.graphs.clear()
        record.searches.clear()
        with mode, torch.no_grad():
            model, x = (part.bfloat16().cuda() for part in two_layers(kind))
            shared_inputs = SharedInputs()
            with shared_inputs.watch(model):
                model(x)
            shared_inputs.make_adjacent()
        chosen = pass_options({f"rocsolid.{name}": True for name in passes.split(",") if name})
        with torch.no_grad():  # outside the mode the passes can compute with numbers, as on a real GPU
            torch.compile(model, options={**chosen, **dict.fromkeys(options, True)} or None)(x)
        [graph] = record.graphs
        externs = [extern.name for extern in graph.externs]
        found[f"{case} searches"] = [f"{search.op} {search.shapes}" for search in record.searches if search.tuners]
        found[case] = [*(name for name, _ in graph.calls), *(x for x in externs if not any(v in x for v in _VIEWS))]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
