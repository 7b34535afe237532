package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// routes are the calls on /v1/endpoint.
type routes struct {
	fx.In

	Manager    Manager
	Holder     Holder
	Lookup     Lookup
	Traces     *traces
	Describers []Describer `group:"endpoint.describers"`
	PodSources []PodSource `group:"endpoint.podsources"`
}

func newRoutes(r routes) routes { return r }

// Mount implements server.Routes.
func (s routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/endpoint", httpx.Handler(s.list))
	r.Method(http.MethodDelete, "/v1/endpoint", httpx.Handler(s.deleteContainer))
	r.Method(http.MethodPut, "/v1/endpoint/{id}", httpx.Handler(s.create))
	r.Method(http.MethodGet, "/v1/endpoint/{id}", httpx.Handler(s.get))
	r.Method(http.MethodPatch, "/v1/endpoint/{id}", httpx.Handler(s.update))
	r.Method(http.MethodDelete, "/v1/endpoint/{id}", httpx.Handler(s.delete))
	r.Method(http.MethodPost, "/v1/gc", httpx.Handler(s.collect))
	r.Method(http.MethodPost, "/v1/restore/accept", httpx.Handler(s.accept))
	r.Method(http.MethodGet, "/v1/trace", httpx.Handler(s.traces))
}

func (s routes) create(w http.ResponseWriter, r *http.Request) error {
	attachment, err := pathValue(r, parseAttachment)
	if err != nil {
		return err
	}
	body, err := httpx.Decode[v1.EndpointRequest](w, r)
	if err != nil {
		return err
	}
	spec, err := specFromV1(attachment, body)
	if err != nil {
		return err
	}
	namespace, err := takeNamespace(r.Context())
	if err != nil {
		return err
	}
	ep, err := s.Manager.Create(r.Context(), spec, namespace)
	if err != nil {
		return err
	}
	if err := httpx.Send(w, http.StatusOK, ToV1(ep)); err != nil && !ep.Renewed {
		// The caller has left. It takes what it asked for to have failed, and may never ask for the deletion.
		s.Manager.Delete(context.WithoutCancel(r.Context()), attachment, endpoint.DeleteConfig{Began: ep.Spec.Began})
	}
	return nil
}

// parseAttachment also takes the form of [endpoint.ParseRef].
func parseAttachment(text string) (endpoint.Attachment, error) {
	return endpoint.ParseAttachment(strings.TrimPrefix(text, "cni-attachment-id:"))
}

// parseRef also takes the form of [endpoint.ParseAttachment].
func parseRef(text string) (endpoint.Ref, error) {
	ref, err := endpoint.ParseRef(text)
	if a, attachmentErr := endpoint.ParseAttachment(text); err != nil && attachmentErr == nil {
		return endpoint.ByAttachment(a), nil
	}
	return ref, err
}

// takeNamespace takes the descriptor of the container's network namespace that came with the request, if one did.
func takeNamespace(ctx context.Context) (*endpoint.Namespace, error) {
	file, err := server.TakeDescriptor(ctx)
	if errors.Is(err, server.ErrNoDescriptor) {
		return nil, nil // a step that needs one says so
	}
	if err != nil {
		return nil, err
	}
	namespace, err := endpoint.OpenNamespace(file)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fmt.Errorf("descriptor of the request: %w", err))
	}
	return namespace, nil
}

func (s routes) list(w http.ResponseWriter, r *http.Request) error {
	list := []v1.Endpoint{} // an empty list is [] and not null
	network := r.URL.Query().Get("network")
	for _, ep := range s.Lookup.List() {
		if network == "" || ep.Spec.Network == network {
			list = append(list, s.describe(ep))
		}
	}
	return httpx.JSON(w, http.StatusOK, list)
}

func (s routes) get(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, endpoint.ParseRef)
	if err != nil {
		return err
	}
	ep, err := s.Lookup.Get(ref)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, s.describe(ep))
}

func (s routes) update(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, endpoint.ParseRef)
	if err != nil {
		return err
	}
	body, err := httpx.Decode[v1.EndpointPatch](w, r)
	if err != nil {
		return err
	}
	ep, err := s.Lookup.Get(ref)
	if err != nil {
		return err
	}
	change := endpoint.Metadata{Labels: body.Labels, NamespaceLabels: body.NamespaceLabels, NamedPorts: body.NamedPorts, Audit: body.Audit}
	if err := checkPatch(s.PodSources, ep, change); err != nil {
		return err
	}
	if ep, err = s.Manager.Update(r.Context(), ep.Spec.Attachment, change); err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, s.describe(ep))
}

// delete answers success for an unknown attachment, as a runtime may ask twice. Any other reference comes
// from a person or a program that has seen the endpoint, and deserves to hear that it is not there.
func (s routes) delete(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, parseRef)
	if err != nil {
		return err
	}
	attachment, ok := ref.Attachment()
	if !ok {
		ep, err := s.Lookup.Get(ref)
		if err != nil {
			return err
		}
		attachment = ep.Spec.Attachment
	}
	began := int64(0)
	if text := r.URL.Query().Get("began"); text != "" {
		if began, err = strconv.ParseInt(text, 10, 64); err != nil || began <= 0 {
			return errBegan
		}
	}
	force := r.URL.Query().Get("force")
	if force != "" && force != "true" && force != "false" {
		return fault.New(fault.Invalid, "force: want true or false")
	}
	cfg := endpoint.DeleteConfig{Began: time.Duration(began), Force: force == "true"}
	return answerDeletion(w, s.Manager.Delete(r.Context(), attachment, cfg))
}

