SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

LINT := go tool -modfile=tools/go.mod golangci-lint

# The race detector needs a C compiler and makes everything several times slower: it is for the packages in which
# goroutines meet, and only where there is a compiler. The rest of the tests need Go alone.
RACE := $(if $(shell command -v gcc cc clang),-race)
CONCURRENT := ./producer/... ./processors/... ./sinks/...
SEQUENTIAL = $$(go list ./... | grep -Ev '^github.com/tooltape/tooltape/(producer|processors|sinks)(/|$$)')
# What meets a Kafka, a registry or a PostgreSQL.
INTEGRATION := ./cmd/... ./loadtest ./processors/... ./producer/... ./schemas/registry/... ./sinks/...
# What breaks its services on purpose, and so has them to itself.
STORMY := ./loadtest/faults

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

dev: ## run all of Tooltape on this machine, with its own Kafka and PostgreSQL
	go run ./cmd/tooltape dev

build: ## the program, in bin/
	CGO_ENABLED=0 go build -trimpath -o bin/tooltape ./cmd/tooltape

test: ## all tests; Kafka is in the process, PostgreSQL the installed one or else downloaded
	go test -timeout 15m $(SEQUENTIAL)
	go test -timeout 15m $(RACE) $(CONCURRENT)

test-kafka: ## the integration tests on a real Kafka, registry and PostgreSQL, started for them (Java, Maven, PostgreSQL)
	@dir=$$(mktemp -d) && chmod 755 "$$dir"
	trap 'deploy/local/down --dir "$$dir" --purge' EXIT
	services=$$(deploy/local/up --dir "$$dir") && eval "$$services"
	go test -timeout 20m -count=1 $(INTEGRATION)
	go test -timeout 20m -count=1 $(STORMY)

lint: ## everything that the machine can judge, and whether it still judges so
	$(LINT) run --allow-parallel-runners ./...
	go test -C tools ./...
	if command -v shellcheck >/dev/null; then shellcheck -x -P SCRIPTDIR deploy/local/{up,down,kill,lib.sh} .ci/run; fi
	test -z "$$(gofmt -l tools)"

vulns: ## what is known to be wrong with our dependencies (asks Go's database of them)
	go tool -modfile=tools/go.mod govulncheck ./...

bench: ## how fast events become a history
	go run ./loadtest history

.PHONY: help dev build test test-kafka lint vulns bench
.ONESHELL:
