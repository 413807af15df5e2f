#!/usr/bin/env bash
# All benchmarks but loading, one after the other: tables, records and logs go into a folder.
#     bash benchmarks/everything.sh cuda results
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
device=${1:-cpu} out=${2:-out/benchmarks}
mkdir -p "$out"

part() {
    local name=$1
    shift
    timeout --foreground "${SECONDS_EACH:-300}" python "benchmarks/$name.py" "$@" --out "$out" \
        >"$out/$name.log" 2>&1 || echo "$name ended with exit code $?; see $out/$name.log" >&2
    [ ! -e "$out/$name.md" ] || cat "$out/$name.md"
}

if [ "$device" = cpu ]; then
    part iteration 4 8 16 32 64 --batch 4 --batch 16 --seconds 10
    part scaling 16 --seconds 10
else # from the largest resolution down, where a GPU is worth most
    part iteration 1024 512 256 128 64 32 16 8 4 --device "$device" --seconds 5 \
        --precision fp32 --precision tf32 --precision bf16 --precision fp16
fi
part generation --device "$device" --seconds 10
part startup --device "$device" --seconds 10
