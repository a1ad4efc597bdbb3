#!/usr/bin/env bash
# Check the configuration and run the unit tests of the rules, with promtool from the Debian package prometheus.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v promtool >/dev/null; then
    echo "promtool is not installed: the rules for Prometheus were not checked (apt-get install prometheus)"
    exit 0
fi
promtool check config prometheus.yml
promtool test rules tests/*.yml
