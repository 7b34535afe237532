package doctor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/doctor/doctortest"
)

// TestRepairPausesDuringLook: nothing is repaired again before its pause is over and another look has found it.
func TestRepairPausesDuringLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lamps := doctortest.New("lamps", "lamp-dark")
		d := newDoctor(t, doctor.DefaultConfig(), lamps)
		ended, began := map[string]time.Time{}, time.Now()
		fails := func(name string) func(context.Context) error {
			return func(context.Context) error {
				if last, ok := ended[name]; ok && time.Since(last) < 29*time.Second {
					t.Errorf("at %s %s is repaired again, %s after the last repair", time.Since(began), name, time.Since(last))
				}
				time.Sleep(25 * time.Second)
				ended[name] = time.Now()
				return errors.New("no ladder")
			}
		}
		lamps.Break("attic", "", fails("attic"))
		lamps.Break("hall", "", fails("hall"))
		d.Start()
		time.Sleep(5 * time.Minute)
		if err := d.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
