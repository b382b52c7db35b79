#!/usr/bin/env bash
# Installs what is missing: `vulkan` a loader and a driver, `validation` the Khronos validation layer, `pip` what
# fetches the model. A machine with a driver of its own keeps it.
set -euo pipefail

missing=()
for want in "$@"; do
    case $want in
        vulkan)
            # Read whole before it is searched: a pipe that is closed early would count as a failure.
            libraries=$("$(command -v ldconfig || echo /sbin/ldconfig)" -p)
            grep -q 'libvulkan\.so\.1' <<<"$libraries" || missing+=(libvulkan1)
            compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null \
                || compgen -G '/etc/vulkan/icd.d/*.json' >/dev/null \
                || compgen -G '/usr/local/share/vulkan/icd.d/*.json' >/dev/null \
                || [ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ] \
                || missing+=(mesa-vulkan-drivers)
            ;;
        validation)
            compgen -G '/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json' >/dev/null \
                || missing+=(vulkan-validationlayers)
            ;;
        pip) python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip) ;;
        *)
            echo "setup.sh: what is '$want'?" >&2
            exit 2
            ;;
    esac
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing ${missing[*]}" >&2
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
