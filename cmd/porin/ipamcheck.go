package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

// addresses is what "porin ipam check" asks the doctor about.
const addresses = "addresses"

// ipamCheck is the doctor's examination of what is about addresses. What it finds is on stdout, and a failure.
func ipamCheck(ctx context.Context, s *session, _ []string) error {
	ask := s.client.DoctorAbout
	if s.repair {
		ask = s.client.Repair
	}
	answer, err := waiting(s, "comparing the addresses with the cluster's store and the kernel", func() (v1.Doctor, error) { return ask(ctx, addresses) })
	if err != nil {
		return err
	}
	return s.printFindings(answer, func(w io.Writer) { checkLine(w, answer) })
}

// checkLine says what was compared.
func checkLine(w io.Writer, answer v1.Doctor) {
	var parts []string
	for _, c := range answer.Compared {
		parts = append(parts, fmt.Sprintf("%s %d", printable(c.What), c.Count))
	}
	_, _ = fmt.Fprintf(w, "All agrees: %s; compared in %s.\n", strings.Join(parts, ", "), short(answer.Duration))
}
