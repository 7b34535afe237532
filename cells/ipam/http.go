package ipam

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// routes are the calls on /v1/ipam.
type routes struct {
	mode      string
	allocator *allocator.Allocator
	source    *allocator.Source // of the same allocator
	endpoints endpointmanager.Lookup
}

func newRoutes(cfg Config, s *allocator.Source, l endpointmanager.Lookup) routes {
	return routes{cfg.Mode, s.Allocator(), s, l}
}

// Mount implements server.Routes.
func (s routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/ipam", httpx.Handler(s.show))
	r.Method(http.MethodPost, "/v1/ipam", httpx.Handler(s.reserve))
	r.Method(http.MethodDelete, "/v1/ipam/{ip}", httpx.Handler(s.release))
}

func (s routes) show(w http.ResponseWriter, _ *http.Request) error {
	return httpx.JSON(w, http.StatusOK, usageToV1(s.mode, s.allocator.Usage()))
}

func (s routes) reserve(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.ReservationRequest](w, r)
	if err != nil {
		return err
	}
	req := allocator.Request{Owner: allocator.Handle(body.Owner), Pool: body.Pool, Want: endpoint.Addresses(body.Addresses)}
	if err := checkRequest(req); err != nil {
		return err
	}
	lifetime := min(body.Expires, allocator.MaxReservation+1) // more is refused, and none of it is taken for permanent
	if body.Permanent {
		if body.Expires != 0 {
			return fault.New(fault.Invalid, "expires and permanent: want one of the two")
		}
		lifetime = allocator.Permanent
	}
	got, err := s.source.Reserve(r.Context(), req, lifetime)
	if err != nil {
		return err
	}
	if err := httpx.Send(w, http.StatusOK, reservationToV1(got)); err != nil {
		_, _ = s.allocator.ReleaseReservation(got.Addresses.List()[0], got.Token, nil) // the caller has left, and knows no token
	}
	return nil
}

// checkRequest refuses what no pool can have. Whether a pool has the rest is the allocator's to say.
func checkRequest(req allocator.Request) error {
	if req.Pool != "" {
		if err := v1.CheckPoolName(req.Pool); err != nil {
			return fault.New(fault.Invalid, fmt.Sprintf("pool %.64q %s: want %s", req.Pool, err, v1.PoolNameRule))
		}
	}
	if addr := req.Want.IPv4; addr.IsValid() && !addr.Is4() {
		return fault.New(fault.Invalid, fmt.Sprintf("address %s: not an address of IPv4", addr))
	}
	if addr := req.Want.IPv6; addr.IsValid() && (addr.Is4() || addr.Zone() != "") {
		return fault.New(fault.Invalid, fmt.Sprintf("address %s: not an address of IPv6", addr))
	}
	return nil
}

// release takes the token from the query.
func (s routes) release(w http.ResponseWriter, r *http.Request) error {
	text, err := httpx.Param(r, "ip")
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return fault.New(fault.Invalid, fmt.Sprintf("address %.64q: want an IP address", text))
	}
	was, err := s.allocator.ReleaseReservation(addr, r.URL.Query().Get("token"), s.checkUnused)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, reservationToV1(was))
}

// checkUnused returns an error when an endpoint uses what is reserved, or is being made with its token.
func (s routes) checkUnused(reserved allocator.Reservation) error {
	for _, ep := range s.endpoints.List() {
		if ep.Spec.Reservation == reserved.Token || ep.Addresses == reserved.Addresses {
			return fmt.Errorf("%w by endpoint %s: delete that", allocator.ErrInUse, ep.Spec.Attachment)
		}
	}
	return nil
}

func reservationToV1(r allocator.Reservation) v1.Reservation {
	return v1.Reservation{
		Owner: string(r.Owner), Pool: r.Pool, Addresses: v1.Addresses(r.Addresses), Token: r.Token, Expires: r.Expires.UTC(), Permanent: r.Permanent,
	}
}

// allocationToV1 leaves the address out.
func allocationToV1(a allocator.Allocation) v1.Allocation {
	shown := v1.Allocation{
		Pool: a.Pool, Owner: a.ShownOwner(), Since: a.Since.UTC(), Expires: a.Expires.UTC(),
		Permanent: a.IsPermanent(), Unnamed: !a.Reserved && a.Owner.Unnamed(),
	}
	if attachment, ok := a.Owner.Attachment(); ok && !a.Reserved { // who reserves has a name of its own choice
		shown.ContainerID, shown.IfName = attachment.ContainerID, attachment.IfName
	}
	if namespace, name, ok := a.PodHandle.Pod(); ok {
		shown.Pod = v1.Pod{Namespace: namespace, Name: name}
	}
	return shown
}

func usageToV1(mode string, usage allocator.Usage) v1.IPAM {
	answer := v1.IPAM{Mode: mode, Pools: []v1.Pool{}, Allocations: []v1.Allocation{}}
	for _, pool := range usage.Pools {
		shown := v1.Pool{Name: pool.Name, Ranges: []v1.Range{}}
		for _, b := range pool.Blocks {
			shown.Ranges = append(shown.Ranges, v1.Range{
				Prefix: b.Prefix, Capacity: b.Capacity, Used: b.Used, Quarantined: b.Resting, Free: b.Free, Drained: b.Drained,
				NodeAddresses: b.NodeAddresses,
			})
		}
		answer.Pools = append(answer.Pools, shown)
	}
	for _, a := range usage.Allocations {
		shown := allocationToV1(a)
		for _, addr := range a.Addresses.List() {
			shown.Address = addr
			answer.Allocations = append(answer.Allocations, shown)
		}
	}
	slices.SortFunc(answer.Allocations, func(x, y v1.Allocation) int { return x.Address.Compare(y.Address) })
	return answer
}
