# The commands of the house. `make demo` and `make test` need a Rust toolchain and nothing else typed.
.PHONY: demo test test-long lint bench bench-sim deps clean

ENTRESOL := target/release/entresol
DEMO := target/demo

# A C compiler builds the compression libraries; it is all that a bare system may lack.
deps:
	@command -v cc >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev; \
	else \
		echo "A C compiler is missing. On Debian: apt-get install gcc libc6-dev" >&2; exit 1; \
	fi

$(ENTRESOL): deps FORCE
	cargo build --release --locked -p entresol

FORCE:

# Generates a TPC-C-like trace, simulates the whole catalogue at five sizes, prints the ranking, writes the report.
demo: $(ENTRESOL)
	@mkdir -p $(DEMO)
	$(ENTRESOL) trace generate tpcc:warehouses=10:n=1M:seed=1:gap=100 $(DEMO)/tpcc.etr --next-use
	$(ENTRESOL) simulate $(DEMO)/tpcc.etr --policy all --size 1%,2%,5%,10%,20% \
		--json $(DEMO)/report.json --html $(DEMO)/report.html --svg $(DEMO)/miss-ratio.svg
	@echo "The report: $(DEMO)/report.html"

test: deps
	cargo test --workspace --locked

# Longer runs: oracles over ten million requests, more seeds. Required before an issue is resolved.
test-long: deps
	cargo test --workspace --locked --release -- --include-ignored

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked -q

clean:
	cargo clean
