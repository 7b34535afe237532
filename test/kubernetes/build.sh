#!/bin/bash
# Builds the programs and images of the cluster and of upstream's tests, once a machine: from the Go module proxy, and the image's Linux programs from
# Debian. It builds what is missing in $PORIN_KUBERNETES_DIR, and needs root for apt-get.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
SOURCES=$DIR/src
mkdir -p "$BIN" "$CNI_BIN" "$IMAGES" "$SOURCES"
export GOWORK=off GOFLAGS='-mod=mod -buildvcs=false -trimpath' CGO_ENABLED=0
GO=${GO:-go}

# The version of test/kube-apiserver. Outside of its repository the modules of its staging folder have versions v0.x.y.
KUBERNETES=$(sed -n 's#^\tk8s.io/kubernetes \(v[^ ]*\).*#\1#p' "$here/../kube-apiserver/go.mod")
upstream() { (cd "$here/../kube-apiserver" && "$GO" mod download k8s.io/kubernetes && "$GO" list -m -f '{{.Dir}}' k8s.io/kubernetes); }
kubernetes_module() {
	local upstream
	upstream=$(upstream)
	{
		echo "module kubernetes"
		grep -E '^(go|godebug) ' "$upstream/go.mod"
		echo "require k8s.io/kubernetes $KUBERNETES"
		sed -n "s#^\t\(k8s.io/[a-z-]*\) => ./staging.*#replace \1 => \1 v0.${KUBERNETES#v1.}#p" "$upstream/go.mod"
	} >"$1/go.mod"
	cp "$upstream/go.sum" "$1/" && chmod u+w "$1/go.sum"
}
# program FILE MODULE VERSION PACKAGE [LDFLAGS [TAGS]]; a package e2e.test is a program of tests
program() {
	local file=$1 module=$2 version=$3 package=$4 d=$SOURCES/${2//\//_}@$3 build=build
	[ ! -x "$file" ] || return 0
	say "building ${file##*/}"
	if [ ! -f "$d/go.mod" ]; then
		mkdir -p "$d"
		if [ "$module" = k8s.io/kubernetes ]; then
			kubernetes_module "$d"
		else
			printf 'module program\ngo 1.26.0\nrequire %s %s\n' "$module" "$version" >"$d/go.mod"
		fi
	fi
	[ "${file##*/}" != e2e.test ] || build='test -c -vet=off'
	# An interrupted build leaves no file of this name.
	(cd "$d" && nice "$GO" $build -tags "${6:-}" -ldflags "-s -w ${5:-}" -o "$file.new" "$package") && mv "$file.new" "$file"
}
kubernetes() { # FILE PACKAGE
	local minor=${KUBERNETES#v1.} flags='' variable
	for variable in gitVersion="$KUBERNETES" gitMajor=1 gitMinor="${minor%.*}" gitTreeState=archive; do
		flags+=" -X k8s.io/component-base/version.$variable -X k8s.io/client-go/pkg/version.$variable"
	done
	program "$1" k8s.io/kubernetes "$KUBERNETES" "$2" "$flags"
}
# image FILE ROOT COMMAND NAME...: an archive as of "docker save" with one layer
image() {
	local tmp names
	tmp=$(mktemp -d -p "$IMAGES")
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$2" -cf "$tmp/layer.tar" .
	cat >"$tmp/config.json" <<-JSON
	{"architecture": "$("$GO" env GOARCH)", "os": "linux", "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], $3},
	 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum <"$tmp/layer.tar" | cut -d' ' -f1)"]}}
	JSON
	names=$(printf '"%s",' "${@:4}")
	echo "[{\"Config\": \"config.json\", \"RepoTags\": [${names%,}], \"Layers\": [\"layer.tar\"]}]" >"$tmp/manifest.json"
	tar -C "$tmp" -cf "$1.new" manifest.json config.json layer.tar
	mv "$1.new" "$1"
	rm -r "$tmp"
}
# debian ROOT PACKAGE...: unpacks packages, and packages that they depend on, without running any of their scripts
debian() {
	local root=$1 d=$SOURCES/debian package folder
	mkdir -p "$d" "$root"/usr/{bin,sbin,lib,lib64}
	for folder in bin sbin lib lib64; do ln -sfn "usr/$folder" "$root/$folder"; done
	(cd "$d" && apt-get download -qq -o APT::Sandbox::User=root $(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
		"${@:2}" | grep '^[a-z]' | grep -vE '^(debconf|cdebconf|perl|dpkg|adduser|passwd|ucf|init-system-helpers|sensible-utils|install-info|libpam)' | sort -u))
	for package in "$d"/*.deb; do
		dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root" --exclude='./usr/share/*'
	done
}

for name in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
	kubernetes "$BIN/$name" k8s.io/kubernetes/cmd/$name
done
program "$BIN/etcd" go.etcd.io/etcd/server/v3 v3.6.16 go.etcd.io/etcd/server/v3
containerd=github.com/containerd/containerd/v2
for name in containerd containerd-shim-runc-v2 ctr; do
	program "$BIN/$name" $containerd v2.2.9 $containerd/cmd/$name "-X $containerd/version.Version=v2.2.9" "netgo osusergo no_btrfs no_devmapper no_zfs"
done
if [ ! -x "$BIN/runc" ]; then # with seccomp, which takes a C compiler
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev libseccomp-dev pkg-config; } >/dev/null
	CGO_ENABLED=1 program "$BIN/runc" github.com/opencontainers/runc v1.3.6 github.com/opencontainers/runc \
		"-X main.version=1.3.6 -extldflags -static" "netgo osusergo seccomp"
fi
command -v crun >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends crun; } >/dev/null
# Debian's crun refuses containerd's version of the specification, of which containers here need nothing new; and says
# that a container has ended in words that containerd does not know, which would leave the pod in deletion.
cat >"$BIN/crun" <<-'SH'
	#!/bin/sh
	for argument; do
	  case $before in
	  --bundle) sed -i 's/"ociVersion":"1\.[1-9][^"]*"/"ociVersion":"1.0.2"/' "$argument/config.json" ;;
	  --log) log=$argument ;;
	  esac
	  [ "$argument" != kill ] || kill=yes
	  before=$argument
	done
	[ "$kill" ] || exec /usr/bin/crun "$@"
	/usr/bin/crun "$@" && exit
	sed -i 's/ is not running/ has ended: container not running/' "$log"
	exit 1
SH
chmod +x "$BIN/crun"
program "$BIN/crictl" sigs.k8s.io/cri-tools v1.36.0 sigs.k8s.io/cri-tools/cmd/crictl
plugins=github.com/containernetworking/plugins
for name in main/bridge main/loopback ipam/host-local meta/portmap; do
	program "$CNI_BIN/${name#*/}" $plugins v1.9.1 $plugins/plugins/$name "-X $plugins/pkg/utils/buildversion.BuildVersion=v1.9.1"
done
kubernetes "$BIN/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
kubernetes "$BIN/e2e.test" k8s.io/kubernetes/test/e2e
# The tests of network-policy-api and its kind, each time: their module is of this checkout.
(
	cd "$here/networkpolicyapi" && export GOFLAGS='-buildvcs=false -trimpath'
	"$GO" test -c -vet=off -ldflags '-s -w' -o "$BIN/networkpolicyapi.test" .
	"$GO" build -ldflags '-s -w' -o "$BIN/agnhost-sctp" ./agnhost-sctp
	install -m 644 "$("$GO" list -m -f '{{.Dir}}' sigs.k8s.io/network-policy-api)/config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml" \
		"$BIN/networkpolicyapi.yaml"
)

if [ ! -f "$IMAGES/pause.tar" ]; then
	mkdir -p "$SOURCES/pause"
	gcc -Os -static -DVERSION=test -o "$SOURCES/pause/pause" "$(upstream)/build/pause/linux/pause.c"
	image "$IMAGES/pause.tar" "$SOURCES/pause" '"Entrypoint": ["/pause"], "User": "65535:65535"' "$PAUSE"
fi
# One image serves under the names of several that upstream's tests use, with agnhost, CoreDNS, a shell, curl, nc, dig, wget and iproute2.
if [ ! -f "$IMAGES/e2e.tar" ]; then
	say "building the image of the tests"
	kubernetes "$BIN/agnhost-full" k8s.io/kubernetes/test/images/agnhost
	# What runs most often is a program of its own: all of agnhost initializes for 100 ms, and upstream's tests start it for each request.
	mkdir -p "$SOURCES/k8s.io_kubernetes@$KUBERNETES/agnhost"
	cat >"$SOURCES/k8s.io_kubernetes@$KUBERNETES/agnhost/main.go" <<-'GO'
	package main

	import (
		"os"
		"syscall"

		"github.com/spf13/cobra"
		"k8s.io/kubernetes/test/images/agnhost/connect"
		"k8s.io/kubernetes/test/images/agnhost/netexec"
		"k8s.io/kubernetes/test/images/agnhost/pause"
		"k8s.io/kubernetes/test/images/agnhost/porter"
		servehostname "k8s.io/kubernetes/test/images/agnhost/serve-hostname"
	)

	func main() {
		root := &cobra.Command{}
		root.AddCommand(connect.CmdConnect, netexec.CmdNetexec, pause.CmdPause, porter.CmdPorter, servehostname.CmdServeHostname)
		if command, _, err := root.Find(os.Args[1:]); err != nil || command == root {
			_ = syscall.Exec("/agnhost-full", os.Args, os.Environ())
		}
		if root.Execute() != nil {
			os.Exit(1)
		}
	}
	GO
	kubernetes "$BIN/agnhost" ./agnhost
	root=$IMAGES/e2e coredns=$SOURCES/github.com_coredns_coredns@v1.14.7
	rm -rf "$root" && mkdir -p "$root"/{uploads,tmp,etc,root,var/tmp} && chmod 1777 "$root"/{tmp,var/tmp}
	debian "$root" busybox-static dash bash libc-bin curl netcat-openbsd bind9-dnsutils iproute2 wget
	for applet in $("$root/bin/busybox" --list-full); do
		[ -e "$root/$applet" ] || { mkdir -p "$root/$(dirname "$applet")" && ln -s /bin/busybox "$root/$applet"; }
	done
	ln -sf nc.openbsd "$root/usr/bin/nc"
	ln -sf dash "$root/usr/bin/sh" # busybox would prefer its own curl, nc, ip and wget
	echo "tries = 1" >"$root/etc/wgetrc"
	printf '%s\n' root:x:0:0::/root:/bin/sh nobody:x:65534:65534::/:/bin/false user-defined-in-image:x:1000:1000::/home:/bin/sh >"$root/etc/passwd"
	printf '%s\n' root:x:0: nogroup:x:65534: user-defined-in-image:x:1000: group-defined-in-image:x:50000:user-defined-in-image >"$root/etc/group"
	cp "$BIN"/agnhost{,-full} "$root/" && ln -sf agnhost "$root/agnhost-2"
	install -m 644 "$(upstream)"/test/images/agnhost/porter/localhost.{crt,key} "$root/"
	# CoreDNS has its list of plugins in the program: these need no cloud's libraries.
	mkdir -p "$coredns"
	{
		printf 'package main\nimport (\n"github.com/coredns/coredns/core/dnsserver"\n"github.com/coredns/coredns/coremain"\n'
		printf '_ "github.com/coredns/coredns/plugin/%s"\n' health ready log errors cache hosts kubernetes
		printf ')\nfunc main() {\ndnsserver.Directives = []string{"health", "ready", "log", "errors", "cache", "hosts", "kubernetes"}\ncoremain.Run()\n}\n'
	} >"$coredns/main.go"
	program "$root/coredns" github.com/coredns/coredns v1.14.7 .
	names=() # as this version of the tests wants them
	for name in Agnhost AgnhostPrev BusyBox GlibcDnsTesting Nginx; do
		names+=("registry.k8s.io/e2e-test-images/$(sed -n "s/^\tconfigs\[$name\] *= Config{[^,]*, \"\([^\"]*\)\", \"\([^\"]*\)\"}.*/\1:\2/p" \
			"$(upstream)/test/utils/image/manifest.go")")
	done
	image "$IMAGES/e2e.tar" "$root" '"Entrypoint": ["/agnhost"], "Cmd": ["pause"]' "${names[@]}" porin.test/coredns:latest
	rm -r "$root"
fi
say "built: $DIR"
