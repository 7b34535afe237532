package dnsname

import (
	"bytes"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestAppendText(t *testing.T) {
	label := func(n int) string { return string(rune(n)) + strings.Repeat("a", n) }
	long := label(63) + label(63) + label(63)
	for _, tt := range []struct {
		name, msg string
		off       int
		pointers  bool
		want      string // empty: none
		next      int
	}{
		{"root", "\x00", 0, false, ".", 1},
		{"name", "\x03wWw\x07Example\x00rest", 0, false, "www.example", 13},
		{"escapes", "\x0aa.b\\c \x00\x7f\xff\"\x00", 0, false, `a\046b\092c\032\000\127\255"`, 12},
		{"longest", long + label(61) + "\x00", 0, false, strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("a", 61), 255},
		{"too long", long + label(62) + "\x00", 0, false, "", 0},
		{"empty", "", 0, false, "", 0},
		{"behind the end", "\x00", 1, false, "", 0},
		{"without end", "\x01a", 0, false, "", 0},
		{"cut label", "\x02a", 0, false, "", 0},
		{"label of 64", "\x40" + strings.Repeat("a", 64) + "\x00", 0, true, "", 0},
		{"reserved label", "\x81a\x00", 0, true, "", 0},
		{"pointer", "\x01b\x00\x01a\xc0\x00rest", 3, true, "a.b", 7},
		{"pointer alone", "\x01b\x00\xc0\x00", 3, true, "b", 5},
		{"pointer to the root", "\x00\x01a\xc0\x00", 1, true, "a", 5},
		{"pointer to a pointer", "\x01c\x00\x01b\xc0\x00\x01a\xc0\x03", 7, true, "a.b.c", 11},
		{"pointer not allowed", "\x01b\x00\x01a\xc0\x00", 3, false, "", 0},
		{"pointer to itself", "\xc0\x00", 0, true, "", 0},
		{"pointer to its own name", "\x01a\xc0\x00", 0, true, "", 0},
		{"pointer forward", "\xc0\x02\x01a\x00", 0, true, "", 0},
		{"pointers in a circle", "\x01a\xc0\x04\x01b\xc0\x00", 4, true, "", 0},
		{"cut pointer", "\x01a\xc0", 0, true, "", 0},
		{"too long by a pointer", long + label(61) + "\x00\x01b\xc0\x00", 255, true, "", 0},
	} {
		text, next, err := AppendText([]byte("x"), []byte(tt.msg), tt.off, tt.pointers)
		if tt.want == "" {
			if err == nil {
				t.Errorf("%s: %s, want an error", tt.name, text)
			}
			continue
		}
		if err != nil || string(text) != "x"+tt.want || next != tt.next {
			t.Errorf("%s: %s, %d, %v, want x%s, %d", tt.name, text, next, err, tt.want, tt.next)
		}
		if skipped, err := Skip([]byte(tt.msg), tt.off); err != nil || skipped != tt.next {
			t.Errorf("%s: skipped to %d, %v, want %d", tt.name, skipped, err, tt.next)
		}
	}
}

// FuzzAppendText compares names with another library's.
func FuzzAppendText(f *testing.F) {
	f.Add([]byte("\x03wWw\x07Example\x00rest"), 0)
	f.Add([]byte("\x01c\x00\x01b\xc0\x00\x01a\xc0\x03"), 7)
	f.Add([]byte("\x05a.b\\ \x00"), 0)
	f.Fuzz(func(t *testing.T, msg []byte, off int) {
		if off < 0 || off > len(msg) {
			return
		}
		text, next, err := AppendText(nil, msg, off, true)
		other, otherNext, otherErr := dns.UnpackDomainName(msg, off)
		if err != nil {
			return // the other one accepts more: pointers forward
		}
		if otherErr != nil || next != otherNext {
			t.Fatalf("%x is %s until %d, and for the other %s until %d: %v", msg, text, next, other, otherNext, otherErr)
		}
		ours, theirs := make([]byte, 256), make([]byte, 256)
		n, err := dns.PackDomainName(dns.Fqdn(string(text)), ours, 0, nil, false)
		if err != nil {
			t.Fatalf("%s is no name: %s", text, err)
		}
		m, err := dns.PackDomainName(other, theirs, 0, nil, false)
		if err != nil {
			t.Fatalf("%s is no name: %s", other, err)
		}
		if !bytes.Equal(ours[:n], lower(theirs[:m])) {
			t.Fatalf("%x is %s, and for the other %s", msg, text, other)
		}
		if skipped, err := Skip(msg, off); err != nil || skipped != next {
			t.Fatalf("skipped to %d, %v, want %d", skipped, err, next)
		}
	})
}

// lower changes no length of a label: those are below "A".
func lower(name []byte) []byte {
	name = bytes.Clone(name)
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			name[i] = c + 'a' - 'A'
		}
	}
	return name
}
