"""No C++ compiler is installed, and torch.compile needs one.

## What it does
Looks for the compiler that Inductor would call: `$CXX`, `g++`, `clang++`, `c++`.

## Why it matters
On the CPU, Inductor compiles C++. On a GPU, Triton compiles a small C launcher for every kernel. Slim container images
have no compiler, so the first call of a compiled function fails.

## Example
    FileNotFoundError: [Errno 2] No such file or directory: 'g++'

## Use instead
    apt-get install g++

## When to allow it
When nothing is compiled on this machine.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="SYS005",
    name="compiler-missing",
    severity=Severity.WARNING,
    message="No C++ compiler found (looked for $CXX, g++, clang++, c++)",
    why="The first call of a compiled function fails: Inductor compiles C++ code, and Triton compiles a launcher in C.",
    fix="apt-get install g++   (or set CXX to an installed compiler)",
    check="g++ --version",
    since="0.1",
    evidence=(source("torch 2.13 _inductor/cpp_builder.py get_cpp_compiler", "Calls the host's C++ compiler."),),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """No C++ compiler, although torch is installed."""
    if env.torch and not env.host.compiler:
        yield RULE.found("c++")
