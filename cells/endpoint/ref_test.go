package endpoint

import (
	"net/netip"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
)

func TestRefRoundTrip(t *testing.T) {
	for _, ref := range []Ref{
		ByID(1), ByID(65535), ByContainerID("c1"), ByPodName("ns", "web-0"),
		ByAttachment(Attachment{"c1", "eth0"}), ByAddress(netip.MustParseAddr("10.0.0.1")), ByAddress(netip.MustParseAddr("fd00::1")),
	} {
		got, err := ParseRef(ref.String())
		if err != nil || got != ref {
			t.Errorf("ParseRef(%q) = %v, %v", ref, got, err)
		}
	}
}

func TestShortReferences(t *testing.T) {
	for text, want := range map[string]Ref{
		"ns/web-0": ByPodName("ns", "web-0"), "10.0.0.1": ByAddress(netip.MustParseAddr("10.0.0.1")), "fd00::1": ByAddress(netip.MustParseAddr("fd00::1")),
	} {
		if got, err := ParseRef(text); err != nil || got != want {
			t.Errorf("ParseRef(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestParseRefInvalid(t *testing.T) {
	for _, text := range []string{
		"", "0", "-1", "65536", "1.5", "container-id:", "container-id:../../etc", "container-id:a/b", "container-id:a b",
		"container-id:" + strings.Repeat("a", v1.MaxContainerID+1), "cni-attachment-id:c1", "cni-attachment-id:c1:",
		"cni-attachment-id:c1:eth/0", "cni-attachment-id:c1:..", "cni-attachment-id:c1:" + strings.Repeat("e", 16),
		"/web", "ns/", "fe80::1%eth0", "c1", "pod-name:web", "pod-name:/web", "pod-name:ns/", "ipv4:fd00::1", "ipv6:10.0.0.1", "ipv6:fe80::1%eth0", "mac:1", "ipv4:",
	} {
		if _, err := ParseRef(text); fault.KindOf(err) != fault.Invalid {
			t.Errorf("ParseRef(%q): error %v, want one of kind invalid", text, err)
		}
	}
}

func TestParseRefMappedAddress(t *testing.T) {
	if got, want := ByAddress(netip.MustParseAddr("::ffff:10.0.0.1")), ByAddress(netip.MustParseAddr("10.0.0.1")); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzParseRef(f *testing.F) {
	for _, seed := range []string{"1", "container-id:c1", "cni-attachment-id:c1:eth0", "pod-name:a/b", "ipv4:10.0.0.1", "ipv6:::1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := ParseRef(text)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("ParseRef(%q): error %v is not of kind invalid", text, err)
			}
			return
		}
		again, err := ParseRef(ref.String())
		if err != nil || again != ref {
			t.Fatalf("ParseRef(%q) = %v, which reads as %v, %v", text, ref, again, err)
		}
	})
}
