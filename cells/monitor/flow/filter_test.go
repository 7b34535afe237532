package flow

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"porin.dev/porin/bpf/abi"
)

func TestFilters(t *testing.T) {
	w := newWorld(t, 100)
	w.pod(1, "web")
	w.pod(2, "client")
	w.policy("test", webFromClient)
	toWeb, toService := tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort), tuple("10.0.0.2", 999, service, 8000)
	w.stack.add(toService, tuple("10.0.0.1", httpPort, "10.0.0.2", 999))
	udp := droppedFor(abi.DropPolicyIngress, seen(1, abi.EventToPod, tuple(outside, 53, "10.0.0.1", 53)))
	udp.Protocol = 17
	ping := shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", 80, "10.0.0.1", 80)))
	ping.Protocol = 1
	w.source.lost = 5
	w.tell(
		shortcut(seen(2, abi.EventFromPod, toWeb)), // 1
		udp, // 2
		toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, outside, 443))),              // 3
		droppedFor(abi.DropSpoofedAddress, seen(2, abi.EventFromPod, tuple(outside, 1, service, 2))), // 4
		seen(1, abi.EventToPod, tuple("10.0.0.2", 999, "10.0.0.1", httpPort)),                        // 5, by the Service
		ping, // 6
	) // and 7, which says that 5 were lost
	for query, want := range map[string][]uint64{
		"":                        {1, 2, 3, 4, 5, 6, 7},
		"?pod=default/web":        {1, 2, 5, 6, 7},
		"?pod=other/web":          {7},
		"?verdict=denied":         {2, 7},
		"?verdict=denied,dropped": {2, 4, 7},
		"?reason=spoofed-address": {4, 7},
		"?protocol=udp":           {2, 7},
		"?protocol=17&port=54":    {7},
		"?port=80":                {1, 5, 7},
		"?port=8000":              {5, 7},
		"?since=4":                {5, 6, 7},
		"?last=2":                 {5, 6, 7},
		"?last=2&pod=default/web&verdict=allowed&port=80": {1, 5, 7},
		"?last=1000":                {1, 2, 3, 4, 5, 6, 7},
		"?namespace=default":        {1, 2, 3, 4, 5, 6, 7},
		"?namespace=other,another":  {7},
		"?label=app%3Dweb":          {1, 2, 5, 6, 7},
		"?label=app!%3Dclient":      {1, 2, 5, 6, 7},
		"?direction=ingress":        {2, 5, 7},
		"?direction=egress&port=80": {1, 7},
		"?policy=default/test":      {1, 2, 5, 7},
		"?policy=test&not=protocol%3Dicmp&not=verdict%3Ddenied": {1, 5, 7},
		"?not=namespace%3Ddefault":                              {7},
		"?age=1h":                                               {1, 2, 3, 4, 5, 6, 7},
		"?age=1ns":                                              {7},
	} {
		var got []uint64
		for _, f := range w.told(query) {
			got = append(got, f.Seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: flows %v, want %v", query, got, want)
		}
	}
}

func TestBadQuery(t *testing.T) {
	w := newWorld(t, 1)
	for query, want := range map[string]string{
		"?since=x":                "since=\\\"x\\\": want the seq of a flow",
		"?follow=perhaps":         "want true or false",
		"?pod=web":                "pod=\\\"web\\\": want NAMESPACE/NAME",
		"?pod=/web":               "want NAMESPACE/NAME",
		"?verdict=denied,perhaps": "verdict=\\\"perhaps\\\": want allowed, audit, denied, dropped",
		"?reason=none":            "reason=\\\"none\\\": want no-endpoint, malformed, ",
		"?protocol=quic":          "protocol \\\"quic\\\": want TCP",
		"?port=0":                 "port=\\\"0\\\": want a number from 1 to 65535",
		"?port=65536":             "want a number from 1 to 65535",
		"?label=%3D":              "want a selector",
		"?direction=up":           "direction=\\\"up\\\": want egress, ingress",
		"?not=verdict":            "not=\\\"verdict\\\": want NAME=VALUE of namespace, pod",
		"?not=since%3D4":          "want NAME=VALUE",
		"?not=port%3D0":           "want a number from 1 to 65535",
		"?age=5":                  "age=\\\"5\\\": want a time above zero",
		"?last=0":                 "last=\\\"0\\\": want a number from 1 on",
	} {
		if answer := w.get(query); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", query, answer.Code, answer.Body, want)
		}
	}
}
