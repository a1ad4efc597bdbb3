#!/usr/bin/env bash
# Build the image with buildah, which needs no container engine and runs inside a container too (as root).
#
#   IMAGE=logitd:dev  BASE_IMAGE=python:3.11-slim-bookworm  TORCH_PIP_ARGS="--index-url URL"  deploy/image/build.sh
#
# A base that the store lacks is made here (base.sh). pip in the build sees what pip sees on this machine:
# its settings and the local paths they name are mounted, and nothing of them stays in the image.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=deploy/image/store.sh
source deploy/image/store.sh

need buildah=buildah python3=python3 pip3=python3-pip
store inspect --type image "$base" >/dev/null 2>&1 || deploy/image/base.sh

settings=$(mktemp -d)
trap 'rm -rf "$settings"' EXIT
python3 deploy/image/pip_settings.py "$settings/pip.conf" >"$settings/paths"
volumes=(--volume "$settings/pip.conf:/etc/pip.conf:ro")
while read -r path; do
    volumes+=(--volume "$path:$path:ro")
done <"$settings/paths"

step "build: $image, log in $work/build.log"
if ! store bud --pull-never --isolation=chroot --format docker "${volumes[@]}" \
    --build-arg "BASE_IMAGE=$base" --build-arg "TORCH_PIP_ARGS=${TORCH_PIP_ARGS:-}" \
    --tag "$image" --file Dockerfile . >"$work/build.log" 2>&1; then
    tail -n 40 "$work/build.log" >&2
    exit 1
fi
store rmi --prune >/dev/null   # what the last build left under this tag
step "built: $(store images --format '{{.Size}}' "$image")"
