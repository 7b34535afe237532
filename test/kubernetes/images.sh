#!/bin/bash
# Imports archives of images on all nodes of the running cluster.
#   images.sh bin/porin-image.tar
set -euo pipefail
. "$(dirname "$0")/lib.sh"
for n in $(seq "$NODES"); do
	for archive in "$@"; do in_node "n$n" ctr -n k8s.io images import "$(realpath "$archive")" >/dev/null; done
done
