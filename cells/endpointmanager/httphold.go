package endpointmanager

import (
	"errors"
	"net/http"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/httpx"
)

// accept is POST /v1/restore/accept.
func (s routes) accept(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.AcceptRequest](w, r)
	if err != nil {
		return err
	}
	a, err := s.heldBy(body.Endpoint)
	if err != nil {
		return err
	}
	result := s.Holder.Accept(r.Context(), a)
	for _, err := range result.Errors {
		if errors.Is(err, ErrNotHeld) {
			return err
		}
	}
	return answerDeletion(w, result)
}

// heldBy finds what is held by its text form, which is none of an attachment where that is not known. The empty string is all.
func (s routes) heldBy(text string) (Attachment, error) {
	if text == "" {
		return Attachment{}, nil
	}
	for _, h := range s.Holder.Held() {
		if a := h.Endpoint.Spec.Attachment; a.String() == text {
			return a, nil
		}
	}
	return ParseAttachment(text)
}

func heldToV1(list []Held) v1.Held {
	out := v1.Held{Count: len(list)}
	for _, h := range list[:min(len(list), most)] {
		ep := h.Endpoint
		out.Endpoints = append(out.Endpoints, v1.HeldEndpoint{
			Endpoint: ep.Spec.Attachment.String(), Link: ep.Host.Name, Addresses: v1.Addresses(ep.Addresses),
			Reason: string(h.Reason), Detail: h.Detail,
		})
	}
	return out
}
