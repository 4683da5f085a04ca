# Two commands: `make demo` shows what rocsolid does on this machine, `make test` proves that it works.
# Both make their own virtual environment and need nothing but Python with pip and a C++ compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The CPU build is enough for both, and a fresh machine has no torch of its own to protect.
TORCH ?= torch==2.13.0
TRITON ?= triton==3.7.1

.PHONY: demo test beside rest test-hip lint types contracts docs docs-serve generate tutorials unit browser clean

demo: $(VENV)/.demo
	@$(BIN)/python scripts/demo.py

# Two lanes for two cores, since most tests need one: the checks with these tests take about as long as all the others.
BESIDE := tests/runtime/test_routes.py tests/optimize tests/observe tests/ops tests/probe tests/test_docs.py
test: $(VENV)/.test browser
	@$(MAKE) --no-print-directory --jobs=2 beside rest

beside: lint types contracts docs
	$(BIN)/python -m pytest $(BESIDE)

rest:
	$(BIN)/python -m pytest $(addprefix --ignore=,$(BESIDE))


$(VENV)/.base: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

# torch first and alone, so that nothing below can ask the resolver for another one.
$(VENV)/.torch: $(VENV)/.base
	$(BIN)/python -m pip install --quiet "$(TORCH)" numpy
	@touch $@

$(VENV)/.demo: $(VENV)/.torch
	$(BIN)/python -m pip install --quiet --editable ".[tune]"
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet "$(TRITON)"
	$(BIN)/python -m pip install --quiet --editable ".[all]" || { \
		echo "not every extra could be installed: tests of the others will be skipped"; \
		$(BIN)/python -m pip install --quiet --editable ".[test,docs,trace,tune]"; }
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

docs: $(VENV)/.test
	$(BIN)/python scripts/gen_docs.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(VENV)/.test
	$(BIN)/mkdocs serve

# Writes the pages that are made from declarations.
generate: $(VENV)/.test
	$(BIN)/python scripts/gen_docs.py

# Runs the tutorials, and writes what their commands print into their pages.
tutorials: $(VENV)/.test
	$(BIN)/python scripts/tutorials.py

# Opt-in: asks the real HIP runtimes, unpacked from Debian's packages below .rocsolid/, on a model of a chip.
test-hip: $(VENV)/.test
	ROCSOLID_HIP=1 $(BIN)/python -m pytest tests/hip -rA --no-header

# Chromium opens the HTML reports in the tests. Where it may not be installed, those tests are skipped and say so.
browser:
	@command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || scripts/install-chromium.sh

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
