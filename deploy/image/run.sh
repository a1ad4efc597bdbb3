#!/usr/bin/env bash
# Run the built image as a cluster would: its own user, read-only root, no capabilities; sample once over HTTP.
# The last line is the token. The container shares this machine's network, so it listens on loopback only.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=deploy/image/store.sh
source deploy/image/store.sh

need buildah=buildah umoci=umoci runc=runc python3=python3

scratch=$(mktemp -d "$work/bundle.XXXXXX")
bundle=$scratch/bundle
name=logitd-$$

container() {
    runc --root "$scratch/state" "$@"
}

finish() {
    container delete --force "$name" 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

fail() {
    echo "$*" >&2
    tail -n 40 "$scratch/log" >&2 2>/dev/null || true
    exit 1
}

step "unpack: $image"
store push --quiet --disable-compression "$image" "oci:$scratch/layout:image"
umoci unpack --image "$scratch/layout:image" "$bundle" 2>"$scratch/log" || fail "umoci could not unpack the image"
rm -r "$scratch/layout"
compilers=$(find "$bundle/rootfs" -path '*/bin/*' -regextype egrep \
    -regex '.*/([a-z0-9_]+-linux-gnu-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|tcc)(-[0-9.]+)?' -print)
[[ -z $compilers ]] || fail "a compiler is in the image: $compilers"

port=$(python3 deploy/image/bundle.py "$bundle/config.json")
step "run: port $port"
container run --bundle "$bundle" "$name" >"$scratch/log" 2>&1 </dev/null &
runner=$!
for ((tries = 0; ; tries++)); do
    kill -0 "$runner" 2>/dev/null || fail "the service ended before it was ready"
    ((tries < 240)) || fail "not ready after 60 s"
    python3 deploy/image/request.py "$port" GET /health/ready >/dev/null 2>&1 && break
    sleep 0.25
done
step "ready"

main=$(container state "$name" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
user=$(awk '$1 == "Uid:" { print $2 }' "/proc/$main/status")
[[ $user != 0 ]] || fail "the service runs as root"
awk '$5 == "/" { exit $6 !~ /^ro/ }' "/proc/$main/mountinfo" || fail "the root is writable"
step "uid $user, read-only root, no compiler"

# The image's own HEALTHCHECK, inside the container.
store inspect --type image --format '{{range .Docker.Config.Healthcheck.Test}}{{.}}{{"\n"}}{{end}}' "$image" \
    >"$scratch/healthcheck"
mapfile -t healthcheck < <(sed '/^$/d' "$scratch/healthcheck")
[[ ${healthcheck[0]:-} == CMD ]] || fail "the image has no HEALTHCHECK"
container exec "$name" "${healthcheck[@]:1}" || fail "the HEALTHCHECK does not pass"
step "healthcheck passes"

answer=$(python3 deploy/image/request.py "$port" POST /v1/sample \
    '{"logits": [[0, 1, 2, 3]], "params": {"temperature": 0.7, "seed": 1}}') || fail "sampling failed: $answer"
token=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["rows"][0]["token"])' "$answer")

container kill "$name" TERM
status=0
timeout 20 tail --pid="$runner" --follow /dev/null || fail "still running 20 s after SIGTERM"
wait "$runner" || status=$?
((status == 0)) || fail "ended with status $status after SIGTERM"
step "stopped by SIGTERM"
echo "token $token"
