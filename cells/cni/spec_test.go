package cni

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"porin.dev/porin/cells/endpoint"
)

// specOf is what an ADD with these annotations of the pod, more members of the configuration and CNI_ARGS asks for.
func specOf(t *testing.T, annotations map[string]string, config, args string) (endpoint.Spec, error) {
	t.Helper()
	text, err := json.Marshal(annotations)
	if err != nil {
		t.Fatal(err)
	}
	raw := `{"cniVersion":"1.1.0","name":"porin"` + config + `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":` + string(text) + `}}`
	c := call{args: args, raw: []byte(raw)}
	if err := json.Unmarshal(c.raw, &c.config); err != nil {
		t.Fatal(err)
	}
	return c.spec()
}

func TestSpecReservation(t *testing.T) {
	for name, c := range map[string]struct {
		annotations       map[string]string
		config, args      string
		pool, reservation string
	}{
		"none":                   {nil, "", "", "", ""},
		"another annotation":     {map[string]string{"porin.dev/other": "T0"}, "", "", "", ""},
		"annotation":             {map[string]string{"porin.dev/reservation": "T0K3N"}, "", "", "", "T0K3N"},
		"an empty one":           {map[string]string{"porin.dev/reservation": ""}, "", "", "", ""},
		"CNI_ARGS":               {nil, "", "PORIN_RESERVATION=T0", "", "T0"},
		"CNI_ARGS before":        {map[string]string{"porin.dev/reservation": "T1"}, "", "PORIN_RESERVATION=T0", "", "T0"},
		"and a pool":             {map[string]string{"porin.dev/reservation": "T1", "porin.dev/pool": "blue"}, "", "", "blue", "T1"},
		"before the network":     {map[string]string{"porin.dev/reservation": "T1"}, `,"pool":"blue"`, "", "", "T1"},
		"CNI_ARGS and a network": {nil, `,"pool":"blue"`, "PORIN_RESERVATION=T0", "", "T0"},
		"the network":            {nil, `,"pool":"blue"`, "", "blue", ""},
		"an IPAM plugin":         {map[string]string{"porin.dev/reservation": "T1"}, `,"ipam":{"type":"host-local"}`, "", "", ""},
	} {
		spec, err := specOf(t, c.annotations, c.config, c.args)
		if err != nil || spec.Pool != c.pool || spec.Reservation != c.reservation {
			t.Errorf("%s: pool %q and reservation %q, %v, want %q and %q", name, spec.Pool, spec.Reservation, err, c.pool, c.reservation)
		}
	}
}

func TestSpecReservationMalformed(t *testing.T) {
	for _, token := range []string{" ", "T0K3N\n", "T0;IP=10.0.0.1", "../../etc", "T0\x00", "töken", strings.Repeat("T", 65), strings.Repeat("T\n", 1<<16)} {
		_, err := specOf(t, map[string]string{"porin.dev/reservation": token}, "", "")
		f, ok := errors.AsType[*failure](err)
		if !ok || f.Code != types.ErrInvalidNetworkConfig || !strings.HasPrefix(f.Text, "the pod's annotation porin.dev/reservation ") ||
			len(f.Text) > 200 || f.Hint == "" {
			t.Errorf("%.40q: error %.300v", token, err)
		}
	}
	_, err := specOf(t, nil, "", "PORIN_RESERVATION=a-b")
	if err == nil || !strings.HasPrefix(err.Error(), "PORIN_RESERVATION in CNI_ARGS is malformed") {
		t.Errorf("in CNI_ARGS: %v", err)
	}
}
