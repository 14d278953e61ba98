# Every target works on a fresh clone: what is missing is installed first, into $(VENV).
# `make test PYTHON=python3.12` has an environment of its own, .venv-python3.12: two Pythons never meet in one.
VENV ?= .venv$(if $(filter command,$(origin PYTHON)),-$(notdir $(PYTHON)))
PYTHON ?= $(call first,python3.13 python3.12 python3.11 python3)
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The first of these interpreters that is here.
first = $(shell for p in $(1); do $$p -c 'import venv' 2>/dev/null && echo $$p && break; done)

# What the tests of an environment report, for tools/lanes_table.py; a second word keeps the lessons' report beside it.
report = --junit-xml=out/lanes/$$($(1)/bin/python tests/lanes.py --name)$(2).xml \
	-o "junit_suite_name=$$($(1)/bin/python tests/lanes.py)"

# The site: Sphinx and its like, without TensorFlow.
VENV_DOCS ?= .venv-docs
PYTHON_DOCS ?= $(call first,python3.11 python3.12 python3.13)
READY_DOCS := $(VENV_DOCS)/.ready
SITE := out/site/html

# All of them take some twenty minutes.
BROWSER_TESTS ?= tests/browser

# What VS Code shows widgets with; one file that needs no other package.
VSCODE := @vscode/jupyter-ipywidgets8@1.0.9

# What finds in a page what people can't read or reach: one file, too.
AXE := axe-core@4.14.1

# Most of a test's time is waiting, for a process to start or a deadline to pass: three files at a time on
# two cores; without those that train, two, and without nbval, which takes two seconds of each process to import.
THREE := -n 3 --dist loadfile
TWO := -n 2 --dist loadfile

# Many containers forbid it, and then each process of a test compiles what it imports anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo lab test test-lessons test-fast test-thorough test-browser test-cluster test-graders lint notebooks docs test-site reference translations wheel clean

help:  ## this list; campaigns that take hours: benchmarks/README.md
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / {printf "make %-14s %s\n", $$1, $$2}' Makefile

setup: $(READY)  ## install TensorFlow, JupyterLab and all other packages into .venv, about 2 GB

# The list under `pip:` in environment.yml, and nothing else: so each set-up proves that it suffices.
$(READY): environment.yml constraints/main.txt pyproject.toml
	@echo "dtk: installing TensorFlow, JupyterLab and the others into $(VENV), about 2 GB, once; it takes some minutes"
	$(PYTHON) -m venv $(VENV)
	sed -n 's/^ *- \([A-Za-z0-9._-]*==.*\)$$/\1/p' environment.yml > $(VENV)/requirements.txt
	$(BIN)/python -m pip install $(if $(CI),--quiet) --disable-pip-version-check -r $(VENV)/requirements.txt -c constraints/main.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(READY)

demo: $(READY)  ## train on two workers and on one device, prove that they agree, draw it
	$(BIN)/python -m dtk demo --out out

# In a container: make lab LAB_OPTIONS="--allow-root --ip=0.0.0.0"
lab: $(READY)  ## copy the lessons, without outputs, into my_lessons, and open them in JupyterLab
	$(BIN)/python -m dtk lab my_lessons -- $(LAB_OPTIONS)

test: $(READY)  ## run the tests, without slow ones
	$(BIN)/python -m pytest $(THREE) $(call report,$(VENV)) -p no:nbval tests dtk

test-lessons: $(READY)  ## run the lessons, without labs and appendices, and compare their outputs
	$(BIN)/python -m pytest $(THREE) $(call report,$(VENV),-lessons) --nbval notebooks/[0-9]*.ipynb notebooks/zh/00*.ipynb

test-fast: $(READY)  ## run the tests that need no TensorFlow, workers or kernels, in less than a minute
	$(BIN)/python -m pytest $(TWO) --fast -p no:nbval tests

test-thorough: $(READY)  ## run all tests, lessons, labs and appendices
	DTK_THOROUGH=1 $(BIN)/python -m pytest $(THREE) --nbval tests dtk notebooks

# JupyterLab, Notebook 7 and VS Code's program for widgets in Chromium, which is not installed from here: see
# tests/browser/conftest.py.
test-browser: $(VENV)/.browser  ## run the lessons, labs and widgets in Chromium; pictures in out/browser
	$(BIN)/python -m pytest -rs $(BROWSER_TESTS)

$(VENV)/.browser: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]' -c constraints/main.txt
	rm -rf $(VENV)/vscode && mkdir $(VENV)/vscode
	cd $(VENV)/vscode && npm pack --silent $(VSCODE) > /dev/null && tar -xzf vscode-jupyter-ipywidgets8-*.tgz \
		|| echo "dtk: VS Code's widgets can't be had by npm; their tests will be skipped"
	touch $(VENV)/.browser

