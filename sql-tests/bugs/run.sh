#!/usr/bin/env bash
# Applies each bug of this folder to a scratch copy of the tree, and reports whether random queries catch it.
#
#   sql-tests/bugs/run.sh [NAME...]     all bugs, or these
#
# QUERIES (3000) is the most queries for a bug, SEED (0) the first seed, SCRATCH the scratch copy, and BUGS_TARGET_DIR its
# target folder. Do not share that folder with another checkout: cargo would confuse their crates. A failing query counts
# only if it passes without the bug. The exit status is 0 if every bug was caught.
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
repository="$(cd "$here/../.." && pwd)"
scratch="${SCRATCH:-$repository/../$(basename "$repository")-bugs}"
queries="${QUERIES:-3000}"
seed="${SEED:-0}"
log="$(mktemp -d)"
export RUST_BACKTRACE=0 WARPJOIN_RANDOM_STOP=1 CARGO_TARGET_DIR="${BUGS_TARGET_DIR:-$scratch-target}"

build() { # NAME: builds the test of the scratch copy, copies the binary to that name, and prints its path.
    (cd "$scratch" && cargo test --workspace --no-run --test sql 2>"$log/build") || return 1
    cp "$(sed -nE 's/.*Executable tests\/sql\/main\.rs \((.*)\)/\1/p' "$log/build")" "$log/$1" && echo "$log/$1"
}

fails_at() { # BINARY SEED QUERIES: prints the seeds that fail.
    WARPJOIN_RANDOM_SEED="$2" WARPJOIN_RANDOM_QUERIES="$3" "$1" --exact random::random_queries 2>&1 | tee "$log/run" |
        sed -nE 's/^seed ([0-9]+) .*/\1/p' | sort -nu
}

catch() { # SOUND BROKEN: prints the first seed that fails because of the bug.
    local from="$seed" left="$queries" found next
    while [ "$left" -gt 0 ]; do
        found="$(fails_at "$2" "$from" "$left")"
        [ -n "$found" ] || return 1
        for next in $found; do
            if [ -z "$(fails_at "$1" "$next" 1)" ]; then
                echo "$next"
                return 0
            fi
        done
        # All of these also fail without the bug.
        left=$((left - (next + 1 - from)))
        from=$((next + 1))
    done
    return 1
}

cleanup() { git -C "$repository" worktree remove --force "$scratch" 2>/dev/null; }
trap cleanup EXIT
cleanup
git -C "$repository" worktree add --quiet --detach "$scratch" HEAD || exit 1
sound="$(build sound)" || { cat "$log/build"; exit 1; }

missed=0
names=("$@")
[ "${#names[@]}" -gt 0 ] || names=($(cd "$here" && ls ./*.patch | sed -E 's|^\./(.*)\.patch$|\1|'))
for name in "${names[@]}"; do
    git -C "$scratch" checkout --quiet --force HEAD
    start=$SECONDS
    if ! git -C "$scratch" apply "$here/$name.patch"; then
        echo "$name: does not apply"
        missed=$((missed + 1))
    elif ! broken="$(build broken)"; then
        echo "$name: does not compile: $(grep -m1 '^error' "$log/build")"
        missed=$((missed + 1))
    elif caught="$(catch "$sound" "$broken")"; then
        echo "$name: caught by seed $caught after $((SECONDS - start)) s"
    else
        echo "$name: MISSED by $queries queries from seed $seed"
        missed=$((missed + 1))
    fi
done
echo "${#names[@]} bugs, $missed missed"
[ "$missed" -eq 0 ]
