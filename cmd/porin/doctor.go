package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	v1 "porin.dev/porin/api/v1"
)

// doctorCommand is "porin doctor". Its findings are on stdout, and a failure.
func doctorCommand(ctx context.Context, s *session, _ []string) error {
	if s.repair && s.endpoint != "" {
		return usageOf([]string{"doctor"}, "want --endpoint or --repair, not both")
	}
	examine := s.client.Doctor
	if s.repair {
		examine = s.client.Repair
	}
	answer, err := examine(ctx, s.endpoint)
	if err != nil {
		return err
	}
	return s.printFindings(answer)
}

func (s *session) printFindings(answer v1.Doctor) error {
	if err := s.print(answer, func(w io.Writer) { s.doctorTable(w, answer) }); err != nil {
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

func (s *session) doctorTable(w io.Writer, answer v1.Doctor) {
	for _, f := range answer.Notes {
		row(w, "Note:", f.Kind+" of "+f.Owner+", "+f.Subject)
		row(w, "  Because:", f.Detail)
	}
	for _, f := range answer.Repaired {
		row(w, "Repaired:", f.Kind+" of "+f.Owner+", "+f.Subject)
		row(w, "  Was:", f.Detail)
	}
	for _, f := range answer.Findings {
		row(w, "Found:", fmt.Sprintf("%s of %s, %s", f.Kind, f.Owner, f.Subject))
		row(w, "  Because:", f.Detail)
		if f.Endpoint != "" {
			row(w, "  Endpoint:", shortAttachment(f.Endpoint))
		}
		row(w, "  Since:", fmt.Sprintf("%s, in %s", s.age(f.Since), plural(f.Times, "examination")))
		row(w, "  Repair:", map[bool]string{true: "by you: ", false: "by the agent: "}[f.Manual]+f.Repair)
		if f.Outcome != "" {
			row(w, "  Outcome:", f.Outcome)
		}
	}
	for _, fault := range answer.Errors {
		row(w, "Not examined:", fault)
	}
	if len(answer.Findings)+len(answer.Errors) == 0 {
		_, _ = fmt.Fprintf(w, "All agrees, as examined in %s.\n", shortDuration(answer.Duration))
	}
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
	return s.printFindings(answer)
}
