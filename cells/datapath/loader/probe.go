package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// loopback is the index of lo in every network namespace.
const loopback = 1

// required is what no program can do without, and the kernel that brought it.
var required = []struct {
	what, since string
	probe       func() error
}{
	{"BPF programs for tc", "4.1", func() error { return features.HaveProgramType(ebpf.SchedCLS) }},
	{"per-CPU hash maps", "4.6", func() error { return features.HaveMapType(ebpf.PerCPUHash) }},
	{"32-bit BPF instructions (mcpu v3)", "5.1", features.HaveV3ISA},
	{"programs that run without a packet (BPF_PROG_TYPE_SYSCALL)", "5.14", func() error { return features.HaveProgramType(ebpf.Syscall) }},
	{"bpf_ktime_get_coarse_ns", "5.11", func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnKtimeGetCoarseNs) }},
	{"bpf_redirect_peer", "5.10", func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnRedirectPeer) }},
}

// probe names everything that the kernel lacks. It takes milliseconds: it runs when programs are loaded, not when
// they are adopted.
func probe() error {
	var errs []error
	for _, r := range required {
		if err := r.probe(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s, in Linux %s and later: %w", ErrKernel, r.what, r.since, err))
		}
	}
	return errors.Join(errs...)
}

// optional lists kernel features that Porin can do without, with the replacement. The attach types are those of
// linux/bpf.h.
var optional = []struct {
	attach ebpf.AttachType
	text   string
}{
	{ebpf.AttachTCXEgress, "TCX (Linux 6.6): the node's devices get the qdisc clsact with the first egress policy, or when the first other node is known"},
}

// withoutConntrack is what a kernel lacks whose connection tracking programs cannot ask.
const withoutConntrack = "bpf_skb_ct_lookup (Linux 5.18, nf_conntrack with BTF): only connections that begin with a SYN or a ping take the shortcut between pods, and connections to pods of other nodes go through the stack"

// MissingFeatures lists what is optional and not there. It takes microseconds: the kernel refuses to list the programs
// of a kind that it does not know, whatever the device.
func (o *Objects) MissingFeatures() (texts []string) {
	if !o.Programs.FromPod.asksConntrack() {
		texts = append(texts, withoutConntrack)
	}
	for _, f := range optional {
		if !hasAttachType(f.attach) {
			texts = append(texts, f.text)
		}
	}
	return texts
}

// HasTCX reports whether the kernel has TCX.
func HasTCX() bool { return hasAttachType(ebpf.AttachTCXEgress) }

func hasAttachType(t ebpf.AttachType) bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: t})
	return !errors.Is(err, unix.EINVAL) && !errors.Is(err, ebpf.ErrNotSupported)
}
