#!/bin/bash
# Runs a command on another kernel: one of Debian's, in an emulated machine with two CPUs and without disk and network.
#
#   vm.sh VERSION DIR COMMAND    vm.sh 6.1 bin/kernels 'sh tests.sh'
#
# A copy of DIR is /vm in the machine and the working directory of the command, which runs as root. Its output and its exit
# status are those of this script. The machine has busybox and the kernel's network modules, so that all programs must be
# static (CGO_ENABLED=0). It is emulated, as a virtual machine often cannot have others: a program takes 5 to 15 times as long
# as outside, and figures of speed mean nothing.
#
# KERNEL_CACHE (/var/tmp/porin-kernels) keeps the kernels. VM_TIMEOUT (2700 s) and VM_MEMORY (3072 MiB) bound the machine.
set -euo pipefail

[ $# = 3 ] && [ -d "$2" ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
version=$1 dir=$2 command=$3
cache=${KERNEL_CACHE:-/var/tmp/porin-kernels}
export PATH=$PATH:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive
mkdir -p "$cache"

# install_tools gets what is missing from the distribution.
install_tools() {
	local tool
	for tool in qemu-system-x86_64 busybox cpio depmod xz; do
		command -v "$tool" >/dev/null && continue
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends qemu-system-x86 seabios busybox-static cpio kmod xz-utils >/dev/null
		return
	done
}

# newest_package names the newest kernel of the version: linux-image-6.1.0-56-cloud-amd64.
newest_package() {
	apt-cache search --names-only "^linux-image-${version//./\\.}[.+-].*[0-9]-cloud-amd64\$" | awk '{print $1}' | sort -V | tail -1
}

# unpack_kernel makes $kernel: vmlinuz, and base/ with the modules that have to do with networks.
unpack_kernel() {
	local work=$cache/$package.$$ release modules
	mkdir -p "$work/deb"
	(cd "$work" && apt-get download -qq "$package" >/dev/null 2>&1 && dpkg -x "$package"_*.deb deb)
	release=$(ls "$work/deb/lib/modules")
	modules=$work/base/lib/modules/$release
	mkdir -p "$modules"
	(cd "$work/deb/lib/modules/$release" && cp modules.builtin modules.order modules.builtin.modinfo "$modules/" &&
		find kernel/net kernel/lib kernel/crypto kernel/arch kernel/drivers/net -name '*.ko*' |
		grep -vE 'drivers/net/(ethernet|wireless|usb|phy|fddi|hamradio|can)' | cpio -pdm --quiet "$modules")
	find "$work/base" -name '*.ko.xz' -exec xz -d {} +
	depmod -b "$work/base" "$release"
	mv "$work"/deb/boot/vmlinuz-* "$work/vmlinuz"
	rm -rf "$work/deb" "$work"/*.deb
	mv -T "$work" "$kernel" 2>/dev/null || rm -rf "$work" # another run was faster
}

install_tools
package=$(newest_package)
if [ -z "$package" ]; then
	apt-get update -qq
	package=$(newest_package)
fi
[ -n "$package" ] || { echo "vm.sh: the distribution has no kernel $version" >&2; exit 2; }
kernel=$cache/$package
[ -e "$kernel/vmlinuz" ] || unpack_kernel

# The machine's only file system: modules, busybox, DIR.
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
mkdir -p "$run"/fs/{bin,proc,sys,dev,tmp,run,etc,root,vm,var/lib}
cp -a "$kernel/base/." "$run/fs/"
cp "$(command -v busybox)" "$run/fs/bin/busybox"
cp -a "$dir/." "$run/fs/vm/"
printf '%s\n' "$command" >"$run/fs/command"
cat >"$run/fs/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
ln -s /bin /sbin # where the kernel looks for modprobe
export PATH=/bin:/vm HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
for dir in /tmp /run /dev/shm; do mount -t tmpfs tmpfs $dir; done
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
modprobe -a ipv6 nf_conntrack_netlink 2>/dev/null # the kernel loads the others when they are asked for
echo root:x:0:0:root:/root:/bin/sh >/etc/passwd
echo root:x:0: >/etc/group
ip link set lo up
echo "== Linux $(uname -r)"
cd /vm
sh /command </dev/null
echo "vm-exit-$?"
poweroff -f
INIT
chmod +x "$run/fs/init"
(cd "$run/fs" && find . | cpio -o -H newc --quiet | gzip -1) >"$run/initrd.gz"

# One thread runs both CPUs in turn (thread=single): with a thread each, a CPU may run an instruction that the other one is patching, such as a jump label when a qdisc
# is added, and the kernel panics ("Oops: int3"). Real CPUs cannot.
#
# What comes before the init script's first line is the firmware's and the kernel's. (To ask for the last line, $, would hold back
# every line until the next one is there.)
timeout "${VM_TIMEOUT:-2700}" qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 2 -m "${VM_MEMORY:-3072}" \
	-nic none -nographic -no-reboot -kernel "$kernel/vmlinuz" -initrd "$run/initrd.gz" \
	-append 'console=ttyS0 quiet panic=-1' </dev/null 2>&1 |
	sed -un 's/\r//g; s/.*== Linux/== Linux/; /^== Linux/,/^vm-exit-/p' | tee "$run/out" |
	grep --line-buffered -avE '^vm-exit-|reboot: Power down' || true
status=$(sed -n 's/^vm-exit-//p' "$run/out" | tail -1)
[ -n "$status" ] || { echo "vm.sh: the machine ended before the command did" >&2; exit 125; }
exit "$status"
