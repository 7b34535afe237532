#!/bin/bash
# Starts a cluster: etcd and the control plane on this machine, and nodes in namespaces of their own. See lib.sh for the variables.
#   NODES=3 CNI=none PROXY=nftables IPFAMILY=dual up.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
[ -f "$IMAGES/e2e.tar" ] || { say "no $IMAGES/e2e.tar: run build.sh first"; exit 1; }
[ ! -d "$RUN" ] || { say "$RUN is there: run down.sh first"; exit 1; }
mkdir -p "$RUN"/{pids,commands,log,pki}
printf '%s\n' "NODES=$NODES" "CNI=$CNI" "PROXY=$PROXY" "IPFAMILY=$IPFAMILY" "RUNTIME=$RUNTIME" >"$RUN/params"
trap '[ $? = 0 ] || say "failed; down.sh removes the rest"' EXIT

cert() { # NAME SUBJECT [ALTERNATIVE-NAMES]
	openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/$1.key"
	openssl req -new -key "$PKI/$1.key" -subj "$2" | openssl x509 -req -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -days 365 \
		-out "$PKI/$1.crt" -extfile <(printf 'keyUsage=digitalSignature\nextendedKeyUsage=clientAuth,serverAuth\n%s' "${3:+subjectAltName=$3}") 2>/dev/null
}
kubeconfig() { # FILE USER
	cat >"$1" <<-YAML
	apiVersion: v1
	kind: Config
	current-context: test
	clusters: [{name: test, cluster: {server: "https://$SERVER:6443", certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")}}]
	users: [{name: $2, user: {client-certificate-data: $(base64 -w0 "$PKI/$2.crt"), client-key-data: $(base64 -w0 "$PKI/$2.key")}}]
	contexts: [{name: test, context: {cluster: test, user: $2}}]
	YAML
}
certificates() {
	openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/ca.key"
	openssl req -x509 -new -key "$PKI/ca.key" -subj /CN=test-cluster -days 365 -out "$PKI/ca.crt" \
		-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
	cert apiserver /CN=kube-apiserver "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:$SERVER,IP:10.96.0.1"
	cert apiserver-kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
	cert admin /O=system:masters/CN=admin
	kubeconfig "$RUN/admin.conf" admin
	openssl genrsa -out "$PKI/sa.key" 2048 2>/dev/null
	openssl rsa -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub" 2>/dev/null
}

# The nodes and the machine are ports of a bridge in a network namespace of its own, so that no packet between nodes passes the machine's netfilter.
network() {
	ip netns add k8s-switch
	ip -n k8s-switch link add br0 type bridge
	ip -n k8s-switch link set br0 up
	ip netns exec k8s-switch sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 2>/dev/null || true
	ip link add k8s-host type veth peer name host netns k8s-switch
	ip -n k8s-switch link set host master br0 up
	ip addr add "$SERVER/24" dev k8s-host
	! dual || ip addr add "$NET6:1/64" dev k8s-host nodad
	ip link set k8s-host up
}

control_plane() {
	start etcd "$BIN/etcd" --data-dir "$RUN/etcd" --unsafe-no-fsync --log-level warn \
		--listen-client-urls http://127.0.0.1:22379 --advertise-client-urls http://127.0.0.1:22379 \
		--listen-peer-urls http://127.0.0.1:22380 --initial-advertise-peer-urls http://127.0.0.1:22380 \
		--initial-cluster default=http://127.0.0.1:22380
	start kube-apiserver "$BIN/kube-apiserver" \
		--etcd-servers=http://127.0.0.1:22379 --secure-port=6443 --bind-address=0.0.0.0 --advertise-address="$SERVER" \
		--tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --client-ca-file="$PKI/ca.crt" \
		--kubelet-client-certificate="$PKI/apiserver-kubelet-client.crt" --kubelet-client-key="$PKI/apiserver-kubelet-client.key" \
		--kubelet-preferred-address-types=InternalIP --allow-privileged=true \
		--service-account-issuer=https://kubernetes.default.svc.cluster.local \
		--service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" \
		--service-cluster-ip-range="$SERVICES" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction
	wait_for 90 "the API server" "$BIN/kubectl" get --raw /readyz
	local common=(--kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1)
	start kube-scheduler "$BIN/kube-scheduler" "${common[@]}"
	start kube-controller-manager "$BIN/kube-controller-manager" "${common[@]}" --use-service-account-credentials=true \
		--allocate-node-cidrs=true --cluster-cidr="$PODS" --service-cluster-ip-range="$SERVICES" --root-ca-file="$PKI/ca.crt" \
		--cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" --service-account-private-key-file="$PKI/sa.key"
}

node() { # nX
	local n=$1 root=$RUN/nodes/$1 group folder
	for folder in $FOLDERS; do
		mkdir -p "$root$folder"
		[ -d "$folder" ] || { mkdir -p "$folder" && echo "$folder" >>"$RUN/folders"; }
	done
	mkdir -p "$root/etc/cni/net.d" "$root/opt/cni/bin"
	echo "$n $RANDOM" | md5sum | cut -c1-32 >"$root/etc/machine-id"
	for group in /sys/fs/cgroup/*/; do
		[ -e "$group/cgroup.procs" ] || continue
		mkdir "$group/porin-$n"
		[ ! -e "$group/cpuset.cpus" ] || for file in cpuset.cpus cpuset.mems; do cat "$group/$file" >"$group/porin-$n/$file"; done
	done
	power_on "$n"

	local d=$root/etc/kubernetes
	cert "kubelet-$n" "/O=system:nodes/CN=system:node:$n"
	kubeconfig "$d/kubelet.conf" "kubelet-$n"
	cp "$RUN/admin.conf" "$PKI/ca.crt" "$d/"
	cp "$CNI_BIN"/* "$root/opt/cni/bin/"
	echo "nameserver $SERVER" >"$d/resolv.conf" # nothing listens there: a cluster without a way out
	cat >"$d/containerd.toml" <<-TOML
	version = 3
	[grpc]
	  address = "/run/containerd/containerd.sock"
	[plugins.'io.containerd.cri.v1.runtime']
	  restrict_oom_score_adj = true # for machines whose root lacks CAP_SYS_RESOURCE
	[plugins.'io.containerd.cri.v1.images'.pinned_images]
	  sandbox = "$PAUSE"
	[plugins.'io.containerd.cri.v1.runtime'.cni]
	  bin_dirs = ["/opt/cni/bin"]
	  conf_dir = "/etc/cni/net.d"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
	  runtime_type = "io.containerd.runc.v2"
	  options = {BinaryName = "$BIN/$RUNTIME", SystemdCgroup = false}
	TOML
	cat >"$d/kubelet.yaml" <<-YAML
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/ca.crt}}
	authorization: {mode: Webhook}
	containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
	cgroupDriver: cgroupfs
	cgroupRoot: /porin-$n
	failCgroupV1: false
	failSwapOn: false
	clusterDomain: cluster.local
	clusterDNS: [10.96.0.10]
	resolvConf: /etc/kubernetes/resolv.conf
	healthzBindAddress: 127.0.0.1
	# Images that are gone cannot be pulled again.
	imageGCHighThresholdPercent: 100
	imageGCLowThresholdPercent: 99
	maxPods: 120 # 110 of the benchmark, and those of the cluster
	evictionHard: {memory.available: 100Mi, nodefs.available: 1Gi, imagefs.available: 1Gi}
	YAML
	cat >"$d/kube-proxy.yaml" <<-YAML
	apiVersion: kubeproxy.config.k8s.io/v1alpha1
	kind: KubeProxyConfiguration
	mode: $PROXY
	clusterCIDR: $PODS
	clientConnection: {kubeconfig: /etc/kubernetes/admin.conf}
	conntrack: {maxPerCore: 0, min: 0} # a network namespace cannot change the limits
	YAML
	[ "$CNI" != bridge ] || bridge "$n" # before containerd, which reads the folder before it begins to watch it
	start "containerd-$n" "$BIN/containerd" --config /etc/kubernetes/containerd.toml
	wait_for 30 "containerd on $n" in_node "$n" ctr version
	for archive in pause e2e; do in_node "$n" ctr -n k8s.io images import "$IMAGES/$archive.tar" >/dev/null 2>&1; done
	# The Node is made here, so that its podCIDRs and its zone follow from its name.
	"$BIN/kubectl" create -f - >/dev/null <<-YAML
	apiVersion: v1
	kind: Node
	metadata: {name: $n, labels: {topology.kubernetes.io/zone: $n}}
	spec: {podCIDR: 10.244.${n#n}.0/24, podCIDRs: [10.244.${n#n}.0/24$(! dual || echo ", 'fd00:10:244:${n#n}::/64'")]}
	YAML
	start "kubelet-$n" "$BIN/kubelet" --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf --hostname-override="$n" \
		--node-ip="$(ip4 "$n")$(! dual || echo ",$(ip6 "$n")")"
	[ "$PROXY" = none ] || start "kube-proxy-$n" "$BIN/kube-proxy" --config=/etc/kubernetes/kube-proxy.yaml --hostname-override="$n"
	# The API server, which is on no node, reaches pods by these: webhooks, and kubectl proxy.
	ip route replace "10.244.${n#n}.0/24" via "$(ip4 "$n")"
	! dual || ip -6 route replace "fd00:10:244:${n#n}::/64" via "$(ip6 "$n")"
}
bridge() { # nX: the reference plugins, and routes to the other nodes
	local n=$1 o
	cat >"$RUN/nodes/$n/etc/cni/net.d/10-bridge.conflist" <<-JSON
	{"cniVersion": "1.0.0", "name": "bridge", "plugins": [
	  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
	   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.${n#n}.0/24"}]$(! dual || echo ", [{\"subnet\": \"fd00:10:244:${n#n}::/64\"}]")],
	            "routes": [{"dst": "0.0.0.0/0"}$(! dual || echo ', {"dst": "::/0"}')]}},
	  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	JSON
	for o in $(seq "$NODES"); do
		[ "n$o" != "$n" ] || continue
		in_node "$n" ip route replace "10.244.$o.0/24" via "$(ip4 "n$o")"
		! dual || in_node "$n" ip -6 route replace "fd00:10:244:$o::/64" via "$(ip6 "n$o")"
	done
}

touch "$RUN/folders"
# The kubelet changes all but the last of these on the whole machine; down.sh sets them back.
for key in vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes \
	fs.inotify.max_user_instances; do
	echo "$key=$(sysctl -n $key)"
done >"$RUN/sysctls"
sysctl -qw fs.inotify.max_user_instances=1024
certificates
network
control_plane
for i in $(seq "$NODES"); do node "n$i"; done
"$BIN/kubectl" apply -f "$here/coredns.yaml" >/dev/null
if [ "$CNI" = bridge ]; then
	"$BIN/kubectl" wait --for=condition=Ready node --all --timeout=90s >/dev/null
fi
say "up after $SECONDS s: export KUBECONFIG=$KUBECONFIG PATH=$BIN:\$PATH"
