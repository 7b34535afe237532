# Variables and functions of the test cluster's scripts.
DIR=${PORIN_KUBERNETES_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/porin/kubernetes}
BIN=$DIR/bin IMAGES=$DIR/images CNI_BIN=$DIR/cni-bin
RUN=$DIR/run PKI=$DIR/run/pki # the state of the running cluster
[ ! -f "$RUN/params" ] || . "$RUN/params" # of the running cluster, rather than of the environment
: "${NODES:=1}"          # n1, n2, ...
: "${CNI:=none}"         # none: a plugin has to be installed; bridge: the reference plugins and static routes
: "${PROXY:=iptables}"   # the mode of kube-proxy: iptables, nftables; none: no kube-proxy
: "${IPFAMILY:=ipv4}"    # ipv4, dual
: "${RUNTIME:=runc}"     # runc; crun, which takes a third of its processor time
# Node nX has $NET4.(10+X) and $NET6:(10+X), and the podCIDRs 10.244.X.0/24 and fd00:10:244:X::/64. The machine, where the control plane is, has 1.
NET4=172.30.0 NET6=fd00:172:30: SERVER=172.30.0.1
PAUSE=registry.k8s.io/pause:3.10.2 # as upstream's tests call it
PODS=10.244.0.0/16 SERVICES=10.96.0.0/16
dual() { [ "$IPFAMILY" = dual ]; }
! dual || PODS=$PODS,fd00:10:244::/56 SERVICES=$SERVICES,fd00:10:96::/112
unset TMPDIR # nodes may not have it
export KUBECONFIG=$RUN/admin.conf KUBECACHEDIR=$RUN/kubectl # the kinds that kubectl knows are those of this cluster

ip4() { echo "$NET4.$((10 + ${1#n}))"; }
ip6() { echo "$NET6:$((10 + ${1#n}))"; }
say() { echo "[$(date +%T)] $*" >&2; }
wait_for() { # SECONDS WHAT COMMAND...
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || { say "gave up waiting for $what"; return 1; }
		sleep 0.2
	done
}

# A daemon has a file in $RUN/pids with its PID and the start time, so that a PID that is used again gets no signal, and one in $RUN/commands with its
# command, to start it again. It runs on node nX when its name ends with -nX.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'; }
record() { echo "$2 $(start_time "$2")" >"$RUN/pids/$1"; }
pid() { cut -d' ' -f1 "$RUN/pids/$1"; }
alive() {
	local pid time
	read -r pid time 2>/dev/null <"$RUN/pids/$1" && [ -n "$time" ] && [ "$(start_time "$pid")" = "$time" ]
}
spawn() { # NAME COMMAND...
	setsid "${@:2}" >>"$RUN/log/$1.log" 2>&1 </dev/null &
	record "$1" $!
}
start() { # NAME [COMMAND...]: without one, the command of the last start
	local name=$1 node=
	shift
	[ $# = 0 ] || printf '%q ' "$@" >"$RUN/commands/$name"
	[[ $name =~ -(n[0-9]+)$ ]] && node=${BASH_REMATCH[1]}
	! alive "$name" || return 0
	eval "set -- $(cat "$RUN/commands/$name")"
	[ -n "$node" ] || { spawn "$name" "$@"; return; }
	spawn "$name" sh -c "$ENTER" sh "$node" "$(pid "$node")" env "PATH=$BIN:$PATH" "$@"
	child "$name" "$name"
}
stop() { # NAME [SIGNAL]
	if alive "$1"; then
		kill "-${2:-TERM}" "$(pid "$1")"
		for _ in $(seq 100); do alive "$1" || break; sleep 0.1; done
		! alive "$1" || kill -KILL "$(pid "$1")"
	fi
	rm -f "$RUN/pids/$1"
}
# nsenter and unshare stay as parents of the daemon: its own PID takes their place in the file.
child() { # NAME OF-ITS-FILE
	local children
	children=/proc/$(pid "$1") && children=$children/task/${children#/proc/}/children
	wait_for 10 "the process of $1" grep -q . "$children"
	record "$2" "$(tr -d ' ' <"$children")"
}
# A process joins the node's cgroup of version 2 before its namespaces, for BPF programs of cgroups.
ENTER='echo $$ >"/sys/fs/cgroup/unified/porin-$1/cgroup.procs"; pid=$2; shift 2; exec nsenter -t "$pid" -m -n -u -i -p -- "$@"'
in_node() { # NODE COMMAND...
	sh -c "$ENTER" sh "$1" "$(pid "$1")" env "PATH=$BIN:$PATH" "${@:2}"
}

# The folders that each node has of its own, besides /run.
FOLDERS="/etc/cni /etc/kubernetes /opt/cni /var/lib/cni /var/lib/kubelet /var/lib/containerd /var/lib/porin /var/log"

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
power_on() { # NODE: its network, mounts and first process
	local n=$1 root=$RUN/nodes/$1
	ip netns add "k8s-$n"
	ip -n k8s-switch link add "$n" type veth peer name eth0 netns "k8s-$n"
	ip -n k8s-switch link set "$n" master br0 up
	ip -n "k8s-$n" addr add "$(ip4 "$n")/24" dev eth0
	! dual || ip -n "k8s-$n" addr add "$(ip6 "$n")/64" dev eth0 nodad
	ip -n "k8s-$n" link set eth0 up
	ip -n "k8s-$n" route add default via "$SERVER"
	! dual || ip -n "k8s-$n" -6 route add default via "$NET6:1"
	# The first process joins the node's cgroup of version 2, then its network namespace, and makes the others.
	spawn "unshare.$n" sh -c 'echo $$ >"/sys/fs/cgroup/unified/porin-'"$n"'/cgroup.procs"; exec "$@"' sh nsenter --net="/run/netns/k8s-$n" \
		unshare --mount --uts --ipc --pid --fork --kill-child --mount-proc --propagation private "$HERE/node-init.sh" "$n" "$root" $FOLDERS
	child "unshare.$n" "$n"
	wait_for 10 "the mounts of $n" in_node "$n" test -e /run/ready
}
power_off() { # NODE: all that runs there ends, and what is not in its folders is gone
	stop "$1" KILL
	ip -n k8s-switch link del "$1" 2>/dev/null
	ip netns del "k8s-$1" 2>/dev/null
	local cgroup
	for cgroup in /sys/fs/cgroup/*/porin-"$1"; do
		[ ! -d "$cgroup" ] || wait_for 10 "the end of $cgroup" find "$cgroup" -mindepth 1 -depth -type d -exec rmdir {} +
	done
}
