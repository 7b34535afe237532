package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
)

func TestReadCiliumLayer7(t *testing.T) {
	got := read(t, ciliumHead+`
  endpointSelector: {}
  ingress:
  - fromEndpoints: [{matchLabels: {app: web}}]
    toPorts:
    - ports: [{port: "80", protocol: TCP}, {port: http, protocol: TCP}, {port: "8000", endPort: 8010, protocol: TCP}]
      rules:
        http:
        - {method: GET, path: "/public/.*"}
        - {host: "(?i)a\\.example", headers: ["x-token", "X-Version: 2 a"], headerMatches: [{name: x-a, value: "b"}, {name: X-C}]}
        - {}
    - ports: [{port: "443"}]
    - ports: [{port: "444", protocol: TCP}]
      rules: {http: []}
  - toPorts: [{ports: [{port: "81", protocol: TCP}], rules: {}}]
  egress:
  - toPorts:
    - ports: [{port: "53"}, {port: dns, protocol: ANY}]
      rules:
        dns: [{matchName: WWW.Example.org.}, {matchPattern: "**.a*.example"}, {matchPattern: "*"}]
`)
	shopWeb := []model.Peer{pods(model.Pods{Namespace: "shop", Labels: model.Selector{label("app", "web")}})}
	tcp := func(port uint16) model.Port { return model.Port{Protocol: model.TCP, First: port, Last: port} }
	udp := func(port uint16) model.Port { return model.Port{Protocol: model.UDP, First: port, Last: port} }
	sctp := func(port uint16) model.Port { return model.Port{Protocol: model.SCTP, First: port, Last: port} }
	wantIngress := &model.Rules{
		{Name: "ingress[0]", Peers: shopWeb, Ports: []model.Port{tcp(443), udp(443), sctp(443), tcp(444)}},
		{
			Name: "ingress[0].toPorts[0]", Peers: shopWeb,
			Ports: []model.Port{tcp(80), {Protocol: model.TCP, Name: "http"}, {Protocol: model.TCP, First: 8000, Last: 8010}},
			Layer7: &model.Layer7{HTTP: []model.HTTPRule{
				{Method: "GET", Path: "/public/.*"},
				{Host: `(?i)a\.example`, Headers: []model.HTTPHeader{
					{Name: "X-Token", AnyValue: true}, {Name: "X-Version", Value: "2 a"}, {Name: "X-A", Value: "b"}, {Name: "X-C", AnyValue: true},
				}},
				{},
			}},
		},
		{Name: "ingress[1]", Peers: []model.Peer{{Any: true}}, Ports: []model.Port{tcp(81)}},
	}
	wantEgress := &model.Rules{{
		Name: "egress[0].toPorts[0]", Peers: []model.Peer{{Any: true}}, Ports: []model.Port{tcp(53), udp(53), {Name: "dns"}},
		Layer7: &model.Layer7{DNS: []model.DNSRule{{Name: "www.example.org"}, {Pattern: "**.a*.example"}, {Pattern: "*"}}},
	}}
	if diff := cmp.Diff([]*model.Rules{wantIngress, wantEgress}, []*model.Rules{got[0].Ingress, got[0].Egress}, sameAddresses, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestCiliumLayer7Refused(t *testing.T) {
	const at = "spec.%s[0].toPorts[0]."
	entry := func(direction, ports, rules string) string {
		return ciliumHead + "  endpointSelector: {}\n  " + direction + ": [{toPorts: [{ports: [" + ports + "], rules: " + rules + "}]}]\n"
	}
	http := func(rule string) string {
		return entry("ingress", "{port: '80', protocol: TCP}", "{http: ["+rule+"]}")
	}
	dns := func(rule string) string {
		return entry("egress", "{port: '53'}", "{dns: ["+rule+"]}")
	}
	in, out := fmt.Sprintf(at, "ingress"), fmt.Sprintf(at, "egress")
	long := strings.Repeat("a", 1025)
	for text, want := range map[string]string{
		entry("ingress", "{port: '80', protocol: TCP}", "{kafka: [{}]}"):                                         in + "rules.kafka: Forbidden: not supported",
		entry("ingress", "{port: '80', protocol: TCP}", "{l7proto: r2d2, l7: [{}]}"):                             in + "rules.l7proto: Forbidden: not supported",
		entry("ingress", "{port: '80', protocol: TCP}", "{l7: [{}]}"):                                            in + "rules.l7: Forbidden: not supported",
		entry("ingress", "{port: '80', protocol: TCP}", "{grpc: []}"):                                            `unknown field "` + in + `rules.grpc"`,
		entry("egress", "{port: '80', protocol: TCP}", "{http: [{}], dns: [{matchName: a}]}"):                    out + "rules: Forbidden: http and dns together",
		entry("ingress", "", "{http: [{}]}"):                                                                     in + "ports: Required",
		entry("ingress", "{port: '80'}", "{http: [{}]}"):                                                         in + `ports[0].protocol: Invalid value: "": rules.http wants TCP`,
		entry("ingress", "{port: '80', protocol: ANY}", "{http: [{}]}"):                                          in + `ports[0].protocol: Invalid value: "ANY": rules.http wants TCP`,
		entry("ingress", "{port: '00', protocol: TCP}", "{http: [{}]}"):                                          in + "ports[0].port: Forbidden: 0 is every port",
		entry("ingress", "{port: '53'}", "{dns: [{matchName: a}]}"):                                              in + "rules.dns: Forbidden: not in rules for ingress",
		entry("egress", "{port: '53', protocol: SCTP}", "{dns: [{matchName: a}]}"):                               out + `ports[0].protocol: Invalid value: "SCTP": rules.dns wants TCP, UDP or ANY`,
		entry("egress", "{port: '53', endPort: 54}", "{dns: [{matchName: a}]}"):                                  out + "ports[0].endPort: Forbidden",
		entry("egressDeny", "{port: '53'}", "{dns: [{matchName: a}]}"):                                           "spec.egressDeny[0].toPorts[0].rules: Forbidden: not in rules that deny",
		entry("egress", "{port: '53'}", "{dns: ["+strings.Repeat("{matchName: a},", 257)+"]}"):                   out + "rules.dns: Too many",
		entry("ingress", "{port: '80', protocol: TCP}", "{http: ["+strings.Repeat("{path: 'a{999}'},", 51)+"]}"): in + "rules.http[16].path: Forbidden: the expressions of the policy are too large together",
		http("{path: '('}"):                                     in + "rules.http[0].path: Invalid",
		http("{path: 'a)|(?:b'}"):                               in + "rules.http[0].path: Invalid",
		http("{method: '\\C'}"):                                 in + "rules.http[0].method: Invalid",
		http("{host: '(a{100}){100}'}"):                         in + "rules.http[0].host: Invalid",
		http("{path: '" + long + "'}"):                          in + "rules.http[0].path: Too long",
		http("{body: a}"):                                       `unknown field "` + in + `rules.http[0].body"`,
		http("{headers: ['X A: b']}"):                           in + "rules.http[0].headers[0]: Invalid",
		http("{headers: ['X-A b']}"):                            in + "rules.http[0].headers[0]: Invalid",
		http("{headers: ['X-A:']}"):                             in + "rules.http[0].headers[0]: Invalid",
		http("{headers: [':path: a']}"):                         in + "rules.http[0].headers[0]: Invalid",
		http("{headers: ['host: a']}"):                          in + "rules.http[0].headers[0]: Forbidden: use host",
		http(`{headers: ["X-A: a\nb"]}`):                        in + "rules.http[0].headers[0]: Invalid",
		http("{headerMatches: [{value: a}]}"):                   in + "rules.http[0].headerMatches[0]: Invalid",
		http("{headerMatches: [{name: a, mismatch: LOG}]}"):     in + "rules.http[0].headerMatches[0].mismatch: Forbidden",
		http("{headerMatches: [{name: a, secret: {name: b}}]}"): in + "rules.http[0].headerMatches[0].secret: Forbidden",
		http("{headers: [" + strings.Repeat("a,", 65) + "]}"):   in + "rules.http[0].headers: Too many",
		dns("{}"):                              out + "rules.dns[0]: Required",
		dns("{matchName: a, matchPattern: b}"): out + "rules.dns[0]: Forbidden",
		dns("{matchName: 'a*'}"):               out + "rules.dns[0].matchName: Invalid",
		dns("{matchName: 'a..b'}"):             out + "rules.dns[0].matchName: Invalid",
		dns("{matchName: '.'}"):                out + "rules.dns[0].matchName: Invalid",
		dns("{matchName: " + long[:64] + "}"):  out + "rules.dns[0].matchName: Invalid",
		dns("{matchPattern: 'a.**.b'}"):        out + "rules.dns[0].matchPattern: Invalid",
		dns("{matchPattern: 'a[0-9]'}"):        out + "rules.dns[0].matchPattern: Invalid",
	} {
		if _, err := manifest.Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.300s\nerror %v, want one with %q", text, err, want)
		}
	}
}
