package kubernetestest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patch makes a strategic merge patch of an object.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target) {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	before := s.objects[t.Resource.Resource][t.key()]
	s.mu.Unlock()
	if before == nil {
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", t.Resource.Resource, t.name))
		return
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	fields := merged(before.fields, patch)
	o, code, reason, err := s.put(t, fields, false)
	if err != nil {
		s.fail(w, code, reason, err.Error())
		return
	}
	s.answer(w, r, code, o)
}

// merged is the object after a patch. It replaces lists, and merges conditions by their type.
func merged(before, patch map[string]any) map[string]any {
	after := maps.Clone(before)
	if after == nil {
		after = map[string]any{}
	}
	for key, value := range patch {
		list, isList := value.([]any)
		switch fields, isObject := value.(map[string]any); {
		case isObject:
			inner, _ := before[key].(map[string]any)
			after[key] = merged(inner, fields)
		case isList && key == "conditions":
			others, _ := before[key].([]any)
			for _, other := range others {
				if !slices.ContainsFunc(list, func(c any) bool { return c.(map[string]any)["type"] == other.(map[string]any)["type"] }) {
					list = append(list, other)
				}
			}
			after[key] = list
		default:
			after[key] = value
		}
	}
	return after
}
