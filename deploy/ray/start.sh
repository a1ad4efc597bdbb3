#!/bin/sh
# Start a node of a Ray cluster for logitd, in the foreground; arguments are those of `ray start`:
#
#   deploy/ray/start.sh --head --node-ip-address=127.0.0.1    # the first, here on loopback alone
#   deploy/ray/start.sh --address=HEAD:6379                   # any further one
#
# Ray's ports run what they are sent by anyone who has the cluster's token: `ray get-auth-token --generate` puts one into
# ~/.ray/auth_token, which all nodes, and who deploys, must have (or RAY_AUTH_TOKEN). They are for a network of your own.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"  # replicas and proxies import what is here
export RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=logitd_ray_proxy:refusals
export RAY_AUTH_MODE=token
export RAY_USAGE_STATS_ENABLED=0
exec ray start --block --include-dashboard=false "$@"
