package link

import (
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
)

func TestParseAlias(t *testing.T) {
	a := endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}
	ep := func(id string) endpoint.Endpoint {
		return endpoint.Endpoint{Spec: endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: id, IfName: "eth0"}, Began: 7}}
	}
	long := strings.Repeat("a", 256)
	for name, test := range map[string]struct {
		hostEnd, alias string
		want           endpoint.Attachment
		began          time.Duration
	}{
		"as it is written":         {a.HostEnd(), aliasOf(ep("c1")), a, 7},
		"an ID too long for it":    {ep(long).Spec.Attachment.HostEnd(), aliasOf(ep(long)), endpoint.Unnamed(ep(long).Spec.Attachment.HostEnd()), 7},
		"without a start":          {a.HostEnd(), "c1:eth0", a, 0},
		"none":                     {a.HostEnd(), "", endpoint.Unnamed(a.HostEnd()), 0},
		"of another attachment":    {"porabcdefghijkl", "c1:eth0 began=7", endpoint.Unnamed("porabcdefghijkl"), 7},
		"a start that is no time":  {a.HostEnd(), "c1:eth0 began=soon", a, 0},
		"a start before the clock": {a.HostEnd(), "c1:eth0 began=-7", a, 0},
	} {
		if got, began := parseAlias(test.hostEnd, test.alias); got != test.want || began != test.began {
			t.Errorf("%s: %v, %d, want %v, %d", name, got, began, test.want, test.began)
		}
	}
	if hostEnd := endpoint.Unnamed("porabcdefghijkl").HostEnd(); hostEnd != "porabcdefghijkl" {
		t.Errorf("the host end of an unnamed attachment is %s", hostEnd)
	}
}
