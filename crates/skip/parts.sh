#!/usr/bin/env bash
# All tests of the workspace, the ignored ones too, a program after the other. What passed at this commit is noted, so that a run
# that was stopped goes on where it was.
#
# parts.sh NOTES
#   NOTES  lines of a commit and a part that passed; made if it is absent
set -euo pipefail
notes=$(realpath "$1") root=$PWD
touch "$notes"
commit=$(git rev-parse --short HEAD)

# part NAME COMMAND...: runs a part unless it is noted, and notes it.
part() {
	local name="$commit $1"
	shift
	grep -qxF -- "$name" "$notes" && return
	echo "Part: $name"
	"$@"
	echo "$name" >>"$notes"
}

run() {
	(cd "$1" && CARGO_MANIFEST_DIR=$1 "$2" --include-ignored)
}

# Folder and program of each test program, as cargo names them.
cargo test --workspace --locked --no-run --message-format=json-render-diagnostics |
	sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' >"$notes.programs"
test -s "$notes.programs"
while read -r folder program <&3; do
	# A library and a program of one folder may have the same name; cargo's number tells them apart.
	part "${folder#"$root"/} ${program##*/}" run "$folder" "$program"
done 3<"$notes.programs"
part "examples in documentation" cargo test --workspace --locked --doc -- --include-ignored
