#!/bin/bash
# Stops the cluster and removes its state. All that runs on a node ends with the node's process 1; its mounts end with the mount namespace.
#   KEEP_LOGS=DIR down.sh     moves the daemons' output to DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh"
[ -d "$RUN/pids" ] || exit 0
cd "$RUN/pids"
nodes=$(ls | grep -E '^n[0-9]+$')
for n in $nodes; do
	power_off "$n"
	rmdir /sys/fs/cgroup/*/porin-"$n"
done
for name in $(ls | grep -vE '^n[0-9]+$'); do stop "$name" KILL; done
ip link del k8s-host 2>/dev/null
ip netns del k8s-switch 2>/dev/null
[ ! -f "$RUN/sysctls" ] || sysctl -qw $(cat "$RUN/sysctls")
cd /
while read -r folder; do rmdir "$folder"; done < <(tac "$RUN/folders") # mount points that the machine did not have
[ -z "${KEEP_LOGS:-}" ] || { rm -rf "$KEEP_LOGS" && mv "$RUN/log" "$KEEP_LOGS"; }
rm -rf --one-file-system "$RUN"