# Workers on other machines: Ray's nodes, Slurm's (apt-get install slurm-wlm munge), hosts in network namespaces (root), which
# are nodes for an exported Job of Kubernetes, too. What is not there is skipped, and said.
test-cluster: $(VENV)/.cluster  ## run the tests with workers on other machines: Ray, Slurm, hosts
	DTK_THOROUGH=1 $(BIN)/python -m pytest -rs tests/cluster

$(VENV)/.cluster: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cluster]' -c constraints/main.txt
	touch $(VENV)/.cluster

# Real nbgrader and real Otter, each in an environment of its own above this one: they ask for other versions of some tools.
test-graders: .venv-nbgrader/.ready .venv-otter/.ready  ## run the tests with nbgrader and Otter
	DTK_THOROUGH=1 $(BIN)/python -m pytest -rs tests/graders

.venv-nbgrader/.ready: PACKAGE := nbgrader==0.9.6
.venv-otter/.ready: PACKAGE := otter-grader==7.0.0
.venv-%/.ready: $(READY)
	$(BIN)/python -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGE)
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" \
		> "$$(.venv-$*/bin/python -c 'import site; print(site.getsitepackages()[0])')/above.pth"
	touch $@

lint: $(READY)  ## check style, types, imports, dependencies, lengths and the lessons
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .ruff_cache/imports
	$(BIN)/deptry dtk
	$(BIN)/deptry tests tools benchmarks notebooks docs --ignore DEP002,DEP004
	$(BIN)/python tools/lint_code.py dtk tests tools benchmarks notebooks docs
	$(BIN)/python tools/lint_notebooks.py notebooks/*.ipynb notebooks/*/*.ipynb

notebooks: $(READY)  ## run every lesson and store its outputs; a second time changes nothing
	$(BIN)/python tools/notebooks.py notebooks/*.ipynb notebooks/*/*.ipynb

# To look at the site: python3 -m http.server -d out/site/html
docs: $(READY_DOCS)  ## build the site in out/site/html, in English and Chinese
	$(VENV_DOCS)/bin/python docs/build.py $(SITE)

$(READY_DOCS): constraints/docs.txt
	$(PYTHON_DOCS) -m venv $(VENV_DOCS)
	$(VENV_DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r constraints/docs.txt
	touch $@

test-site: docs $(VENV_DOCS)/axe/axe.min.js  ## test the site in Chromium: links, search, keyboard, axe-core; pictures in out/site/views
	$(VENV_DOCS)/bin/python -m pytest -rs --confcutdir tests/site tests/site

$(VENV_DOCS)/axe/axe.min.js: $(READY_DOCS)
	rm -rf $(@D) && mkdir $(@D)
	cd $(@D) && npm pack --silent $(AXE) > /dev/null && tar -xzf axe-core-*.tgz && cp package/axe.min.js . \
		|| echo "dtk: axe-core can't be had by npm; its tests will be skipped"

reference: $(READY)  ## write docs/reference from the docstrings of the public names
	$(BIN)/python tools/reference.py

# Other languages: new sentences into dtk/locale/*/LC_MESSAGES/dtk.po, to be translated there, and dtk.mo; new code and texts of
# the lessons into notebooks/zh. Says what is to be translated.
translations: $(READY)  ## update the catalogues and notebooks/zh, and report what is not translated
	$(BIN)/python tools/catalogues.py
	$(BIN)/python tools/translations.py

# dist/: the package, and what package indexes, GitHub, Binder and editors will make of it. Without TensorFlow, in an
# environment of its own; the tools are the group `wheel` in pyproject.toml.
WHEEL := .venv-wheel/bin
wheel: .venv-wheel/.ready  ## build the package in dist/ and check it
	rm -rf dist
	$(WHEEL)/validate-pyproject pyproject.toml
	$(WHEEL)/python -m build
	$(WHEEL)/twine check --strict dist/*
	$(WHEEL)/check-wheel-contents dist/*.whl
	$(WHEEL)/python -m pip install --quiet --no-deps --force-reinstall dist/*.whl
	$(WHEEL)/python tools/check_wheel.py dist/*.whl
	$(WHEEL)/repo-review .
	$(WHEEL)/zizmor --offline --quiet .
	$(WHEEL)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(WHEEL)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(WHEEL)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[0-9]*.yml
	$(WHEEL)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(WHEEL)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

# `--group` came with pip 25.1.
.venv-wheel/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-wheel
	$(WHEEL)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(WHEEL)/python -m pip install --quiet --group wheel
	touch $@

clean:  ## remove the environments and everything that was built
	rm -rf $(VENV) .venv-python3* .nox .venv-wheel .venv-nbgrader .venv-otter $(VENV_DOCS) out build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache
