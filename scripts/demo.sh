#!/usr/bin/env bash
# From a bare machine to an answer: finds a Vulkan driver, fetches the model, builds the example and asks it.
#
#   scripts/demo.sh                          a question about the text that comes with the example
#   scripts/demo.sh [arguments of embed]     anything else; --help tells them
#
# Needs Rust, python3 with pip, and a network. On Debian and Ubuntu it installs a software driver where there is none.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# Whether a Vulkan loader and a driver's manifest are there.
has_vulkan() {
    ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
    "$ldconfig" -p | grep -q 'libvulkan\.so\.1' || return 1
    [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] || return 0
    compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null || compgen -G '/etc/vulkan/icd.d/*.json' >/dev/null ||
        compgen -G '/usr/local/share/vulkan/icd.d/*.json' >/dev/null
}

if ! has_vulkan; then
    if ! command -v apt-get >/dev/null; then
        echo "demo: no Vulkan driver; install libvulkan and a driver (Mesa's lavapipe will do)" >&2
        exit 1
    fi
    echo "demo: no Vulkan driver: installing Mesa's" >&2
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get update -q >&2
    $as_root apt-get install -y -q --no-install-recommends libvulkan1 mesa-vulkan-drivers >&2
fi

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
