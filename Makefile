# Every target works on a fresh clone: what is missing is installed first, into $(VENV).
# `make test PYTHON=python3.12` has an environment of its own, .venv-python3.12: two Pythons never meet in one.
VENV ?= .venv$(if $(filter command,$(origin PYTHON)),-$(notdir $(PYTHON)))
PYTHON ?= $(call first,python3.13 python3.12 python3.11 python3)
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The first of these interpreters that is here.
first = $(shell for p in $(1); do $$p -c 'import venv' 2>/dev/null && echo $$p && break; done)

# The other lanes, each an environment of its own: docs/guide/versions.md. TensorFlow 2.15 has wheels up to Python 3.11, Colab has
# 3.13, and the floors of pyproject.toml are those of 3.12 and later.
VENV_TF215 ?= .venv-tf215
PYTHON_TF215 ?= python3.11
VENV_COLAB ?= .venv-colab
PYTHON_COLAB ?= python3.13
VENV_LOWEST ?= .venv-lowest
PYTHON_LOWEST ?= $(call first,python3.13 python3.12)
VENV_CANARY ?= .venv-canary
PYTHON_CANARY ?= $(call first,python3.14 python3.13 python3.12 python3.11)
READY_TF215 := $(VENV_TF215)/.ready
READY_COLAB := $(VENV_COLAB)/.ready
READY_LOWEST := $(VENV_LOWEST)/.ready
READY_CANARY := $(VENV_CANARY)/.ready

# What the tests of an environment report, for tools/lanes_table.py; a second word keeps the lessons' report beside it.
report = --junit-xml=out/lanes/$$($(1)/bin/python tests/lanes.py --name)$(2).xml \
	-o "junit_suite_name=$$($(1)/bin/python tests/lanes.py)"
PIP := -m pip install --quiet --disable-pip-version-check
uv = $(1)/bin/uv pip $(2) --quiet --python $(1)/bin/python

# The site: Sphinx and its like, without TensorFlow.
VENV_DOCS ?= .venv-docs
PYTHON_DOCS ?= $(shell for p in python3.11 python3.12 python3.13; do $$p -c 'import venv' 2>/dev/null && echo $$p && break; done)
READY_DOCS := $(VENV_DOCS)/.ready
SITE := out/site/html

# All of them take some twenty minutes.
BROWSER_TESTS ?= tests/browser

# What VS Code shows widgets with; one file that needs no other package.
VSCODE := @vscode/jupyter-ipywidgets8@1.0.9

# What finds in a page what people can't read or reach: one file, too.
AXE := axe-core@4.14.1

# Most of a test's time is waiting, for a process to start or a deadline to pass: three files at a time on
# two cores; without those that train, two.
THREE := -n 3 --dist loadfile
TWO := -n 2 --dist loadfile

.PHONY: help setup demo lab test test-fast test-thorough test-gallery test-fuzz chaos campaign confusion look-alikes flakes texts test-browser test-lanes test-cluster test-graders coverage lint bench notebooks slides docs test-site site-links reference translations wheel setup-tf215 test-tf215 setup-colab test-colab setup-lowest test-lowest setup-canary test-canary lanes-table colab-versions clean

help:
	@echo "make setup | demo | lab | test | test-fast | test-thorough | test-gallery | test-fuzz | chaos | campaign | confusion | look-alikes | flakes | texts | test-browser | test-lanes | test-cluster | test-graders | coverage | lint | bench | notebooks | slides | docs | test-site | site-links | reference | translations | wheel | setup-tf215 | test-tf215 | setup-colab | test-colab | setup-lowest | test-lowest | setup-canary | test-canary | lanes-table | colab-versions | clean"

setup: $(READY)

# The list under `pip:` in environment.yml, and nothing else: so each set-up proves that it suffices.
$(READY): environment.yml constraints/main.txt pyproject.toml
	@echo "dtk: installing TensorFlow, JupyterLab and the others into $(VENV), about 2 GB, once; it takes some minutes"
	$(PYTHON) -m venv $(VENV)
	sed -n 's/^ *- \([A-Za-z0-9._-]*==.*\)$$/\1/p' environment.yml > $(VENV)/requirements.txt
	$(BIN)/python -m pip install $(if $(CI),--quiet) --disable-pip-version-check -r $(VENV)/requirements.txt -c constraints/main.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(READY)

demo: $(READY)
	$(BIN)/python -m dtk demo --out out

# In a container: make lab LAB_OPTIONS="--allow-root --ip=0.0.0.0"
lab: $(READY)
	$(BIN)/jupyter lab --notebook-dir=notebooks $(LAB_OPTIONS)

