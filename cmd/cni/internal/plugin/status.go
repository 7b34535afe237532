package plugin

import (
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/spec"
)

// status asks whether containers can be attached: whether the agent is ready and has what that takes. They keep what they
// have without an agent; only when it says that it has no programs in the kernel are they cut off.
func (t *task) status() error {
	s, err := t.agent.Status(t.deadline)
	if err != nil {
		fault := t.agentFault("ask for the status of the agent", err)
		fault.Code = spec.NotAvailable
		return fault
	}
	lacking, forecast := lacks(t.needs(s.Resources))
	switch {
	case !s.Ready && len(s.Datapath.Programs) == 0:
		return &spec.Error{
			Code: spec.Limited, Msg: "the agent is not ready, and its programs are not in the kernel", Hint: "look at its log, and at porin status",
		}
	case !s.Ready:
		return &spec.Error{Code: spec.NotAvailable, Msg: "the agent is not ready", Hint: "look at its log, and at porin status"}
	case lacking != "":
		return &spec.Error{Code: spec.NotAvailable, Msg: "the next container would lack " + lacking, Hint: forecast}
	}
	return t.forward(t.deadline)
}

// needs are the resources that an ADD of this network takes: of the agent's own addresses none when another IPAM plugin
// gives them.
func (t *task) needs(resources []v1.Resource) []v1.Resource {
	return slices.DeleteFunc(resources, func(r v1.Resource) bool { return t.delegated() && strings.HasPrefix(r.Name, "addresses/") })
}

// lacks names what is not available, and says what will be next.
func lacks(resources []v1.Resource) (lacking, forecast string) {
	var now, soon []string
	for _, r := range resources {
		switch {
		case !r.Available:
			now = append(now, named(r))
		case r.ExhaustedIn > 0:
			soon = append(soon, r.Name+" in about "+r.ExhaustedIn.String())
		}
	}
	forecast = "look at porin status"
	if len(soon) > 0 {
		forecast += "; if use grows as it does now there is no more of " + strings.Join(soon, ", ")
	}
	return strings.Join(now, ", "), forecast
}

func named(r v1.Resource) string {
	if r.Reason == "" {
		return r.Name
	}
	return r.Name + " (" + r.Reason + ")"
}
