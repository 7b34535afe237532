package doctor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "porin.dev/porin/api/v1"
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

func (a addressed) Compared() []doctor.Compared {
	return []doctor.Compared{{What: a.Owner(), Count: 3}}
}

func TestOnlyWhatIsAskedAboutIsToldAndRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps, numbers := doctortest.New("lamps", "lamp-dark"), doctortest.New("numbers", "number-missing")
		lamps.Break("hall", "", nil)
		numbers.Break("seven", "", nil)
		d := newDoctor(t, doctor.Config{}, lamps, addressed{Checker: numbers})
		answer, err := d.Examine(t.Context(), doctor.Scope{About: doctor.Addresses})
		succeeded(t, err)
		wantSubjects(t, "found", answer.Findings, "seven")
		if diff := cmp.Diff([]v1.Compared{{What: "numbers", Count: 3}}, answer.Compared); diff != "" {
			t.Errorf("compared (-want +got):\n%s", diff)
		}
		answer, err = d.Repair(t.Context(), doctor.Addresses)
		succeeded(t, err)
		wantSubjects(t, "repaired", answer.Repaired, "seven")
		if lamps.Looks() != 0 || len(lamps.Broken()) != 1 {
			t.Errorf("%d looks at the lamps, %v is broken", lamps.Looks(), lamps.Broken())
		}
	})
}

func TestANoteIsToldAndNotRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		numbers := doctortest.New("numbers", "number-odd")
		numbers.Break("seven", "", nil)
		d := newDoctor(t, doctor.DefaultConfig(), addressed{numbers, true})
		d.Start()
		defer func() { _ = d.Stop(t.Context()) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if len(numbers.Broken()) != 1 {
			t.Error("a note was repaired")
		}
		for _, scope := range []doctor.Scope{{}, {About: doctor.Addresses}} {
			answer, err := d.Examine(t.Context(), scope)
			succeeded(t, err)
			wantSubjects(t, "found", answer.Findings)
			wantSubjects(t, "noted", answer.Notes, "seven")
		}
	})
}
