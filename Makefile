# The few commands of the project; README.md says what each is for.

SHELL := /bin/bash
CARGO_TARGET_DIR ?= $(HOME)/.cache/ringkv-target
export CARGO_TARGET_DIR
export CARGO_TERM_COLOR ?= never

# ccache makes a second build of RocksDB a matter of a minute. The compiler's name must be the same
# in every call, or cargo builds RocksDB again.
ifneq ($(shell command -v ccache),)
export CC := ccache cc
export CXX := ccache c++
endif

CARGO := cargo
PROFILE := --release
DIR ?= ringkv-dev

.PHONY: all run test setup build fmt-check clippy unit processes chaos bench scaling clean

all: build

## make run: a three-zone cluster on this machine, with a short demonstration; ctrl-c ends it.
run: build
	@scripts/run "$(CARGO_TARGET_DIR)/release" "$(DIR)"

## make test: everything that CI runs.
test: setup
	@$(MAKE) --no-print-directory fmt-check clippy unit processes

setup:
	@scripts/setup

build: setup
	@$(MAKE) --no-print-directory build-workspace

.PHONY: build-workspace
build-workspace:
	$(CARGO) build $(PROFILE) --workspace --all-targets --locked

fmt-check:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy $(PROFILE) --workspace --all-targets --locked -- -D warnings

# Unit, property and simulator tests; the last in its own process, since it uses all cores.
unit: build-workspace
	$(CARGO) test $(PROFILE) --workspace --locked --lib --bins
	$(CARGO) test $(PROFILE) --workspace --locked --doc

# Real processes on loopback, few at a time: each test starts a cluster.
processes: build-workspace
	$(CARGO) test $(PROFILE) --workspace --locked --test it -- --test-threads 2

## make chaos: the long runs under faults, about forty minutes; RINGKV_SEED=N repeats a plan.
chaos: build
	"$(CARGO_TARGET_DIR)/release/linearizability" --seed "$${RINGKV_SEED:-$$RANDOM}" --operations 20000
	"$(CARGO_TARGET_DIR)/release/linearizability" --seed "$${RINGKV_SEED:-$$RANDOM}" --operations 20000 --plans
	"$(CARGO_TARGET_DIR)/release/kills" --kills 21 --partitions 256
	"$(CARGO_TARGET_DIR)/release/absence" --mebibytes 256
	"$(CARGO_TARGET_DIR)/release/matrix"

## make bench: throughput and latency of a local cluster; no test asserts any of it.
bench: build
	@scripts/bench "$(CARGO_TARGET_DIR)/release"

## make scaling: from three nodes to six and back to four under load; no test asserts what it measures.
scaling: build
	@scripts/scaling "$(CARGO_TARGET_DIR)/release"

clean:
	rm -rf "$(DIR)"
