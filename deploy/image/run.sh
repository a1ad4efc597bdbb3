#!/usr/bin/env bash
# Run the built image as a cluster would: its own user, read-only root, no capabilities; sample once over HTTP.
# The last line is the token. The container shares this machine's network, so it listens on loopback only.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=deploy/image/store.sh
source deploy/image/store.sh

need buildah=buildah runc=runc python3=python3

name=logitd-$$
bundle=$(mktemp -d "$work/bundle.XXXXXX")

container() {
    runc --root "$bundle/state" "$@"
}

finish() {
    container delete --force "$name" 2>/dev/null || true
    store rm "$name" >/dev/null 2>&1 || true
    rm -rf "$bundle"
}
trap finish EXIT

fail() {
    echo "$*" >&2
    tail -n 40 "$bundle/log" >&2 2>/dev/null || true
    exit 1
}

step "unpack: $image"
store from --pull-never --name "$name" "$image" >/dev/null
rootfs=$(store mount "$name")
compilers=$(find "$rootfs" -path '*/bin/*' -regextype egrep \
    -regex '.*/([a-z0-9_]+-linux-gnu-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|tcc)(-[0-9.]+)?')
[[ -z $compilers ]] || fail "a compiler is in the image: $compilers"
cuda=$(find "$rootfs/opt/logitd" -path '*/site-packages/nvidia' -prune -print)
[[ -z $cuda ]] || fail "CUDA libraries are in the image: build with TORCH_PIP_ARGS for the CPU (see Dockerfile)"

runc spec --bundle "$bundle"
store inspect --type image "$image" | python3 deploy/image/bundle.py "$bundle/config.json" "$rootfs" >"$bundle/told"
mapfile -t healthcheck <"$bundle/told"
port=${healthcheck[0]}

step "run: port $port"
container run --bundle "$bundle" "$name" >"$bundle/log" 2>&1 </dev/null &
runner=$!
until python3 deploy/image/request.py "$port" GET /health/ready >/dev/null 2>&1; do
    kill -0 "$runner" 2>/dev/null || fail "the service ended before it was ready"
    ((SECONDS < 180)) || fail "not ready after $SECONDS s"
    sleep 0.25
done
step "ready"

main=$(container state "$name" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
user=$(awk '$1 == "Uid:" { print $2 }' "/proc/$main/status")
[[ $user != 0 ]] || fail "the service runs as root"
awk '$5 == "/" { exit $6 !~ /^ro/ }' "/proc/$main/mountinfo" || fail "the root is writable"
container exec "$name" "${healthcheck[@]:1}" || fail "the image's HEALTHCHECK does not pass"
step "uid $user, read-only root, no compiler, no CUDA, healthcheck passes"

answer=$(python3 deploy/image/request.py "$port" POST /v1/sample \
    '{"logits": [[0, 1, 2, 3]], "params": {"temperature": 0.7, "seed": 1}}') || fail "not sampled: $answer"
token=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["rows"][0]["token"])' "$answer")

container kill "$name" TERM
timeout 20 tail --pid="$runner" --follow /dev/null || fail "still running 20 s after SIGTERM"
wait "$runner" || fail "ended with status $? after SIGTERM"
step "stopped by SIGTERM with status 0"
echo "token $token"
