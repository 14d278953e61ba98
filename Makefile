# Every target works on a fresh clone: what is missing is installed first, into $(VENV).
VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3; do $$p -c 'import venv' 2>/dev/null && echo $$p && break; done)
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo lab test lint bench notebooks clean

help:
	@echo "make setup | demo | lab | test | lint | bench | notebooks | clean"

setup: $(READY)

# The list under `pip:` in environment.yml, and nothing else: so each set-up proves that it suffices.
$(READY): environment.yml constraints/main.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	sed -n 's/^ *- \([A-Za-z0-9._-]*==.*\)$$/\1/p' environment.yml > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements.txt -c constraints/main.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(READY)

demo: $(READY)
	$(BIN)/python -m dtk demo --out out

lab: $(READY)
	$(BIN)/jupyter lab --notebook-dir=notebooks

test: $(READY)
	$(BIN)/python -m pytest --nbval tests dtk notebooks

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/bench.py --out out/bench.json

# Runs every lesson and stores its outputs; twice in a row gives no diff.
notebooks: $(READY)
	$(BIN)/python tools/notebooks.py notebooks/*.ipynb

clean:
	rm -rf $(VENV) out build *.egg-info .pytest_cache .mypy_cache .ruff_cache
