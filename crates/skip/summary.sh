#!/usr/bin/env bash
# The closing lines of a run of tests: how many ran, which were skipped, and why. With --strict it fails when a test was skipped
# whose need this machine has.
#
# summary.sh OUTPUT SKIPPED [--strict]
#   OUTPUT   what `cargo test` printed
#   SKIPPED  lines of `skipped!`: need, test and reason, separated by tabulators; it need not exist
set -euo pipefail
output=$1 skipped=$2 strict=${3-}

# Does this machine have what a test needed?
has() {
	case $1 in
	root) test "$(id -u)" = 0 ;;
	data) test -d "$(dirname "$0")/../../../shared/data" ;;
	kernel | place | mutants | database) return 1 ;;
	/*) test -e "$1" ;;
	postgres) compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ;;
	*) PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null ;;
	esac
}

tests=0 here=0
if test -s "$skipped"; then
	sort -u -o "$skipped" "$skipped"
	tests=$(cut -f2 "$skipped" | sort -u | wc -l)
	echo "Skipped for want of something:"
	while IFS=$'\t' read -r need test reason; do
		note=
		if has "$need"; then
			note=" (this machine has $need)"
			here=$((here + 1))
		fi
		echo "  $test: $reason$note"
	done <"$skipped"
fi
# A skipped test has passed as far as cargo knows; it is counted once.
awk -v skipped="$tests" '/^test result: /{ passed += $4; failed += $6; ignored += $8 }
	END { printf "%d tests are for `make test-long` or other commands, which their attributes name\n", ignored
		printf "%d passed, %d failed, %d skipped\n", passed - skipped, failed, skipped }' "$output"
if test "$strict" = --strict && test "$here" -gt 0; then
	echo "$here reasons for skipping a test do not hold on this machine" >&2
	exit 1
fi
