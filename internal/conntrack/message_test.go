package conntrack

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// FuzzDecode reads the attributes of a kernel's possible answer, with bytes after the message: a request's attributes
// are like them.
func FuzzDecode(f *testing.F) {
	packet := Tuple{netip.MustParseAddrPort("10.1.0.2:40000"), netip.MustParseAddrPort("10.96.0.1:80")}
	for _, protocol := range []uint8{6, 1} {
		f.Add(appendRequest(nil, protocol, packet, false)[headerLength:], []byte{1})
	}
	f.Fuzz(func(t *testing.T, attributes, after []byte) {
		answer := append(make([]byte, headerLength), attributes...)
		binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
		c, err := decode(answer)
		if again, againErr := decode(append(answer, after...)); again != c || (err == nil) != (againErr == nil) {
			t.Errorf("%v, %v, and with something after it %v, %v", c, err, again, againErr)
		}
	})
}

func TestDecodeRequest(t *testing.T) {
	for _, text := range []string{"10.1.0.2:40000", "[fd00::2]:40000"} {
		end := netip.MustParseAddrPort(text)
		want := Tuple{end, netip.AddrPortFrom(end.Addr().Next(), 80)}
		if c, err := decode(appendRequest(nil, 6, want, false)); err != nil || c.Original != want {
			t.Errorf("%v, %v, want %v", c.Original, err, want)
		}
	}
	if _, err := decode(make([]byte, 3)); err == nil {
		t.Error("a short answer is no error")
	}
}
