package spec

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseGiven(t *testing.T) {
	for _, c := range []struct{ text, ipv4, ipv6, dns, fault string }{
		{text: `{"ips":[{"address":"10.1.0.5/16","gateway":"10.1.0.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}`, ipv4: "10.1.0.5", dns: "{}"},
		{text: `{"cniVersion":"0.3.1","ips":[{"version":"6","address":"fd00::5/64"},{"version":"4","address":"10.0.0.1/8"}],"dns":null}`, ipv4: "10.0.0.1", ipv6: "fd00::5"},
		{text: `{"ips":[{"address":"::ffff:10.0.0.1/128"}]}`, ipv4: "10.0.0.1"},
		{text: `{"ips":null,"interfaces":7}`},
		{text: `{"ips":[{"address":"10.0.0.1/8"},{"address":"fd00::1/64"},{"address":"10.0.0.2/8"}]}`, ipv4: "10.0.0.1", ipv6: "fd00::1", fault: "10.0.0.1 and 10.0.0.2, two of one family"},
		{text: `{"ips":[{"address":"fd00::1/64"},{"address":"fd00::1/64"}]}`, ipv6: "fd00::1", fault: "fd00::1 and fd00::1, two of one family"},
		{text: `{"ips":[{"address":"10.0.0.1"}]}`, fault: "ips: netip.ParsePrefix"},
		{text: `{"ips":[{"address":null}]}`, fault: "ips: want a string"},
		{text: `{"ips":[7]}`, fault: "ips: want an object"},
		{text: `{"ips":{}}`, fault: "ips: want a list"},
		{text: `{"dns":{"search":"x"}}`, fault: "dns: search: want a list"},
		{text: `[]`, fault: "want an object"},
		{text: ``, fault: "not JSON"},
	} {
		got, err := ParseGiven([]byte(c.text))
		if err == nil {
			err = got.Excess("fake")
		}
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, want %q", c.text, err, c.fault)
		}
		if c.fault != "" && c.ipv4+c.ipv6 == "" {
			continue // of what cannot be read nothing is used
		}
		text := func(addr interface {
			IsValid() bool
			String() string
		}) string {
			if !addr.IsValid() {
				return ""
			}
			return addr.String()
		}
		if text(got.Addresses.IPv4) != c.ipv4 || text(got.Addresses.IPv6) != c.ipv6 || string(got.DNS) != c.dns {
			t.Errorf("%s: %+v", c.text, got)
		}
	}
}

func TestParseError(t *testing.T) {
	for text, want := range map[string]Error{
		`{"cniVersion":"1.1.0","code":7,"msg":"a","details":"b"}`: {Code: 7, Msg: "a", Hint: "b"},
		`{"code":100,"msg":"a","details":null,"more":{}}`:         {Code: 100, Msg: "a"},
		`{"code":7}`:                {},
		`{"msg":"a"}`:               {},
		`{"code":"7","msg":"a"}`:    {},
		`{"code":-1,"msg":"a"}`:     {},
		`{"code":7,"msg":"a"} oops`: {},
		`{"code":7,"msg":"a"`:       {},
		``:                          {},
	} {
		got, ok := ParseError([]byte(text))
		if ok != (want != Error{}) || ok && *got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, ok, want)
		}
	}
}

// FuzzParseGiven reads what any program may print: no panic, and what is accepted is JSON.
func FuzzParseGiven(f *testing.F) {
	f.Add([]byte(`{"ips":[{"address":"10.1.0.5/16","gateway":"10.1.0.1"}],"dns":{}}`))
	f.Add([]byte(`{"code":7,"msg":"a"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := ParseGiven(text)
		_, ok := ParseError(text)
		if (err == nil || ok) && !json.Valid(text) {
			t.Errorf("%q is accepted", text)
		}
	})
}
