#!/usr/bin/env bash
# Runs the benches in release: the runtime beside plain Vulkan calls, in turns, as ratios.
#
#   scripts/bench.sh [--out DIR] [bench options]     run all; DIR gets the figures as NAME.json
#   scripts/bench.sh --build DIR                     copy the programs to DIR, to run elsewhere without cargo
#
# Bench options: --quick, --rounds N, --sets, and parts of the names of the cases that are wanted.
# VKACTOR_DEVICE chooses the device. Keep the machine quiet: nothing else should run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
benches=(launch replay copy devices memory profile)

if [ "${1:-}" = --build ]; then
    out=${2:?--build needs a folder}
    mkdir -p "$out"
    for bench in "${benches[@]}"; do
        # Cargo names the file that it built on its last line: "Executable benches/x.rs (target/...)".
        built=$(cargo bench --bench "$bench" --no-run 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
        [ -n "$built" ] || { echo "bench.sh: $bench was not built" >&2; exit 1; }
        install "$built" "$out/$bench"
    done
    exit
fi

out=
if [ "${1:-}" = --out ]; then
    out=$(realpath -m "${2:?--out needs a folder}")
    mkdir -p "$out"
    shift 2
fi
for bench in "${benches[@]}"; do
    cargo bench --quiet --bench "$bench" -- ${out:+--json "$out/$bench.json"} "$@"
    echo
done
