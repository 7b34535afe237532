#!/bin/bash
# Process 1 of a node, which up.sh starts in namespaces of its own: mounts the node's folders over the machine's, and then only reaps. The kernel ends
# all processes of the node when it ends.
set -euo pipefail
name=$1 root=$2
shift 2
hostname "$name"
for folder; do mount --bind "$root$folder" "$folder"; done
[ ! -f /etc/machine-id ] || mount --bind "$root/etc/machine-id" /etc/machine-id
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock /run/cgroup
# A sysfs of this network namespace, with the machine's cgroups.
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/cgroup /sys/fs/cgroup
umount -l /run/cgroup && rmdir /run/cgroup
mount --bind /dev/null /sys/fs/cgroup/unified/cgroup.controllers # crun refuses controllers there
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null || true
mount --make-rshared /
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0
touch /run/ready
trap 'exit 0' TERM
while :; do sleep 86400 & wait $!; done