test: $(READY)
	$(BIN)/python -m pytest $(THREE) $(call report,$(VENV)) --nbval tests dtk notebooks/[0-9]*.ipynb notebooks/zh/0[02]*.ipynb

# For every edit: without TensorFlow, workers and kernels, in less than a minute.
test-fast: $(READY)
	$(BIN)/python -m pytest $(TWO) --fast tests

# Those marked `slow`, labs and appendices too, which `make test` leaves out.
test-thorough: $(READY)
	DTK_THOROUGH=1 $(BIN)/python -m pytest $(THREE) --nbval tests dtk notebooks

# Every program of tests/gallery gets its right answer, and recording changes no bit of it.
test-gallery: $(READY)
	$(BIN)/python -m pytest tests/test_gallery.py

# make test-fuzz CASES=20 SEED=3: other random programs, and not as many. What came of each goes to out/fuzz.jsonl.
CASES ?= 500
SEED ?= 0
test-fuzz: $(READY)
	CASES=$(CASES) SEED=$(SEED) $(BIN)/python -m pytest tests/test_fuzz.py

# make chaos SEQUENCES=20 SEED=3: other sequences, and not as many. Made-up machines first, a hundred times as many, then
# real kernels whose runs fail, stall, are interrupted and start again; a line each, with the seed that plays it again.
SEQUENCES ?= 200
chaos: $(READY)
	SEQUENCES=$$((100 * $(SEQUENCES))) SEED=$(SEED) $(BIN)/python -m pytest tests/test_chaos.py
	$(BIN)/python benchmarks/chaos.py --sequences $(SEQUENCES) --seed $(SEED)

# A cluster that stays under random mishaps, ten to a cluster: usable afterwards, by which repair, after how many seconds.
MISHAPS ?= 300
campaign: $(READY)
	$(BIN)/python benchmarks/cluster_campaign.py --trials $(MISHAPS) --seed $(SEED)

# Every program with every mistake that fits into it, and the page about it. Interrupted, it goes on where it was.
confusion: $(READY)
	$(BIN)/python benchmarks/confusion.py --out out/confusion.json --docs docs/explanation/gallery.md

# What really happens against what dtk says, 30 trials a row, four hours on two cores, and the page about it. Interrupted, it
# goes on where it was; in pieces: make look-alikes TRIALS=5
TRIALS ?= 30
look-alikes: $(READY)
	$(BIN)/python benchmarks/look_alikes.py --trials $(TRIALS) --seed $(SEED) --out out/look_alikes.jsonl \
		--docs docs/explanation/look_alikes.md

# Which tests fail now and then: each that starts processes, TIMES times beside LOAD busy processes; in out/flakes.jsonl.
TIMES ?= 50
LOAD ?= 2
MINUTES ?= 60
flakes: $(READY)
	$(BIN)/python benchmarks/flakes.py --times $(TIMES) --load $(LOAD) --minutes $(MINUTES) --seed $(SEED)

# What TensorFlow and Keras say of a mistake, or of a lost worker, in each lane: tests/texts. For a new TensorFlow.
texts: $(READY) $(READY_COLAB) $(READY_TF215)
	for venv in $(VENV) $(VENV_COLAB) $(VENV_TF215); do $$venv/bin/python tools/error_texts.py || exit 1; done

# JupyterLab, Notebook 7 and VS Code's program for widgets in Chromium, which is not installed from here: see
# tests/browser/conftest.py.
test-browser: $(VENV)/.browser
	$(BIN)/python -m pytest -rs $(BROWSER_TESTS)

$(VENV)/.browser: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]' -c constraints/main.txt
	rm -rf $(VENV)/vscode && mkdir $(VENV)/vscode
	cd $(VENV)/vscode && npm pack --silent $(VSCODE) > /dev/null && tar -xzf vscode-jupyter-ipywidgets8-*.tgz \
		|| echo "dtk: VS Code's widgets can't be had by npm; their tests will be skipped"
	touch $(VENV)/.browser

# Workers on other machines: Ray's nodes, Slurm's (apt-get install slurm-wlm munge), hosts in network namespaces (root), which
# are nodes for an exported Job of Kubernetes, too. What is not there is skipped, and said.
test-cluster: $(VENV)/.cluster
	DTK_THOROUGH=1 $(BIN)/python -m pytest -rs tests/cluster

$(VENV)/.cluster: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cluster]' -c constraints/main.txt
	touch $(VENV)/.cluster

