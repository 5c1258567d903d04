# What a person does here: run it, test it, measure it.

CARGO ?= cargo
NEXTEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes)

.PHONY: run build test lint bench soak attack browser postgres btrfs player

run: ## A command in a room
	$(CARGO) run --release -- run -- sh -c 'id; ls /; echo hello'

build:
	$(CARGO) build --release --workspace

lint: ## Format, clippy and architecture rules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

test: lint ## Everything that must hold, in about ten minutes on 2 cores
ifeq ($(NEXTEST),yes)
	$(CARGO) nextest run --workspace
else
	$(CARGO) test --workspace --no-fail-fast -- --test-threads=1
endif

browser: ## The browser that previews are tried with; `make test` does without where there is none, and says so
	apt-get install -y --no-install-recommends chromium

soak: ## The long versions: floods, crowds, hundreds of kills; about an hour. WORKROOM_SEED=N repeats a run
	$(CARGO) test -p workroom -p workroom-egress -p workroom-vault --tests --no-fail-fast -- --ignored --test-threads=1 --nocapture soak_

bench: ## Side by side with the kernel's floor and with bwrap
	$(CARGO) build --release -p workroom -p workroom-bench
	$(CARGO) run --release -p workroom-bench --
	$(CARGO) run --release -p workroom-bench -- --scale
	$(CARGO) run --release -p workroom-bench -- --sessions
	$(CARGO) run --release -p workroom-bench -- --workspace
	$(CARGO) run --release -p workroom-bench -- --processes
	$(CARGO) run --release -p workroom-bench -- --slots
	$(CARGO) run --release -p workroom-bench -- --slot-server
	$(CARGO) run --release -p workroom-bench -- --idle 500

postgres: ## What the test of the store's SQL on PostgreSQL needs: the programs, on Debian and its kin; no service has to run
	apt-get install -y --no-install-recommends postgresql

btrfs: ## What the tests of sessions on btrfs need; `make test` does without where there is none, and says so
	apt-get install -y --no-install-recommends btrfs-progs

player: ## What plays recordings in their tests, and a full-screen program for terminals'; `make test` does without where there is none, and says so
	$(CARGO) install --locked asciinema
	apt-get install -y --no-install-recommends htop

attack: ## Every hostile program we have, in rooms on this machine
	$(CARGO) run --release -- doctor --attack
