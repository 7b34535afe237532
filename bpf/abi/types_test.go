package abi_test

import (
	"net/netip"
	"strings"
	"testing"
	"unsafe"

	"porin.dev/porin/bpf/abi"
)

// The shape of pinned maps outlives agents: a test that fails here needs a map of a new name.
func TestTypeSizes(t *testing.T) {
	for name, size := range map[string][2]uintptr{
		"addr":     {unsafe.Sizeof(abi.Addr{}), 16},
		"endpoint": {unsafe.Sizeof(abi.Endpoint{}), 20},
		"link":     {unsafe.Sizeof(abi.Link{}), 40},
		"passed":   {unsafe.Sizeof(abi.Passed{}), 32},
		"drops":    {unsafe.Sizeof(abi.Drops{}), 256},

		"connection_key": {unsafe.Sizeof(abi.ConnectionKey{}), 32},
		"connection":     {unsafe.Sizeof(abi.Connection{}), 72},
		"slot":           {unsafe.Sizeof(abi.Slot{}), 8},
		"usage":          {unsafe.Sizeof(abi.Usage{}), 12},
		"limits":         {unsafe.Sizeof(abi.Limits{}), 8},

		"flow_event":   {unsafe.Sizeof(abi.FlowEvent{}), 56},
		"event_budget": {unsafe.Sizeof(abi.EventBudget{}), 16},

		"policy":      {unsafe.Sizeof(abi.Policy{}), 24},
		"address_key": {unsafe.Sizeof(abi.AddressKey{}), 24},
		"prefix_key":  {unsafe.Sizeof(abi.PrefixKey{}), 24},
		"table_key":   {unsafe.Sizeof(abi.TableKey{}), 8},
		"row_key":     {unsafe.Sizeof(abi.RowKey{}), 12},
	} {
		if size[0] != size[1] {
			t.Errorf("struct %s has %d bytes, want %d", name, size[0], size[1])
		}
	}
}

func TestDropReasonNames(t *testing.T) {
	names := map[string]bool{}
	for _, reason := range abi.DropReasons() {
		name := reason.String()
		if name == "" || strings.HasPrefix(name, "reason-") || names[name] {
			t.Errorf("reason %d has the name %q", reason, name)
		}
		names[name] = true
	}
	later := abi.DropReason(len(names) + 1)
	if !strings.HasPrefix(later.String(), "reason-") {
		t.Errorf("reason %d is named %q and not listed", later, later)
	}
}

func TestAddressesSurviveTheMaps(t *testing.T) {
	for _, text := range []string{"10.1.2.3", "2001:db8::1"} {
		ip := netip.MustParseAddr(text)
		if got := abi.AddrOf(ip).IP(); got != ip {
			t.Errorf("%s became %s", ip, got)
		}
	}
	if got := abi.AddrOf(netip.Addr{}).IP(); got.IsValid() {
		t.Errorf("no address became %s", got)
	}
}
