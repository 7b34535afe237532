package spec

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestParseGiven(t *testing.T) {
	for _, c := range []struct{ text, ipv4, ipv6, dns, fault string }{
		{text: `{"ips":[{"address":"10.1.0.5/16","gateway":"10.1.0.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}`, ipv4: "10.1.0.5"},
		{text: `{"dns":{"nameservers":[],"domain":"","search":["a"]}}`, dns: `{"nameservers":[],"domain":"","search":["a"]}`},
		{text: `{"dns":{"nameservers":[],"domain":"","more":7}}`},
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
		{text: `{"ips":[{"address":"10.0.0.1/8"}],"routes":null}`, ipv4: "10.0.0.1"},
		{text: `{"routes":{}}`, fault: "routes: want a list"},
		{text: `{"routes":[7]}`, fault: "routes: want an object"},
		{text: `{"routes":[{"dst":"10.0.0.0"}]}`, fault: "routes: netip.ParsePrefix"},
		{text: `{"routes":[{"dst":7}]}`, fault: "routes: want a string"},
		{text: `{"ips":[{"address":"10.0.0.1/8","address":"10.0.0.2/8"}]}`, ipv4: "10.0.0.1", fault: "two of one family"},
		{text: `{"ips":[{"address":"10.0.0.1/8"}],"ips":[{"address":"10.0.0.2/8"}]}`, ipv4: "10.0.0.1", fault: "two of one family"},
		{text: `{"ips":[{"address":"fd00::1%eth0/64"}]}`, fault: "ips: netip.ParsePrefix"},
		{text: `{"ips":[{"address":"10.0.0.1/33"}]}`, fault: "ips: netip.ParsePrefix"},
		{text: `{"ips":[{"address":"10.0.0.1/8"}]} oops`, fault: "not JSON"},
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

// TestGivenRoutes are those of the main table, each once, but for the default; an IPv4-mapped one is of IPv4.
func TestGivenRoutes(t *testing.T) {
	text := `{"routes":[{"dst":"fd00::5/64","gw":"fd00::1"},{"dst":"10.1.2.3/16","gw":null},{"dst":"10.1.0.0/16","priority":7},{"dst":"::/0"},
		{"dst":"0.0.0.0/0","gw":"x"},{"dst":"::ffff:10.2.0.0/112"},{"dst":"::ffff:0.0.0.0/96"},{"dst":"10.3.0.0/16","table":100},{"dst":"10.4.0.0/16","table":null}]}`
	got, err := ParseGiven([]byte(text))
	if want := "[10.1.0.0/16 10.2.0.0/16 10.4.0.0/16 fd00::/64]"; err != nil || fmt.Sprint(got.Routes) != want {
		t.Errorf("%s, %v, want %s", got.Routes, err, want)
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

func TestParseVersions(t *testing.T) {
	for text, want := range map[string]string{
		`{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}`: "[0.4.0 1.0.0]",
		`{"supportedVersions":[]}`:                                     "[]",
		`{"supportedVersions":["1.0.0",7]}`:                            "[]",
		`{"supportedVersions":null}`:                                   "[]",
		`{}`:                                                           "[]",
		`1.0.0`:                                                        "[]",
	} {
		if got := fmt.Sprint(ParseVersions([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// FuzzParseGiven reads what any program may print: no panic, and what is accepted is JSON.
func FuzzParseGiven(f *testing.F) {
	f.Add([]byte(`{"ips":[{"address":"10.1.0.5/16","gateway":"10.1.0.1"}],"dns":{}}`))
	f.Add([]byte(`{"code":7,"msg":"a"}`))
	f.Add([]byte(`{"ips":[{"address":"::ffff:10.0.0.1/128"}],"routes":[{"dst":"10.1.2.3/16","table":null},{"dst":"::ffff:10.2.0.0/112"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		given, err := ParseGiven(text)
		fault, ok := ParseError(text)
		if (err == nil || ok) && !json.Valid(text) {
			t.Errorf("%q is accepted", text)
		}
		if ok && len(fault.Msg)+len(fault.Hint) > 2*(maxText+len("...")) {
			t.Errorf("an error of %d bytes is passed on", len(fault.Msg)+len(fault.Hint))
		}
		if versions := ParseVersions(text); len(versions) > 0 && !json.Valid(text) {
			t.Errorf("%q says which versions: %q", text, versions)
		}
		for i, dst := range given.Routes {
			if dst.Bits() <= 0 || dst != dst.Masked() || dst.Addr().Is4In6() || i > 0 && dst == given.Routes[i-1] {
				t.Errorf("routes %s", given.Routes)
			}
		}
		if a4, a6 := given.Addresses.IPv4, given.Addresses.IPv6; a4.IsValid() && !a4.Is4() || a6.IsValid() && (!a6.Is6() || a6.Is4In6() || a6.Zone() != "") {
			t.Errorf("addresses %+v", given.Addresses)
		}
	})
}
