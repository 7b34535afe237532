package dnsname

import (
	"net/netip"
	"time"
)

// Address is one address of a name, and for how long the answer that has it is valid.
type Address struct {
	Addr netip.Addr
	TTL  time.Duration
}
