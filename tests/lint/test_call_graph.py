"""The call graph: which functions a compiled or captured region reaches, and with which confidence."""

from pathlib import Path
from textwrap import dedent

import pytest

from rocsolid.lint.check_file import may_match
from rocsolid.lint.options import Options
from rocsolid.lint.project import lint


def confidences(folder: Path, **files: str) -> dict[str, str]:
    """Functions with a finding about `.item()` or `.cpu()`, and the highest confidence of those findings."""
    for name, text in files.items():
        path = folder / f"{name.replace('_of_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    record = lint([folder], Options(confidence="anywhere", select=("SRC123", "SRC201")), jobs=1, cache=None)
    ranked: dict[str, str] = {}
    for order in ("anywhere", "reachable", "inside"):
        ranked |= {str(f.facts["function"]): order for f in record.findings if f.facts["confidence"] == order}
    return ranked


@pytest.mark.parametrize(
    "compiling",
    [
        "@torch.compile\ndef f(x): return x.item()",
        "@torch.compile(fullgraph=True)\ndef f(x): return x.item()",
        "@torch.compiler.compile\ndef f(x): return x.item()",
        "def f(x): return x.item()\ng = torch.compile(f)",
        "def f(x): return x.item()\ng = torch.compile(f, mode=mode)",
        "from torch import compile as fast\n@fast\ndef f(x): return x.item()",
        "import torch as t\n@t.compile\ndef f(x): return x.item()",
        "def f(x): return x.item()\ng = torch._dynamo.optimize()(f)\nh = torch.compile(f)",
        "import rocsolid as rs\ndef f(x): return x.item()\ng = rs.compile(f)",
        "def f(x): return x.item()\ng = torch.cuda.make_graphed_callables((f,), ((x,),))",
    ],
)
def test_finds_every_way_to_compile_or_capture(tmp_path: Path, compiling: str) -> None:
    assert confidences(tmp_path, m=f"import torch\n{compiling}\n") == {"f": "inside"}


def test_follows_calls_through_files_in_which_no_rule_can_match(tmp_path: Path) -> None:
    found = confidences(
        tmp_path,
        ops="def scale(x): return x.item()\ndef shift(x): return x.item()\n",
        between="from ops import scale\ndef middle(tensor): return scale(tensor)\n",
        net="import torch\nfrom between import middle\n@torch.compile\ndef step(x): return middle(x)\n",
        wrap="import torch\ndef fast(f): return torch.compile(f)\n",
        passing="from ops import shift\nfrom wrap import fast\ndef run(tensor): return shift(tensor)\nnet = fast(run)\n",
    )

    assert not any(may_match((tmp_path / file).read_bytes()) for file in ("between.py", "passing.py"))
    assert found == {"scale": "reachable", "shift": "reachable"}


def test_follows_imports_aliases_and_packages(tmp_path: Path) -> None:
    found = confidences(
        tmp_path,
        pkg_of___init__="from .ops import scale as exported\n",
        pkg_of_ops="def scale(x): return x.item()\ndef other(x): return x.item()\n",
        pkg_of_net="""
            import torch
            from . import ops
            from pkg import exported as renamed
            import pkg.ops as direct
            @torch.compile
            def step(x):
                return renamed(x)
        """,
    )

    assert found == {"scale": "reachable", "other": "anywhere"}


def test_resolves_methods_by_class(tmp_path: Path) -> None:
    found = confidences(
        tmp_path,
        m="""
            import torch
            class Base(torch.nn.Module):
                def helper(self, x): return x.item()
                def forward(self, x): return self.helper(x)
            class Child(Base):
                def __init__(self, inner: "Inner"):
                    self.inner = inner
                    self.layers = torch.nn.ModuleList([Layer() for _ in range(3)])
                def forward(self, x):
                    for number, layer in enumerate(self.layers):
                        x = layer(x)
                    x = self.layers[0](x)
                    return super().forward(self.inner(x))
                def unused(self, x): return x.item()
            class Layer(torch.nn.Module):
                def forward(self, x): return x.item()
            class Inner(torch.nn.Module):
                def __call__(self, x): return x.item()
            class Stranger(torch.nn.Module):
                def forward(self, x): return x.item()
            model = Child(Inner()).to("cuda").eval()
            fast = torch.compile(model)
        """,
    )

    assert found == {
        "Base.helper": "reachable",
        "Layer.forward": "reachable",
        "Inner.__call__": "reachable",
        "Child.unused": "anywhere",
        "Stranger.forward": "anywhere",
    }


