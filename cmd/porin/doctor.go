package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	v1 "porin.dev/porin/api/v1"
)

// examine is "porin doctor". What it finds is on stdout, and a failure.
func examine(ctx context.Context, s *session, _ []string) error {
	answer, err := s.examined(ctx)
	if err != nil {
		return err
	}
	return s.printFindings(answer, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "All agrees, as examined in %s.\n", short(answer.Duration))
	})
}

func (s *session) examined(ctx context.Context) (v1.Doctor, error) {
	switch {
	case s.repair && s.endpoint != "":
		return v1.Doctor{}, usageOf([]string{"doctor"}, "want --endpoint or --repair, not both")
	case s.repair:
		return s.client.Repair(ctx, "")
	}
	return s.client.Doctor(ctx, s.endpoint)
}

// printFindings ends with what well writes when all agrees.
func (s *session) printFindings(answer v1.Doctor, well func(io.Writer)) error {
	if err := s.print(answer, func(w io.Writer) { s.doctorTable(w, answer, well) }); err != nil {
		return err
	}
	switch found, blind := len(answer.Findings), len(answer.Errors); {
	case found > 0 && blind > 0:
		return fmt.Errorf("%s, and %s could not be examined", count(found, "disagreement"), count(blind, "part"))
	case found > 0:
		return errors.New(count(found, "disagreement"))
	case blind > 0:
		return fmt.Errorf("%s could not be examined", count(blind, "part"))
	}
	return nil
}

func (s *session) doctorTable(w io.Writer, answer v1.Doctor, well func(io.Writer)) {
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
		well(w)
	}
}

func (s *session) findingRows(w io.Writer, f v1.Finding) {
	row(w, "Found:", fmt.Sprintf("%s of %s, %s", f.Kind, f.Owner, f.Subject))
	row(w, "  Because:", f.Detail)
	if f.Endpoint != "" {
		row(w, "  Endpoint:", shortAttachment(f.Endpoint))
	}
	row(w, "  Since:", fmt.Sprintf("%s, in %s", s.age(f.Since), count(f.Times, "examination")))
	row(w, "  Repair:", repairer(f)+": "+f.Repair)
	if f.Outcome != "" {
		row(w, "  Outcome:", f.Outcome)
	}
}

// repairer is who has to.
func repairer(f v1.Finding) string {
	if f.Manual {
		return "by you"
	}
	return "by the agent"
}
