#!/bin/bash
# Runs a command on a node, in its namespaces and its cgroup.
#   node.sh n1 ip addr
set -euo pipefail
. "$(dirname "$0")/lib.sh"
in_node "$@"
