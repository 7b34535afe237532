package doctor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/doctor/doctortest"
)

// addressed is a checker whose one kind is about addresses.
type addressed struct {
	*doctortest.Checker
	note bool
}

func (a addressed) Kinds() []doctor.Kind {
	kind := a.Checker.Kinds()[0]
	kind.About, kind.Note = doctor.Addresses, a.note
	return []doctor.Kind{kind}
}

func TestScopeAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes, addresses := doctortest.New("routes", "route-missing"), doctortest.New("addresses", "address-missing")
		routes.Break("por3", "", nil)
		addresses.Break("10.0.0.7", "", nil)
		d := newDoctor(t, doctor.Config{}, routes, addressed{Checker: addresses})
		answer, err := d.Examine(t.Context(), doctor.Scope{About: doctor.Addresses})
		succeeded(t, err)
		wantSubjects(t, "found", answer.Findings, "10.0.0.7")
		answer, err = d.Repair(t.Context(), doctor.Addresses)
		succeeded(t, err)
		wantSubjects(t, "repaired", answer.Repaired, "10.0.0.7")
		if routes.Calls() != 0 || len(routes.Broken()) != 1 {
			t.Errorf("%d calls at the routes, %v is broken", routes.Calls(), routes.Broken())
		}
	})
}

func TestNoteWithoutRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addresses := doctortest.New("addresses", "address-reserved")
		addresses.Break("10.0.0.7", "", nil)
		d := newDoctor(t, doctor.DefaultConfig(), addressed{addresses, true})
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if len(addresses.Broken()) != 1 {
			t.Error("a note was repaired")
		}
		for _, scope := range []doctor.Scope{{}, {About: doctor.Addresses}} {
			answer, err := d.Examine(t.Context(), scope)
			succeeded(t, err)
			wantSubjects(t, "found", answer.Findings)
			wantSubjects(t, "noted", answer.Notes, "10.0.0.7")
		}
	})
}
