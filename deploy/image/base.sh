#!/usr/bin/env bash
# Make a stand-in for the slim Python image out of Debian packages, for a machine that reaches no image registry.
# Debian 12's Python is 3.11, as the real one's, whose headers it needs too. It is tagged without a registry, so it never
# passes for the real one.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=deploy/image/store.sh
source ./store.sh

need buildah=buildah mmdebstrap=mmdebstrap

# The mirror apt itself uses, unless MIRROR says otherwise.
if [[ -z ${MIRROR:-} ]]; then
    # shellcheck disable=SC2016  # the names are apt's
    MIRROR=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
fi
: "${MIRROR:?no Debian mirror in the apt settings: set MIRROR}"

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

step "base: Debian bookworm with Python"
mmdebstrap --quiet --variant=minbase \
    --include=ca-certificates,libpython3-dev,python-is-python3,python3-pip,python3-venv \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    bookworm "$context/base.tar" "$MIRROR"

store bud --quiet --pull-never --isolation=chroot --format docker --tag "$base" --file - "$context" <<'CONTAINERFILE'
FROM scratch
ADD base.tar /
ENV LANG=C.UTF-8
CMD ["python3"]
CONTAINERFILE
