# make demo | test | test-long | bench | release-run | docs: each from a bare clone; quick once .venv is there.
PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
DEV := .venv/installed-dev
RUN := .venv/installed
PACKAGES := .venv/packages/installed

.PHONY: install-matrix wheel demo test test-packages test-long bench release-run figures docs lint warm \
	warm-kernel warm-calls warm-runs clean

# Packages are installed without byte code: what is used is compiled, and kept, when it is.
demo: export PYTHONDONTWRITEBYTECODE :=
demo: $(RUN)
	$(BIN)/bankwise run quickstart > /dev/null  # its report prints the table
	$(BIN)/bankwise report "$$(ls -dt runs/quickstart-* | head -n 1)"
	@echo "bankwise is in $(BIN): source $(BIN)/activate"

# The suite starts the command hundreds of times: byte code is kept, whatever the environment says.
test test-long: export PYTHONDONTWRITEBYTECODE :=
test test-long: export BANKWISE_ONE_KERNEL := 1

# Kernels are compiled once, beside the linters, and not by every test worker at the same time.
test: $(DEV)
	$(MAKE) --no-print-directory --jobs 2 warm-kernel lint test-packages
	$(BIN)/python -m pytest -q -rs -m "not long" -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Packages of examples/packages are tested as installed, beside the environment: all other tests are without them.
test-packages: $(PACKAGES) warm
	PYTHONPATH=.venv/packages:. $(BIN)/python -m pytest -q -rs -m "not long" -p tests.conftest $(wildcard examples/packages/*/tests)

# Every case: all combinations, longer streams, 1,000 examples of each property.
test-long: $(DEV)
	@echo "make test-long: 46 minutes on two cores, 66 of CPU time"
	$(MAKE) --no-print-directory --jobs 2 warm-kernel lint test-packages
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -q -rs -n $(JOBS) --dist loadfile --no-loadscope-reorder

lint: $(DEV)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check --quiet .
	$(BIN)/python -m mypy

warm: warm-calls warm-runs

warm-kernel: $(DEV)
	@$(BIN)/bankwise memory mlu370-x4 --pattern sequential > /dev/null

warm-calls: warm-kernel
	@$(BIN)/python -c 'import bankwise; bankwise.open_device("mlu370-x4").drain()'

warm-runs: warm-kernel
	@$(BIN)/bankwise memory lpddr5-6400-x16 --pattern sequential > /dev/null
	@rm -rf .venv/warm
	@$(BIN)/bankwise run smoke --out .venv/warm > /dev/null \
		--set "policy=[paged, {name: paged, free_list: lifo}, {name: paged, free_list: sorted}]"

# A wheel with the kernels of channels in it, for x86-64-v3 and this Python, in dist/.
wheel: $(DEV)
	rm -rf hwmodel/kernels
	$(BIN)/bankwise new kernels --portable hwmodel/kernels
	$(BIN)/python -m build --wheel
	rm -rf hwmodel/kernels

bench: $(DEV)
	$(BIN)/python -m pytest -q tools/bench -o addopts=--import-mode=importlib --benchmark-only

# Every figure of README and docs, at one commit, into docs/release/results; then into the texts. Resumable: what is done is kept in runs/release.
# Request logs of measured servers are third-party data and do not ship; without them (BANKWISE_DATA) their cells are skipped.
release-run: $(RUN)
	@echo "make release-run: 135 CPU minutes for its own seed, some 25 for the papers under another; parts: python -m tools.release list"
	$(BIN)/python -m tools.release run
	$(BIN)/python -m tools.release second
	$(BIN)/python -m tools.figures write

# From docs/release/results into README.md and docs.
figures: $(RUN)
	$(BIN)/python -m tools.figures write

# The pages, the API and the reports of the release run as one static site in SITE.
SITE ?= .venv/site

docs: $(RUN)
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	$(BIN)/python -m tools.site_pages .venv/pages
	$(BIN)/python -m mkdocs build --quiet --strict --site-dir $(SITE)

.venv/bin/python:
	$(PYTHON) -m venv .venv

$(RUN): pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	@touch $@

$(DEV): pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[dev]"
	@touch $(RUN) $@

$(PACKAGES): $(DEV) $(shell find examples/packages -name '*.py' -o -name '*.toml')
	rm -rf .venv/packages
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --no-build-isolation --target .venv/packages \
		$(addprefix ./,$(dir $(wildcard examples/packages/*/pyproject.toml)))
	@touch $@

# Do wheel and sdist install and run in a new environment of each Python? Some minutes; needs an index. Its wheel, with
# the kernels of all these Pythons, is kept in dist/.
install-matrix: $(DEV)
	$(BIN)/python -m tools.install_matrix --wheel dist

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