def test_reports_the_chain_of_calls(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\ndef c(x): return x.item()\ndef b(x): return c(x)\n@torch.compile\ndef a(x): return b(x)\n"
    )
    (found,) = lint([tmp_path], Options(), jobs=1, cache=None).findings
    chain = found.facts["chain"]

    assert isinstance(chain, list)
    assert [step.partition(" ")[0] for step in chain] == ["a", "b", "c"]
    assert chain[-1].endswith("m.py:2)")
    assert found.severity.name == "WARNING"


def test_follows_module_compile_and_wrappers_of_the_project(tmp_path: Path) -> None:
    found = confidences(
        tmp_path,
        wrapping="""
            import torch
            def maybe_compile(fn):
                return torch.compile(fn)
            def capture(fn, x):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    fn(x)
        """,
        m="""
            import re
            import torch
            from wrapping import capture, maybe_compile
            @maybe_compile
            def f(x): return x.item()
            def g(x): return x.cpu()
            def h(x): return x.item()
            capture(g, x)
            class Net(torch.nn.Module):
                def forward(self, x): return x.item()
            net = Net()
            net.compile()
            pattern = re.compile(h)
        """,
    )

    assert found == {"f": "reachable", "g": "reachable", "Net.forward": "inside", "h": "anywhere"}


@pytest.mark.parametrize(
    "text",
    [
        "def train(model): fast = torch.compile(model)\ndef main():\n    model = Net()\n    train(model)",
        "def train(cfg, model): model.compile()\nmodel = Net().to('cuda').eval()\ntrain(1, model=model)",
        "def gen(model, x):\n    with torch.cuda.graph(g):\n        y = model(x)\ngen(Net(), 1)",
        "def train(model): torch.compile(model)\ndef run(model, n): train(model)\nrun(Net(), 3)",
        """
class Trainer:
    def __init__(self, model): self.model = model
    def fit(self): torch.compile(self.model)
Trainer(Net()).fit()""",
    ],
)
def test_follows_a_model_that_is_passed_as_an_argument(tmp_path: Path, text: str) -> None:
    net = "class Net(torch.nn.Module):\n    def forward(self, x): return x.item()"
    found = confidences(tmp_path, m=f"import torch\n{net}\n{text}\n")
    (finding, *_) = lint([tmp_path], Options(), jobs=1, cache=None).findings

    assert found == {"Net.forward": "reachable"}
    assert len(finding.facts["chain"]) > 1  # type: ignore[arg-type]


def test_a_parameter_that_gets_several_classes_is_not_followed(tmp_path: Path) -> None:
    found = confidences(
        tmp_path,
        m="""
            import torch
            class A(torch.nn.Module):
                def forward(self, x): return x.item()
            class B(torch.nn.Module):
                def forward(self, x): return x.item()
            def train(model): torch.compile(model)
            train(A())
            train(B())
        """,
    )

    assert found == {"A.forward": "anywhere", "B.forward": "anywhere"}


def test_code_that_is_not_traced_has_no_findings(tmp_path: Path) -> None:
    found = confidences(
        tmp_path,
        m="""
            import functools
            import torch
            @torch.library.custom_op("a::b", mutates_args=())
            def op(x): return x.item()
            @functools.lru_cache
            def cached(x): return x.item()
            def debug(x): return x.item()
            def late(x): return x.item()
            def either(x): return x.item()
            @torch.compile
            def step(x):
                op(x)
                cached(x)
                y = x if torch.compiler.is_compiling() else either(x)
                if not torch.compiler.is_compiling() and x is not None:
                    debug(x)
                if torch.compiler.is_compiling() or y is None:
                    return x
                return late(x)
        """,
    )

    assert found == {
        "op": "anywhere",
        "cached": "anywhere",
        "debug": "anywhere",
        "late": "anywhere",
        "either": "anywhere",
    }


def test_a_capture_includes_functions_that_are_not_traced(tmp_path: Path) -> None:
    """A custom operator is one node for the compiler; in a capture its body runs like any other code."""
    found = confidences(
        tmp_path,
        m="""
            import torch
            @torch.library.custom_op("a::b", mutates_args=())
            def op(x): return x.cpu()
            def capture(graph, x):
                with torch.cuda.graph(graph):
                    return op(x)
        """,
    )

    assert found == {"op": "reachable"}


def test_a_local_name_shadows_an_import(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import torch._dynamo.config as config\n"
        "def a(config):\n    config.nonsense = 1\n"
        "def b():\n    config = load()\n    config.nonsense = 1\n"
        "def c():\n    config.nonsense = 1\n"
    )
    record = lint([tmp_path], Options(select=("SRC106",)), jobs=1, cache=None)

    assert [f.facts["function"] for f in record.findings] == ["c"]
