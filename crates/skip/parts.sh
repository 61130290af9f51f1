#!/usr/bin/env bash
# All tests of the workspace: each program of tests, as many at a time as there are processors, and the examples in documentation.
# Every program runs; those that failed are listed at the end.
#
# parts.sh [NOTES]
#   NOTES  a file: the ignored tests run too, and what passed at this commit is noted there, so that a run that was stopped goes on
#          where it was
set -euo pipefail

# A part: runs a program of tests in its folder, prints what it took and what it printed when it has ended, and notes that it passed.
if test "${1-}" = --part; then
	folder=$2 program=$3
	name="${folder#"$PARTS_ROOT"/} ${program##*/}"
	test -z "$PARTS_NOTES" || ! grep -qxF -- "$PARTS_COMMIT $name" "$PARTS_NOTES" || exit 0
	output=$(mktemp) took=$(mktemp) failed=0
	ignored=${PARTS_NOTES:+--include-ignored}
	TIMEFORMAT="Ran $name in %0R s, %0U s of a processor and %0S s in the kernel"
	{ time env -C "$folder" CARGO_MANIFEST_DIR="$folder" "$program" $ignored >"$output" 2>&1 || failed=1; } 2>"$took"
	{
		# One at a time prints.
		flock 9
		cat "$took" "$output"
		if test "$failed" = 1; then
			echo "$name" >>"$PARTS_FAILED"
		elif test -n "$PARTS_NOTES"; then
			echo "$PARTS_COMMIT $name" >>"$PARTS_NOTES"
		fi
	} 9>>"$PARTS_FAILED"
	rm "$output" "$took"
	exit "$failed"
fi

notes=
if test $# -gt 0; then
	touch "$1"
	notes=$(realpath "$1")
fi
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
export PARTS_NOTES=$notes PARTS_ROOT=$PWD PARTS_FAILED=$scratch/failed
PARTS_COMMIT=$(git rev-parse --short HEAD)
# What cargo gives the tests that it runs (.cargo/config.toml).
export PARTS_COMMIT PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED-1}

# Folder and program of each program of tests, as cargo names them; first those that take minutes, so that none of them is left to the end.
cargo test --workspace --locked --no-run --message-format=json-render-diagnostics |
	sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' >"$scratch/programs"
test -s "$scratch/programs"
long='/(entresol_cache|entresol_files|entresol_burst_live|entresol_lab|all|bench|posix|posix_kills)-[0-9a-f]*$'
failed=0
touch "$PARTS_FAILED"
{ grep -E "$long" "$scratch/programs" && grep -vE "$long" "$scratch/programs"; } |
	xargs -P "$(nproc)" -n 2 "$0" --part || failed=1
if ! cargo test --workspace --locked --doc -- ${notes:+--include-ignored}; then
	failed=1
	echo "examples in documentation" >>"$PARTS_FAILED"
fi
if test "$failed" = 1; then
	echo "Failed:"
	sed 's/^/  /' "$PARTS_FAILED"
fi
exit "$failed"
