package names

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy/dnsname"
)

func all(uint16) bool { return true }

func TestSaveAndLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "names")
		n := newNames(t, nil)
		if err := n.Load(path, all); err != nil {
			t.Fatalf("load without a file: %s", err)
		}
		n.Learn(1, "a", []dnsname.Address{address("192.0.2.1", time.Minute), address("2001:db8::1", time.Hour)})
		n.Learn(2, "a", []dnsname.Address{address("192.0.2.1", time.Minute)})
		n.Learn(3, `a\032"b`, []dnsname.Address{address("192.0.2.3", time.Hour)})
		want := n.List()
		if err := n.Save(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)

		used := use{"1 192.0.2.1": true}
		next := newNames(t, func(c *Config) { c.MinTTL, c.InUse = time.Minute, used.inUse })
		if err := next.Load(path, all); err != nil {
			t.Fatal(err)
		}
		sameTime := cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })
		if diff := cmp.Diff(want, next.List(), addrs, sameTime); diff != "" {
			t.Errorf("what was loaded (-want +got):\n%s", diff)
		}
		next.Expire()
		next.expectAddresses(t, 1, "a", "192.0.2.1", "2001:db8::1")
		next.expectAddresses(t, 2, "a")

		some := newNames(t, func(c *Config) { c.MaxTTL = time.Minute })
		if err := some.Load(path, func(endpoint uint16) bool { return endpoint == 3 }); err != nil {
			t.Fatal(err)
		}
		some.expectAddresses(t, 1, "a")
		some.expectAddresses(t, 3, `a\032"b`, "192.0.2.3")
		some.sleepAndExpire(time.Minute)
		some.expectAddresses(t, 3, `a\032"b`)
	})
}

func TestLoadReserved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	n := newNames(t, nil)
	n.Learn(1, "a", []dnsname.Address{address("192.0.2.1", time.Minute), address("192.0.2.2", time.Minute)})
	if err := n.Save(path); err != nil {
		t.Fatal(err)
	}
	next := newNames(t, func(c *Config) { c.Protected = func(a netip.Addr) bool { return a == addr("192.0.2.2") } })
	if err := next.Load(path, all); err != nil {
		t.Fatal(err)
	}
	next.expectAddresses(t, 1, "a", "192.0.2.1")
}

// TestSaveUnchanged looks whether the file is written again.
func TestSaveUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	n := newNames(t, nil)
	save := func(want bool) {
		t.Helper()
		if err := n.Save(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); (err == nil) != want {
			t.Errorf("removing the file: %v, want it written: %t", err, want)
		}
	}
	save(false)
	n.Learn(1, "a", []dnsname.Address{address("192.0.2.1", time.Minute)})
	save(true)
	save(false)
	n.Learn(1, "a", []dnsname.Address{address("192.0.2.1", time.Hour)})
	save(true)
	n.RemoveEndpoint(1)
	n.Admit(1)
	if err := n.Save(filepath.Join(path, "no folder")); err == nil {
		t.Error("it was saved where no folder is")
	}
	save(true)
}

func TestLoadDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "names")
	n := newNames(t, nil)
	n.Learn(1, "a", []dnsname.Address{address("192.0.2.1", time.Minute)})
	n.Learn(2, "b", []dnsname.Address{address("192.0.2.2", time.Minute)})
	if err := n.Save(path); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"empty":         {},
		"cut":           good[:len(good)-30],
		"without end":   bytes.TrimSuffix(good, []byte{'\n'}),
		"longer":        append(bytes.Clone(good), "{}\n"...),
		"flipped bit":   bytes.Replace(good, []byte("192.0.2.1"), []byte("192.0.2.3"), 1),
		"later version": bytes.Replace(good, []byte(`"version":1`), []byte(`"version":2`), 1),
		"no format":     []byte("{}\n"),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		next := newNames(t, nil)
		err := next.Load(path, all)
		if !errors.Is(err, ErrDamaged) || len(next.List()) != 0 {
			t.Errorf("%s: %v, and %v was loaded, want it refused", name, err, next.List())
		}
		next.Learn(1, "a", []dnsname.Address{address("192.0.2.1", time.Minute)})
		if err := next.Save(path); err != nil {
			t.Fatal(err)
		}
		if err := newNames(t, nil).Load(path, all); err != nil {
			t.Errorf("%s: it was not replaced: %s", name, err)
		}
	}
}

func TestEncodeBounded(t *testing.T) {
	var many []Lookup
	for i := range 100 {
		addresses := map[netip.Addr]time.Time{addr("192.0.2.1"): {}}
		many = append(many, Lookup{Endpoint: 1, Name: fmt.Sprintf("%03d%s", i, strings.Repeat("x", 97)), Addresses: addresses})
	}
	text, left, err := encode(many, 8192)
	if err != nil || len(text) > 8192 || len(text) < 7900 {
		t.Fatalf("%d bytes, %v, want nearly 8192", len(text), err)
	}
	got, err := decode(text)
	if err != nil || len(got)+left != 100 || left == 0 {
		t.Errorf("%d names of 100 are in the file and %d left out: %v", len(got), left, err)
	}
}

// FuzzDecode has no text be read as another one than was written, nor panic.
func FuzzDecode(f *testing.F) {
	text, _, err := encode([]Lookup{{1, "a", map[netip.Addr]time.Time{addr("192.0.2.1"): time.Unix(1e9, 0)}}}, maxFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := decode(text)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%v, want ErrDamaged", err)
			}
			return
		}
		again, _, err := encode(all, maxFile)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := decode(again); err != nil || len(second) != len(all) {
			t.Errorf("%d names became %d: %v", len(all), len(second), err)
		}
	})
}
