# Every target makes .venv itself, with pip; nothing is needed first but Python (3.11 to 3.13) and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH := torch==2.13.0
EXTRAS := nnsight,transformer-lens,tensorboard,llm,hf,ray,slurm,docs,notebooks
OUT ?= runs

# Tests start hundreds of processes; each compiles the whole source again where this is set (0.25 s of 1).
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test test-extras coverage lint bench soak audit docs release-check clean
.DEFAULT_GOAL := demo

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "make: expected Python 3.11 to 3.13, found $$($(PYTHON) --version); set PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(TORCH)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[fast,dev]'
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	$(PIP) install --quiet --constraint constraints.txt --editable '.[fast,dev,bench]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) install --quiet --constraint constraints.txt --editable '.[fast,dev,docs,notebooks]'
	@touch $@

# All that `make test-extras` and `make docs` need, in one call: pip looks at every package once, not once an extra.
$(VENV)/installed-extras: $(VENV)/installed
	$(PIP) install --quiet --constraint constraints.txt --editable '.[fast,dev,$(EXTRAS)]'
	@touch $(VENV)/installed-docs $@

# Four seeds learn to follow chains of three steps, and their circuits are read: within three minutes on two quiet cores.
demo: $(VENV)/installed
	$(BIN)/hopscope run emergence --out $(OUT)

# The heart of every room, in about two minutes.
quick: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak and not extras and not long" tests/circuits tests/claims tests/models tests/runs tests/tasks tests/theory tests/training

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak and not extras" --durations=40 --durations-min=5

test-extras: $(VENV)/installed-extras
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "extras and not soak"

coverage: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak" --cov --cov-report=term

lint: $(VENV)/installed
	$(BIN)/ruff check src tests benchmarks docs examples notebooks release
	$(BIN)/ruff format --check src tests benchmarks docs examples notebooks release
	$(BIN)/mypy

# The documentation as a site; a link that leads nowhere, or a page that the contents do not list, fails.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs/site -d build/doctrees . build/site
	@echo "build/site/index.html"

bench: $(VENV)/installed-bench
	$(BIN)/hopscope bench

soak: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m soak

# Known vulnerabilities of the installed packages, where their lists can be reached.
audit: $(VENV)/installed
	@$(PYTHON) -m venv $(VENV)/audit
	@if ! $(VENV)/audit/bin/python -m pip --disable-pip-version-check install --quiet pip-audit; then \
	  echo "audit: skipped, pip-audit cannot be installed from here"; exit 0; fi; \
	site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	$(VENV)/audit/bin/pip-audit --path "$$site" --progress-spinner off > $(VENV)/audit/found.txt 2> $(VENV)/audit/said.txt; \
	status=$$?; cat $(VENV)/audit/found.txt; \
	if grep -qiE 'connection|timed out|resolve|proxy|HTTPError|service ?error' $(VENV)/audit/said.txt; then \
	  echo "audit: skipped, the lists of vulnerabilities cannot be reached: $$(tail -n 1 $(VENV)/audit/said.txt)"; exit 0; fi; \
	tail -n 1 $(VENV)/audit/said.txt; exit $$status

# Builds wheel and source distribution, and uses the wheel where nothing of this folder is; CHECK=--lowest: oldest dependencies.
release-check:
	$(PYTHON) release/check.py --torch $(TORCH) $(CHECK)

clean:
	rm -rf $(VENV) build dist src/*.egg-info
