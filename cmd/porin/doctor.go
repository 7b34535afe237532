package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

// doctorCommand is "porin doctor". Its findings are on stdout, and a failure.
func doctorCommand(ctx context.Context, s *session, _ []string) error {
	answer, err := s.runDoctor(ctx)
	if err != nil {
		return err
	}
	return s.printFindings(answer, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "All agrees, as examined in %s.\n", shortDuration(answer.Duration))
	})
}

func (s *session) runDoctor(ctx context.Context) (v1.Doctor, error) {
	switch {
	case s.repair && s.endpoint != "":
		return v1.Doctor{}, usageOf([]string{"doctor"}, "want --endpoint or --repair, not both")
	case s.repair:
		return s.client.Repair(ctx, "")
	}
	return s.client.Doctor(ctx, s.endpoint)
}

// printFindings ends with what noFindings writes when all agrees.
func (s *session) printFindings(answer v1.Doctor, noFindings func(io.Writer)) error {
	if err := s.print(answer, func(w io.Writer) { s.doctorTable(w, answer, noFindings) }); err != nil {
		return err
	}
	switch found, blind := len(answer.Findings), len(answer.Errors); {
	case found > 0 && blind > 0:
		return fmt.Errorf("%s, and %s could not be examined", plural(found, "disagreement"), plural(blind, "part"))
	case found > 0:
		return errors.New(plural(found, "disagreement"))
	case blind > 0:
		return fmt.Errorf("%s could not be examined", plural(blind, "part"))
	}
	return nil
}

func (s *session) doctorTable(w io.Writer, answer v1.Doctor, noFindings func(io.Writer)) {
	for _, f := range answer.Notes {
		row(w, "Note:", f.Kind+" of "+f.Owner+", "+f.Subject)
		row(w, "  Because:", f.Detail)
	}
	for _, f := range answer.Repaired {
		row(w, "Repaired:", f.Kind+" of "+f.Owner+", "+f.Subject)
		row(w, "  Was:", f.Detail)
	}
	for _, f := range answer.Findings {
		s.findingRows(w, f)
	}
	for _, fault := range answer.Errors {
		row(w, "Not examined:", fault)
	}
	if len(answer.Findings)+len(answer.Errors) == 0 {
		noFindings(w)
	}
}

func (s *session) findingRows(w io.Writer, f v1.Finding) {
	row(w, "Found:", fmt.Sprintf("%s of %s, %s", f.Kind, f.Owner, f.Subject))
	row(w, "  Because:", f.Detail)
	if f.Endpoint != "" {
		row(w, "  Endpoint:", shortAttachment(f.Endpoint))
	}
	row(w, "  Since:", fmt.Sprintf("%s, in %s", s.age(f.Since), plural(f.Times, "examination")))
	row(w, "  Repair:", whoRepairs(f)+": "+f.Repair)
	if f.Outcome != "" {
		row(w, "  Outcome:", f.Outcome)
	}
}

// whoRepairs is the agent, or the reader.
func whoRepairs(f v1.Finding) string {
	if f.Manual {
		return "by you"
	}
	return "by the agent"
}

// addresses is what "porin ipam check" asks the doctor about.
const addresses = "addresses"

// ipamCheck is the doctor's examination of addresses. Its findings are on stdout, and a failure.
func ipamCheck(ctx context.Context, s *session, _ []string) error {
	ask := s.client.DoctorAbout
	if s.repair {
		ask = s.client.Repair
	}
	answer, err := ask(ctx, addresses)
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
	_, _ = fmt.Fprintf(w, "All agrees: %s; compared in %s.\n", strings.Join(parts, ", "), shortDuration(answer.Duration))
}
