# One command for people and CI alike. Everything happens in .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Each Python process would compile the package again otherwise, and the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
SELECT := not long
UNIT := not (browser or chroma or gate or long or model or otterwiki or postgres or process or slow)
# Directories without a unit test are not even imported.
UNIT_DIRECTORIES := $(foreach kind,browser chroma crash fuzz model otterwiki postgres process soak,--ignore-glob='tests/*$(kind)')

.PHONY: help demo serve quick unit test suite lint check gate format lock wheel install-check bench clean

help:                ## Say what can be made
	@grep -E '^[a-z-]+: *##|^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "Wikiholt needs Python 3.11 to 3.14: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)       ## Index two example wikis and search them
	$(BIN)/wikiholt demo demo-data

serve: $(READY)      ## Serve the example wikis on http://127.0.0.1:8765/
	@test -d demo-data/repositories || $(BIN)/wikiholt demo demo-data
	$(BIN)/wikiholt --data demo-data/data serve demo-data/repositories

PYTEST := $(BIN)/python -m pytest
# Tests that share a server, a browser or a fork server run on one worker; the order is that of tests/conftest.py. Five
# workers keep two cores busy, because many tests wait for a server. A worker that crashes is not replaced: the run would
# never end.
GROUPED := -n 5 --dist loadgroup --no-loadscope-reorder --max-worker-restart 0

quick: $(READY)      ## The checks and the unit tests, side by side, in about a minute
	$(MAKE) --no-print-directory -j 2 lint unit

unit: $(READY)       ## The tests that need neither a server nor a model
	$(PYTEST) -n 4 --dist worksteal -q -m "$(UNIT)" $(UNIT_DIRECTORIES)

test: $(READY)       ## Every check and every test, side by side, without the long forms
	$(MAKE) --no-print-directory -j 2 check suite

suite: $(READY) tests/__pycache__ ## Every test, without the long forms; SELECT="browser" chooses by markers
	$(PYTEST) $(GROUPED) -m "$(SELECT)"

# In a new checkout each worker would compile all tests. What is wrong with a test, the suite itself says.
tests/__pycache__: | $(READY)
	-@$(PYTEST) --collect-only -qq > /dev/null

lint: $(READY)       ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/isolation/boundary_snippets.py
	$(BIN)/lint-imports

check: $(READY) lint ## The same, and an audit of what is installed
	$(BIN)/python tools/audit.py

gate: $(READY)       ## The long forms: 700 crashes, 12 failovers, 10,000 requests, every test with all its examples
	$(BIN)/python -m tests.crash --rounds 500
	$(BIN)/python -m tests.crash --store postgres --rounds 200
	$(BIN)/python -m bench.failover --wikis 20 || test $$? -eq 77  # 77: etcd, Patroni or HAProxy is not installed
	FULL_TESTS=1 GATE_BATCHES=150 $(BIN)/python -m pytest --timeout 0 tests/isolation/test_isolation_http.py
	FULL_TESTS=1 $(PYTEST) $(GROUPED) --timeout 1800

format: $(READY)     ## Put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# All but `gpu`: PyTorch takes gigabytes.
EXTRAS := $(foreach extra,faiss otterwiki chroma postgres mcp oidc models multilingual code ocr,--extra $(extra))

lock: $(READY)       ## Write requirements.lock again from pyproject.toml
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes $(EXTRAS) --group dev \
		--no-emit-index-url --no-header -o requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra postgres --extra mcp --extra oidc \
		--constraint requirements.lock --no-emit-index-url --no-header -o deploy/requirements.lock pyproject.toml

wheel:               ## The wheel and the sdist in dist; needs no .venv
	PYTHON=$(PYTHON) tools/build.sh

install-check: wheel ## Install the wheel for each Python in PATH, with pipx and uvx, and run the demo
	tools/check_install.sh

bench: $(READY)      ## The figures of bench/results; needs the corpora, see bench/README.md
	$(BIN)/python -m bench.search --write
	$(BIN)/python -m bench.sync --write
	$(BIN)/python -m bench.quality --write

clean:               ## Remove the environment and the demo
	rm -rf $(VENV) demo-data
