# Two commands: `make demo` shows what rocsolid does on this machine, `make test` runs all checks.
# Both create their own virtual environment and need Python with pip and a C++ compiler.

PYTHON ?= python3
ifndef STARTED
export STARTED := $(shell date +%s)
endif
VENV ?= .venv
BIN := $(VENV)/bin
# The CPU build is enough for both.
TORCH ?= torch==2.13.0
TRITON ?= triton==3.7.1

.PHONY: demo test matrix matrix-ends checks-and-slow-tests other-tests test-hip lint types contracts docs docs-serve generate tutorials unit fuzz browser clean

demo: $(VENV)/.demo
	@$(BIN)/python scripts/demo.py

# Two jobs for two cores, because most tests use one: the checks and these tests take about as long as all other tests.
SLOW_TESTS := tests/runtime/test_routes.py tests/runtime/capture/test_state_machine.py tests/runtime/capture/test_reached_state.py tests/optimize tests/observe tests/ops tests/probe tests/verify tests/tune tests/test_docs.py
# Bytecode is written first, because each of the many processes that the tests start would compile it again if it must not write it.
# With ROCSOLID_CI, as in CI, also a part of the tests with the oldest and the newest torch, in the time that the two jobs leave idle.
test: $(VENV)/.test browser
	@$(BIN)/python -m compileall -q src
	@$(MAKE) --no-print-directory --jobs=3 checks-and-slow-tests other-tests $(if $(ROCSOLID_CI),matrix-ends)

checks-and-slow-tests: lint types contracts docs
	$(BIN)/python -m pytest $(SLOW_TESTS)

# In a process of its own: with stacks, torch's profiler takes minutes to start where many modules and objects are loaded.
PROFILER_TESTS := tests/runtime/capture/test_annotation.py
# All of tests/programs takes many minutes; its README says how to run it. tests/test_docs.py runs the tutorials with the libraries.
PROGRAM_TESTS := tests/programs/test_optimized_programs.py tests/programs/test_generate.py tests/programs/test_comfyui.py -m ci
other-tests:
	$(BIN)/python -m pytest $(PROFILER_TESTS)
	$(BIN)/python -m pytest $(PROGRAM_TESTS)
	$(BIN)/python -m pytest $(addprefix --ignore=,$(SLOW_TESTS) $(PROFILER_TESTS) tests/programs)

# Every supported torch release in its own environment (5 to 8 GB each), one after the other; finished ones are skipped.
# One release: make test VENV=/tmp/torch-2.15 TORCH=torch==2.15.0 TRITON=triton==3.9.0
matrix:
	$(PYTHON) scripts/torch_matrix.py

# The tests of torchapi, runtime, observe, optimize and probe with the oldest and the newest release. Left out are long tests that run
# whole programs (routes, random programs, `rocsolid run`, dry runs, child processes that compile again): LEFT_OUT in the script.
# After 27 minutes from the start of `make`, what has not been run is listed. At a low priority, because other tests measure time.
matrix-ends:
	nice -n 10 $(PYTHON) scripts/torch_matrix.py --ends --deadline $$(( STARTED + 27 * 60 - $$(date +%s) ))

$(VENV)/.base: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

# torch first and alone, so that the resolver cannot replace it below.
$(VENV)/.torch: $(VENV)/.base
	$(BIN)/python -m pip install --quiet $(TORCH_INDEX) "$(TORCH)" numpy
	@touch $@

$(VENV)/.demo: $(VENV)/.torch
	$(BIN)/python -m pip install --quiet --editable ".[trace]"
	@touch $@

# Enough for scripts/torch_matrix.py --ends.
$(VENV)/.ends: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet "$(TRITON)" pytest hypothesis
	@touch $@

# They require another torch than ours, so they are installed without what they require.
PROGRAMS := accelerate peft
# lerobot needs a torchvision that fits to torch. It gets a folder that only tests/programs/import_torchvision.py uses: a wheel for CUDA
# cannot be imported next to torch for the CPU, and then no model of transformers can be.
ifeq ($(TORCH),torch==2.13.0)
PROGRAMS += lerobot==0.4.4
TORCHVISION := && $(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/torchvision torchvision==0.28.0
endif

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet "$(TRITON)"
	$(BIN)/python -m pip install --quiet --editable ".[all]" || { \
		echo "not every extra could be installed: the tests of the missing ones are skipped"; \
		$(BIN)/python -m pip install --quiet --editable ".[test,docs,trace,tune,diffusers]"; }
	{ $(BIN)/python -m pip install --quiet --editable ".[lerobot]" && \
		$(BIN)/python -m pip install --quiet --no-deps $(PROGRAMS) $(TORCHVISION); } || \
		echo "lerobot, accelerate or peft could not be installed: their tests are skipped"
	@touch $@

lint: $(VENV)/.test
	$(BIN)/ruff format --check src tests scripts benchmarks examples
	$(BIN)/ruff check src tests scripts benchmarks examples

types: $(VENV)/.test
	$(BIN)/mypy

contracts: $(VENV)/.test
	$(BIN)/lint-imports

unit: $(VENV)/.test browser
	$(BIN)/python -m pytest

# As written: tests/test_tutorials.py runs the tutorials.
docs: $(VENV)/.test
	$(BIN)/python scripts/gen_docs.py --check
	ROCSOLID_DOCS_AS_WRITTEN=1 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(VENV)/.test
	$(BIN)/mkdocs serve

# Mutate every kind of file and argument that rocsolid reads, for some minutes. A failing input is kept and named.
FUZZ_INPUTS ?= 100000
FUZZ_ARGUMENTS ?= 5000
FUZZ_SEED ?= 1
fuzz: $(VENV)/.test
	$(BIN)/python -m tests.hardening.fuzz --inputs $(FUZZ_INPUTS) --arguments $(FUZZ_ARGUMENTS) --seed $(FUZZ_SEED)
	$(BIN)/python -m tests.hardening.interrupts --points 200 --seed $(FUZZ_SEED)

# Write the pages that are generated from declarations.
generate: $(VENV)/.test
	$(BIN)/python scripts/gen_docs.py

# Run the tutorials and write the output of their commands into the pages.
tutorials: $(VENV)/.test
	$(BIN)/python scripts/tutorials.py

# Optional: runs against the real HIP runtimes, unpacked from Debian packages below .rocsolid/, with a fake GPU.
test-hip: $(VENV)/.test
	ROCSOLID_HIP=1 $(BIN)/python -m pytest tests/hip -rA --no-header

# Chromium opens the HTML reports in the tests. Where it cannot be installed, those tests are skipped.
browser:
	@command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || scripts/install-chromium.sh

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
