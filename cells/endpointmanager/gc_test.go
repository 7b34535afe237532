package endpointmanager

import (
	"errors"
	"slices"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/boottime"
)

func TestGCMostChecksProcesses(t *testing.T) {
	a := func(container string) endpoint.Attachment {
		return endpoint.Attachment{ContainerID: container, IfName: "eth0"}
	}
	rows := []struct {
		name    string
		cookies map[string]uint64 // of the containers' namespaces
		inUse   func() (map[uint64]bool, error)
		stay    []endpoint.Attachment // after one call, and
		again   []endpoint.Attachment // after two
	}{
		{
			"no process anywhere", map[string]uint64{"c1": 1, "c2": 2, "c3": 3},
			func() (map[uint64]bool, error) { return nil, nil }, nil, nil,
		},
		{
			"a process in one", map[string]uint64{"c1": 1, "c2": 2, "c3": 3},
			func() (map[uint64]bool, error) { return map[uint64]bool{2: true}, nil }, []endpoint.Attachment{a("c2")}, nil,
		},
		{
			"namespaces that are not known", map[string]uint64{"c1": 0, "c2": 2, "c3": 0},
			func() (map[uint64]bool, error) { return nil, nil }, []endpoint.Attachment{a("c1"), a("c3")}, nil,
		},
		{
			"nobody can tell", map[string]uint64{"c1": 1, "c2": 2, "c3": 3},
			func() (map[uint64]bool, error) { return nil, errors.New("no /proc") }, []endpoint.Attachment{a("c1"), a("c2"), a("c3")}, nil,
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			m := started(t, t.TempDir(), &probe{})
			for container, cookie := range row.cookies {
				spec := endpoint.Spec{Attachment: a(container), Network: "porin", NetNSCookie: cookie, Began: boottime.Now()}
				if _, err := m.Create(t.Context(), spec, nil); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range [][]endpoint.Attachment{row.stay, row.again} {
				result := m.Collect(t.Context(), GC{Network: "porin", InUse: row.inUse})
				var left []endpoint.Attachment
				for _, ep := range m.table.List() {
					left = append(left, ep.Spec.Attachment)
				}
				slices.SortFunc(left, func(a, b endpoint.Attachment) int { return int(a.ContainerID[1]) - int(b.ContainerID[1]) })
				if withheld := result.Withheld != nil; !slices.Equal(left, want) || withheld != (len(want) > 0) {
					t.Errorf("call %d: left %v, withheld %v; want %v", i+1, left, result.Withheld, want)
				}
			}
		})
	}
}

// An endpoint that the agent made for itself is in no runtime's list, and is not counted.
func TestGCLeavesHealthEndpoint(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	attachment := endpoint.Attachment{ContainerID: "porin-health", IfName: "eth0"}
	for _, spec := range []endpoint.Spec{
		{Attachment: attachment, Kind: endpoint.KindHealth, Network: "porin"},
		{Attachment: endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}, Network: "porin"},
	} {
		if _, err := m.Create(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		m.Collect(t.Context(), GC{Network: "porin"})
	}
	if list := m.table.List(); len(list) != 1 || list[0].Spec.Attachment != attachment {
		t.Errorf("left: %+v", list)
	}
}
