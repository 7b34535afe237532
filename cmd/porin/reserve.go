package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

// defaultExpires is the agent's default.
const defaultExpires = 10 * time.Minute

func ipamReserve(ctx context.Context, s *session, args []string) error {
	request := v1.ReservationRequest{Owner: s.owner, Pool: s.poolName, Expires: s.expires, Permanent: s.permanent}
	if s.expires <= 0 {
		return usageOf([]string{"ipam", "reserve"}, "--expires: want a time above zero, such as 10m")
	}
	if s.permanent {
		if s.expires != defaultExpires {
			return usageOf([]string{"ipam", "reserve"}, "--expires and --permanent: want one of the two")
		}
		request.Expires = 0
	}
	for _, text := range args {
		if err := addAddress(&request.Addresses, text); err != nil {
			return usageOf([]string{"ipam", "reserve"}, err.Error())
		}
	}
	if request.Owner == "" {
		request.Owner = randomOwner()
	}
	got, err := s.client.Reserve(ctx, request)
	return s.show(got, err, func(w io.Writer) { s.reservationTable(w, got) })
}

// addAddress adds an address to those asked for: one a family.
func addAddress(all *v1.Addresses, text string) error {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("%q: want an IP address", text)
	}
	place := &all.IPv6
	if addr.Is4() {
		place = &all.IPv4
	}
	if place.IsValid() {
		return fmt.Errorf("%s and %s: want one address of a family", *place, addr)
	}
	*place = addr
	return nil
}

// randomOwner is another one each time, as an owner has one reservation only.
func randomOwner() string { return "porin-cli-" + strings.ToLower(rand.Text()[:8]) }

func (s *session) reservationTable(w io.Writer, r v1.Reservation) {
	row(w, "Addresses:", joined(r.Addresses.List()))
	row(w, "Pool:", r.Pool)
	row(w, "Owner:", r.Owner)
	if r.Permanent {
		row(w, "Expires:", "never")
	} else {
		row(w, "Expires:", fmt.Sprintf("%s, in %s", r.Expires.UTC().Format(time.RFC3339), s.ahead(r.Expires)))
	}
	row(w, "Token:", r.Token)
}

func ipamRelease(ctx context.Context, s *session, args []string) error {
	addr, err := netip.ParseAddr(args[0])
	if err != nil {
		return usageOf([]string{"ipam", "release"}, fmt.Sprintf("%q: want an IP address", args[0]))
	}
	was, err := s.client.Release(ctx, addr, s.token)
	return s.show(was, err, func(w io.Writer) {
		row(w, "Released:", joined(was.Addresses.List()))
		row(w, "Pool:", was.Pool)
		row(w, "Owner:", was.Owner)
	})
}

// reservedAddresses are for completion.
func reservedAddresses(ctx context.Context, s *session) (all []cobra.Completion) {
	usage, _ := s.client.IPAM(ctx)
	for _, a := range usage.Allocations {
		if !a.Expires.IsZero() || a.Permanent {
			all = append(all, cobra.CompletionWithDesc(a.Address.String(), "reserved by "+printable(a.Owner)))
		}
	}
	return all
}
