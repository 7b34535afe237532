#!/bin/bash
# Stops and starts a daemon of the cluster: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and containerd, kubelet and kube-proxy of each
# node. Any other command can be a daemon, too, on the node that ends its name. Its output is $PORIN_KUBERNETES_DIR/run/log/NAME.log.
#   daemon.sh stop kubelet-n1 [SIGNAL]     SIGTERM, and SIGKILL 10 s later
#   daemon.sh start kubelet-n1             with the command of its last start
#   daemon.sh start agent-n1 COMMAND...
#   daemon.sh power_off n1                 the node ends at once
#   daemon.sh power_on n1                  it boots with the folders of before; its daemons are started one by one
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case $1 in
start | stop | power_on | power_off) "$@" ;;
*) sed -n '2,/^set/s/^# //p' "$0"; exit 2 ;;
esac
