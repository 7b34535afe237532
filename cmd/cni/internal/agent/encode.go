package agent

import (
	"net/netip"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// encodeRequest writes what encoding/json would write.
func encodeRequest(r v1.EndpointRequest) []byte {
	var w jsontext.Writer
	w.Open('{')
	w.OptField("network", r.Network)
	if r.Pod != (v1.Pod{}) {
		w.Key("pod")
		w.Open('{')
		w.OptField("namespace", r.Pod.Namespace)
		w.OptField("name", r.Pod.Name)
		w.OptField("uid", r.Pod.UID)
		w.OptField("priorityClass", r.Pod.PriorityClass)
		w.Close('}')
	}
	w.OptField("netns", r.NetNS)
	writeInterface(&w, "host", r.Host)
	writeInterface(&w, "container", r.Container)
	w.OptField("pool", r.Pool)
	if r.Addresses != (v1.Addresses{}) {
		w.Key("addresses")
		w.Open('{')
		w.OptField("ipv4", addrText(r.Addresses.IPv4))
		w.OptField("ipv6", addrText(r.Addresses.IPv6))
		w.Close('}')
	}
	w.OptField("reservation", r.Reservation)
	optTrue(&w, "externalIPAM", r.ExternalIPAM)
	w.OptInt("began", r.Began)
	w.Close('}')
	return w.Bytes()
}

// encodeGCRequest writes what encoding/json would write.
func encodeGCRequest(r v1.GCRequest) []byte {
	var w jsontext.Writer
	w.Open('{')
	w.Field("network", r.Network)
	w.Key("valid")
	w.Open('[')
	for _, attachment := range r.Valid {
		w.String(attachment)
	}
	w.Close(']')
	w.OptInt("began", r.Began)
	optTrue(&w, "dryRun", r.DryRun)
	w.Close('}')
	return w.Bytes()
}

func optTrue(w *jsontext.Writer, key string, value bool) {
	if value {
		w.Key(key)
		w.Raw([]byte("true"))
	}
}

func writeInterface(w *jsontext.Writer, key string, i v1.Interface) {
	w.Key(key)
	w.Open('{')
	w.Field("name", i.Name)
	w.OptInt("index", int64(i.Index))
	w.Field("mac", i.MAC)
	w.Close('}')
}

func addrText(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}