# Real nbgrader and real Otter, each in an environment of its own above this one: they ask for other versions of some tools.
test-graders: .venv-nbgrader/.ready .venv-otter/.ready
	DTK_THOROUGH=1 $(BIN)/python -m pytest -rs tests/graders

.venv-nbgrader/.ready: PACKAGE := nbgrader==0.9.6
.venv-otter/.ready: PACKAGE := otter-grader==7.0.0
.venv-%/.ready: $(READY)
	$(BIN)/python -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGE)
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" \
		> "$$(.venv-$*/bin/python -c 'import site; print(site.getsitepackages()[0])')/above.pth"
	touch $@

# Which lines of dtk/ the tests run, in workers too. A part of them: make coverage COVERED=tests/test_verify.py
COVERED ?= --nbval tests dtk notebooks
coverage: $(READY)
	rm -rf out/coverage
	mkdir -p out/coverage
	PYTHONPATH=$(CURDIR)/tools:$$PYTHONPATH $(BIN)/python -m coverage run -m pytest $(COVERED); status=$$?; \
		PYTHONPATH=tools $(BIN)/python -m coverage combine --quiet && \
		PYTHONPATH=tools $(BIN)/python -m coverage report && exit $$status

# ruff, types, who imports whom, what is imported and listed, lengths, the lessons.
lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .ruff_cache/imports
	$(BIN)/deptry dtk
	$(BIN)/deptry tests tools benchmarks notebooks docs --ignore DEP002,DEP004
	$(BIN)/python tools/lint_code.py dtk tests tools benchmarks notebooks docs
	$(BIN)/python tools/lint_notebooks.py notebooks/*.ipynb notebooks/*/*.ipynb

bench: $(READY)
	$(BIN)/python benchmarks/bench.py --out out/bench.json
	$(BIN)/python benchmarks/prediction.py

# Runs every lesson and stores its outputs; twice in a row gives no diff.
notebooks: $(READY)
	$(BIN)/python tools/notebooks.py notebooks/*.ipynb notebooks/*/*.ipynb

# A talk of each lesson, in out/slides: docs/teaching/slides.md.
slides: $(READY)
	$(BIN)/jupyter nbconvert --to slides --SlidesExporter.reveal_width=1600 --SlidesExporter.reveal_height=1050 \
		--output-dir out/slides notebooks/[0-9]*.ipynb

# The site, in out/site/html; to look at it: python3 -m http.server -d out/site/html
docs: $(READY_DOCS)
	$(VENV_DOCS)/bin/python docs/build.py $(SITE)

