package datapath_test

import (
	"context"
	"errors"
	"testing"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpointmanager"
)

func TestASurveyNamesWhatHasLostItsLink(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		whole, gone, foreign := endpoint(t, w, 1), endpoint(t, w, 2), endpoint(t, w, 3)
		if err := w.links().Remove(context.Background(), gone.Spec.Host.Index); err != nil {
			t.Fatal(err)
		}
		foreign.Spec.Host.Index = w.addOther(t, "eth0")
		lost, err := w.step().Survey(context.Background(), []endpointmanager.Endpoint{whole, gone, foreign})
		if err != nil {
			t.Fatal(err)
		}
		if len(lost) != 2 || !errors.Is(lost[gone.Spec.Attachment], datapath.ErrNoLink) ||
			!errors.Is(lost[foreign.Spec.Attachment], datapath.ErrForeignLink) {
			t.Errorf("lost %v", lost)
		}
	})
}
