# Sourced by the scripts here: where the images live, and what the scripts need of the machine.
# The store keeps the base and the last image, about 1.2 GB; removing its folder is safe at any time.
# shellcheck shell=bash disable=SC2034  # the names are for the scripts that source this

image=${IMAGE:-logitd:dev}
base=${BASE_IMAGE:-python:3.11-slim-bookworm}
work=${XDG_CACHE_HOME:-$HOME/.cache}/logitd-image
mkdir -p "$work"

# buildah in a store of its own: no daemon, no overlay mounts, none of the user's images.
store() {
    buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"
}

# need COMMAND=PACKAGE…: install the Debian packages whose command is missing; without the right to, name them.
need() {
    local pair missing=()
    for pair; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    if ((${#missing[@]} == 0)); then
        return
    fi
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        echo "missing: ${missing[*]} (as root on Debian this script installs them)" >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "${missing[@]}" >/dev/null
}

step() {
    printf '%4ds  %s\n' "$SECONDS" "$*"
}