$(READY_DOCS): constraints/docs.txt
	$(PYTHON_DOCS) -m venv $(VENV_DOCS)
	$(VENV_DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r constraints/docs.txt
	touch $@

# The site in Chromium: links, search, keyboard, what axe finds, screenshots, all kept in out/site.
test-site: docs $(VENV_DOCS)/axe/axe.min.js
	$(VENV_DOCS)/bin/python -m pytest -rs --confcutdir tests/site tests/site

$(VENV_DOCS)/axe/axe.min.js: $(READY_DOCS)
	rm -rf $(@D) && mkdir $(@D)
	cd $(@D) && npm pack --silent $(AXE) > /dev/null && tar -xzf axe-core-*.tgz && cp package/axe.min.js . \
		|| echo "dtk: axe-core can't be had by npm; its tests will be skipped"

# The addresses of other sites that pages link to: are they there? Needs a network; every night, not with each change.
site-links: docs
	$(VENV_DOCS)/bin/python docs/build.py --outside $(SITE)

# docs/reference, from the docstrings of the public names.
reference: $(READY)
	$(BIN)/python tools/reference.py

# Other languages: new sentences into dtk/locale/*/LC_MESSAGES/dtk.po, to be translated there, and dtk.mo; new code and texts of
# the lessons into notebooks/zh. Says what is to be translated.
translations: $(READY)
	$(BIN)/python tools/catalogues.py
	$(BIN)/python tools/translations.py

# dist/: the package, and what package indexes, GitHub, Binder and editors will make of it. Without TensorFlow, in an
# environment of its own; the tools are the group `wheel` in pyproject.toml.
WHEEL := .venv-wheel/bin
wheel: .venv-wheel/.ready
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

setup-tf215: $(READY_TF215)
setup-colab: $(READY_COLAB)
setup-lowest: $(READY_LOWEST)
setup-canary: $(READY_CANARY)

$(READY_TF215): constraints/tf215.txt pyproject.toml
	$(PYTHON_TF215) -m venv $(VENV_TF215)
	$(VENV_TF215)/bin/python $(PIP) -c constraints/tf215.txt --editable '.[test,lab]'
	touch $@

# Without JupyterLab, which Colab has not.
$(READY_COLAB): constraints/colab.txt pyproject.toml
	$(PYTHON_COLAB) -m venv $(VENV_COLAB)
	$(VENV_COLAB)/bin/python $(PIP) -c constraints/colab.txt --editable '.[test,estimator,tensorboard]'
	touch $@

# What users install, each at its floor; then the tools, which leave it as it is. TensorFlow 2.20 can't write a graph with
# protobuf 7, and does not say so to pip.
$(READY_LOWEST): pyproject.toml
	rm -rf $(VENV_LOWEST)
	$(PYTHON_LOWEST) -m venv $(VENV_LOWEST)
	$(VENV_LOWEST)/bin/python $(PIP) uv
	echo 'protobuf<7' > $(VENV_LOWEST)/known.txt
	$(call uv,$(VENV_LOWEST),install) --resolution lowest-direct --constraint $(VENV_LOWEST)/known.txt --editable '.[lab]'
	$(call uv,$(VENV_LOWEST),freeze) --exclude-editable > $(VENV_LOWEST)/floors.txt
	$(call uv,$(VENV_LOWEST),install) --constraint $(VENV_LOWEST)/floors.txt --editable '.[test,lab]'
	touch $@

# The newest TensorFlow and Keras, candidates too; nothing else before its release. tf_keras comes after TensorFlow and asks
# for its own: it is taken as it is. A candidate of TensorFlow asks for keras-nightly, whose files are keras's too: left out.
$(READY_CANARY): pyproject.toml
	rm -rf $(VENV_CANARY)
	$(PYTHON_CANARY) -m venv $(VENV_CANARY)
	$(VENV_CANARY)/bin/python $(PIP) uv
	printf '%s\n' 'tensorflow>=2.21.dev0' 'keras-nightly; sys_platform == "none"' > $(VENV_CANARY)/newest.txt
	$(call uv,$(VENV_CANARY),install) --override $(VENV_CANARY)/newest.txt --editable '.[test,lab]' \
		'tensorflow>=2.21.dev0' 'keras>=3.15.dev0'
	touch $@

# The lessons' stored outputs are the main lane's: tests/test_lane_lessons.py runs the lessons and compares none; in the lane of
# Colab in one worker, with a stand-in for google.colab.
# Libraries of several years beside each other: an older one calls a newer one by names that this deprecates (matplotlib
# pyparsing's, anyio pytest's).
OF_SEVERAL_YEARS := -p no:anyio -W ignore::DeprecationWarning

define test_lane
$(1)/bin/python -m pytest $(THREE) $(2) $(call report,$(1)) tests dtk
$(1)/bin/python -m pytest $(2) $(call report,$(1),-lessons) tests/test_lane_lessons.py
endef

test-tf215: $(READY_TF215)
	$(call test_lane,$(VENV_TF215))

test-colab: $(READY_COLAB)
	$(call test_lane,$(VENV_COLAB),$(OF_SEVERAL_YEARS))

test-lowest: $(READY_LOWEST)
	$(call test_lane,$(VENV_LOWEST),$(OF_SEVERAL_YEARS))

# It may fail: it says what would break with the next TensorFlow, in out/lanes/canary.md as well. A new one: `make clean` first,
# or rm -r $(VENV_CANARY).
test-canary: $(READY_CANARY)
	-$(VENV_CANARY)/bin/python -m pytest $(THREE) $(call report,$(VENV_CANARY)) tests dtk
	$(VENV_CANARY)/bin/python tools/lanes_table.py --broken out/lanes/canary-*.xml | tee out/lanes/canary.md
	$(VENV_CANARY)/bin/python tools/lanes_table.py --broken out/lanes/canary-*.xml > /dev/null

# Each of the other lanes in full; the main one is `make test`.
test-lanes: test-colab test-tf215 test-lowest

# The table in docs/guide/versions.md, out of the reports that the lanes have left in out/lanes.
lanes-table: $(READY)
	$(BIN)/python tools/lanes_table.py

# constraints/colab.txt by Colab's list of today; make colab-versions LIST=pip-freeze.txt reads a file.
colab-versions: $(READY)
	$(BIN)/python $(PIP) uv
	PATH="$(BIN):$$PATH" $(BIN)/python tools/colab.py $(LIST)

clean:
	rm -rf $(VENV) .venv-python3* $(VENV_TF215) $(VENV_COLAB) $(VENV_LOWEST) $(VENV_CANARY) .venv-wheel $(VENV_DOCS) out build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache
