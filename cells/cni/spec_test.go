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
		"the network":            {nil, `,"pool":"blue"`, "", "", ""},
		"an IPAM plugin":         {map[string]string{"porin.dev/reservation": "T1"}, `,"ipam":{"type":"host-local"}`, "", "", ""},
	} {
		spec, err := specOf(t, c.annotations, c.config, c.args)
		if ofNetwork := strings.Contains(c.config, `"pool":"blue"`); (spec.NetworkPool == "blue") != ofNetwork {
			t.Errorf("%s: pool %q of the network, want blue: %t", name, spec.NetworkPool, ofNetwork)
		}
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

func TestSpecMasquerade(t *testing.T) {
	for value, keeps := range map[string]bool{"": false, "true": false, "false": true} {
		if spec, err := specOf(t, map[string]string{"porin.dev/masquerade": value}, "", ""); err != nil || spec.NoMasquerade != keeps {
			t.Errorf("%q: keeps its address %t, %v, want %t", value, spec.NoMasquerade, err, keeps)
		}
	}
	_, err := specOf(t, map[string]string{"porin.dev/masquerade": "no"}, "", "")
	if f, ok := errors.AsType[*failure](err); !ok || f.Code != types.ErrInvalidNetworkConfig || !strings.Contains(f.Text, `porin.dev/masquerade is "no"`) {
		t.Errorf("error %v", err)
	}
}

// specWithPorts is what an ADD with these port mappings asks for.
func specWithPorts(mappings string) (endpoint.Spec, error) {
	c := call{raw: []byte(`{"cniVersion":"1.1.0","name":"porin","runtimeConfig":{"portMappings":` + mappings + `}}`)}
	c.attachment = endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}
	if err := json.Unmarshal(c.raw, &c.config); err != nil {
		return endpoint.Spec{}, err
	}
	spec, err := c.spec()
	if err == nil {
		err = spec.Validate()
	}
	return spec, err
}

func TestSpecPortMappings(t *testing.T) {
	for mappings, want := range map[string]string{
		`null`: "", `[]`: "",
		`[{"hostPort":8080,"containerPort":80,"protocol":"tcp","hostIP":""}]`:                                    `[{"hostPort":8080,"containerPort":80,"protocol":"TCP"}]`,
		`[{"hostPort":8080,"containerPort":80}]`:                                                                 `[{"hostPort":8080,"containerPort":80,"protocol":"TCP"}]`,
		`[{"hostPort":0,"containerPort":80}]`:                                                                    "",
		`[{"hostPort":53,"containerPort":53,"protocol":"UDP","hostIP":"0.0.0.0"}]`:                               `[{"hostIP":"0.0.0.0","hostPort":53,"containerPort":53,"protocol":"UDP"}]`,
		`[{"hostPort":2,"containerPort":80,"protocol":"sctp"},{"hostPort":1,"containerPort":80}]`:                `[{"hostPort":1,"containerPort":80,"protocol":"TCP"},{"hostPort":2,"containerPort":80,"protocol":"SCTP"}]`,
		`[{"hostPort":1,"containerPort":80},{"hostPort":1,"containerPort":80,"protocol":"TCP"}]`:                 `[{"hostPort":1,"containerPort":80,"protocol":"TCP"}]`,
		`[{"hostPort":1,"containerPort":80,"hostIP":"::ffff:192.0.2.1"}]`:                                        `[{"hostIP":"192.0.2.1","hostPort":1,"containerPort":80,"protocol":"TCP"}]`,
		`[{"hostPort":1,"containerPort":80},{"hostPort":1,"containerPort":80,"protocol":"udp"}]`:                 `[{"hostPort":1,"containerPort":80,"protocol":"TCP"},{"hostPort":1,"containerPort":80,"protocol":"UDP"}]`,
		`[{"hostPort":1,"containerPort":80,"hostIP":"127.0.0.1"}]`:                                               `[{"hostIP":"127.0.0.1","hostPort":1,"containerPort":80,"protocol":"TCP"}]`,
		`[{"hostPort":1,"containerPort":80,"hostIP":"::"},{"hostPort":1,"containerPort":81,"hostIP":"0.0.0.0"}]`: `[{"hostIP":"0.0.0.0","hostPort":1,"containerPort":81,"protocol":"TCP"},{"hostIP":"::","hostPort":1,"containerPort":80,"protocol":"TCP"}]`,
	} {
		if spec, err := specWithPorts(mappings); err != nil || spec.PortMappings != want {
			t.Errorf("%s: %s, %v, want %s", mappings, spec.PortMappings, err, want)
		}
	}
}

func TestSpecPortMappingsMalformed(t *testing.T) {
	for mappings, words := range map[string]string{
		`[{"hostPort":65536,"containerPort":80}]`:                                           "65536",
		`[{"hostPort":-1,"containerPort":80}]`:                                              "-1",
		`[{"hostPort":1,"containerPort":0}]`:                                                "want ports from 1 to 65535",
		`[{"hostPort":1,"containerPort":65616}]`:                                            "65616, is no port",
		`[{"hostPort":1,"containerPort":1,"protocol":"icmp"}]`:                              `protocol "ICMP": want TCP, UDP or SCTP`,
		`[{"hostPort":1,"containerPort":1,"hostIP":"node"}]`:                                `"node" is no address`,
		`[{"hostPort":1,"containerPort":1,"hostIP":"::1"}]`:                                 "use 127.0.0.1",
		`[{"hostPort":1,"containerPort":1,"hostIP":"fe80::1"}]`:                             "no link-local one",
		`[{"hostPort":1,"containerPort":1,"hostIP":"224.0.0.1"}]`:                           "want an address of the node",
		`[{"hostPort":1,"containerPort":1},{"hostPort":1,"containerPort":2}]`:               "TCP 1 to 1 and TCP 1 to 2 clash",
		`[{"hostPort":1,"containerPort":1},{"hostPort":1,"containerPort":1,"hostIP":"::"}]`: "clash",
		`{}`: "portMappings",
	} {
		if _, err := specWithPorts(mappings); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: error %v, want %q", mappings, err, words)
		}
	}
}