func (s routes) deleteContainer(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.DeleteRequest](w, r)
	if err != nil {
		return err
	}
	if err := endpoint.ValidateContainerID(body.ContainerID); err != nil {
		return err
	}
	if body.Began < 0 {
		return errBegan
	}
	return answerDeletion(w, s.Manager.DeleteContainer(r.Context(), body.ContainerID, endpoint.DeleteConfig{Began: time.Duration(body.Began)}))
}

// answerDeletion answers with a success only when the rest of the deletion is on record: its caller does not ask again.
func answerDeletion(w http.ResponseWriter, result DeleteResult) error {
	for _, err := range result.Errors {
		if errors.Is(err, ErrStopped) || errors.Is(err, ErrPending) || errors.Is(err, ErrNotHeld) {
			return err
		}
	}
	return httpx.JSON(w, http.StatusOK, resultToV1(result))
}

func (s routes) describe(ep endpoint.Endpoint) v1.Endpoint {
	description := ToV1(ep)
	for _, d := range s.Describers {
		d.Describe(ep, &description)
	}
	return description
}

func resultToV1(result DeleteResult) v1.DeleteResult {
	out := v1.DeleteResult{Deleted: result.Deleted, Skipped: result.Skipped, Errors: len(result.Errors)}
	for _, err := range result.Errors {
		out.Details = append(out.Details, err.Error())
	}
	for _, err := range result.GivenUp {
		out.GivenUp = append(out.GivenUp, err.Error())
	}
	return out
}

// pathValue reads the last part of the path.
func pathValue[T any](r *http.Request, parse func(string) (T, error)) (T, error) {
	text, err := httpx.Param(r, "id")
	if err != nil {
		var none T
		return none, err
	}
	return parse(text)
}

// ToV1 is the endpoint as the API shows it, without the part that a [Describer] adds. Unknown fields are left empty.
func ToV1(ep endpoint.Endpoint) v1.Endpoint {
	if ep.Spec.Attachment.IsUnnamed() {
		ep.Spec.Attachment, ep.Container.Name = endpoint.Attachment{}, ""
	}
	metadata, _ := endpoint.DecodeMetadata(ep.Metadata) // checked when it was given
	mappings, _ := ep.Spec.DecodePortMappings()
	var gateways v1.Addresses
	if ep.Addresses.IPv4.IsValid() {
		gateways.IPv4 = v1.GatewayIPv4
	}
	if ep.Addresses.IPv6.IsValid() {
		gateways.IPv6 = v1.GatewayIPv6
	}
	return v1.Endpoint{
		ID:           ep.ID,
		ContainerID:  ep.Spec.Attachment.ContainerID,
		IfName:       ep.Spec.Attachment.IfName,
		Kind:         string(ep.Spec.Kind),
		State:        string(ep.State),
		Network:      ep.Spec.Network,
		Pod:          ep.Spec.Pod,
		NetNS:        ep.Spec.NetNS,
		Host:         ep.Host,
		Container:    ep.Container,
		Addresses:    ep.Addresses,
		Pool:         ep.Pool,
		ExternalIPAM: ep.Spec.ExternalIPAM,
		PortMappings: mappings,
		NoMasquerade: ep.Spec.NoMasquerade,
		Bandwidth:    ep.Spec.Bandwidth,
		Created:      ep.Created,
		Gateways:     gateways,

		Labels: metadata.Labels, NamespaceLabels: metadata.NamespaceLabels, NamedPorts: metadata.NamedPorts,
		Audit: metadata.Audit != nil && *metadata.Audit,
	}
}

var errBegan = fault.New(fault.Invalid, "began: want nanoseconds since the node booted")

// specFromV1 reads what a caller asks for; [endpoint.Spec.Validate] does the rest.
func specFromV1(a endpoint.Attachment, body v1.EndpointRequest) (endpoint.Spec, error) {
	if body.Began < 0 {
		return endpoint.Spec{}, errBegan
	}
	metadata, err := endpoint.Metadata{Labels: body.Labels, NamespaceLabels: body.NamespaceLabels, NamedPorts: body.NamedPorts, Audit: body.Audit}.Encode()
	if err != nil {
		return endpoint.Spec{}, err
	}
	mappings, err := endpoint.EncodePortMappings(body.PortMappings)
	if err != nil {
		return endpoint.Spec{}, err
	}
	return endpoint.Spec{
		Metadata:     metadata,
		PortMappings: mappings,
		NoMasquerade: body.NoMasquerade,
		Attachment:   a,
		Network:      body.Network,
		Pod:          body.Pod,
		NetNS:        body.NetNS,
		MTU:          body.MTU,
		Bandwidth:    body.Bandwidth,
		Pool:         body.Pool,
		Requested:    body.Addresses,
		Reservation:  body.Reservation,
		ExternalIPAM: body.ExternalIPAM,
		Began:        time.Duration(body.Began),
	}, nil
}
