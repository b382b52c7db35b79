#!/usr/bin/env bash
# From a bare machine to an answer: finds a Vulkan driver, fetches the model, builds the example and asks it.
#
#   scripts/demo.sh                          a question about the text that comes with the example
#   scripts/demo.sh [arguments of embed]     anything else; --help tells them
#
# Needs Rust, python3 with pip, and a network. On Debian and Ubuntu it installs a software driver where there is none.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

"$root/scripts/setup.sh" vulkan pip

VKACTOR_MODEL=$("$root/scripts/fetch-model.sh")
export VKACTOR_MODEL
# The arguments may name files beside the caller: stay where we were called.
embed=(cargo run --quiet --release --manifest-path "$root/Cargo.toml" --example embed --)
if [ $# -gt 0 ]; then
    exec "${embed[@]}" "$@"
fi
query="where do small animals spend the winter"
echo "demo: the lines of examples/embed/lines.txt nearest to: $query" >&2
exec "${embed[@]}" --query "$query" "$root/examples/embed/lines.txt"
