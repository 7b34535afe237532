package names

import (
	"fmt"
	"testing"
	"time"

	"porin.dev/porin/cells/policy/dnsname"
)

// BenchmarkLearn has 100 endpoints with 100 names each, and 50 selections.
func BenchmarkLearn(b *testing.B) {
	fill := func(b *testing.B) *Names {
		n := newNames(b, nil)
		for i := range 50 {
			n.Select(rules(b, fmt.Sprintf("*.n%d.example.com", i)))
		}
		for id := range uint16(100) {
			for i := range 100 {
				n.Learn(id, fmt.Sprintf("a.n%d.example.com", i), []dnsname.Address{address(fmt.Sprintf("192.0.2.%d", i), time.Hour)})
			}
		}
		n.Take()
		return n
	}
	b.Run("known", func(b *testing.B) {
		n := fill(b)
		one := []dnsname.Address{address("192.0.2.7", time.Hour)}
		b.ReportAllocs()
		for b.Loop() {
			n.Learn(7, "a.n7.example.com", one)
		}
	})
	b.Run("new", func(b *testing.B) {
		n := fill(b)
		one := []dnsname.Address{address("192.0.2.7", time.Hour)}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			n.Learn(7, fmt.Sprintf("a%d.n7.example.com", i), one)
			n.Take()
		}
	})
}
