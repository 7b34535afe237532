package engine

import "fmt"

// Reason says why traffic is allowed or denied in one direction.
type Reason uint8

// The reasons.
const (
	ReasonRule           Reason = iota // a rule accepts or denies it
	ReasonDefaultDeny                  // NetworkPolicies select the pod, and none accepts it
	ReasonNoPolicy                     // no policy for the direction selects the pod
	ReasonNoRule                       // policies select the pod, none decides
	ReasonNoSubject                    // this end is no pod
	ReasonSelf                         // a pod reaches itself
	ReasonHost                         // the node reaches its pods
	ReasonUnknownLabels                // the labels of the pod are not known
	ReasonUnmanaged                    // pods that nothing is known of reach this node's
	ReasonLayer7Conflict               // rules accept it for several protocols of layer 7
	ReasonOtherNode                    // no policy of this node selects the pod, which is of another node: that one decides
)

func (r Reason) String() string {
	return [...]string{
		"rule", "default deny", "no policy selects the pod", "no rule matches", "not a pod", "the pod itself", "this node", "the pod's labels are not known",
		"a pod that nothing is known of", "rules for HTTP and for DNS meet", "decided by the pod's node",
	}[r]
}

// Decision is the answer for a connection in one direction, by the policies of one of its ends.
type Decision struct {
	Allowed bool
	Reason  Reason
	Rule    *Rule    // of ReasonRule, ReasonDefaultDeny and ReasonLayer7Conflict
	Passed  [2]*Rule // the rules of the admin and of the baseline tier that passed it on
	Layer7  *Layer7  // what the proxy applies to a connection that is allowed; nil: it does not see it
}

func (d Decision) String() string {
	text := "denied"
	if d.Allowed {
		text = "allowed"
	}
	text += ": " + d.Reason.String()
	if d.Rule != nil {
		text += ": " + d.Rule.String()
	}
	if d.Layer7 != nil {
		text += ", through the proxy: " + d.Layer7.Rules.String()
	}
	for _, r := range d.Passed {
		if r != nil {
			text += ", passed on by " + r.String()
		}
	}
	return text
}

// String is "Kind name, ingress rule 2 (name)".
func (r *Rule) String() string {
	switch {
	case r.Index < 0:
		return fmt.Sprintf("%s, %s", r.Policy, r.Direction)
	case r.Name != "":
		return fmt.Sprintf("%s, %s rule %d (%s)", r.Policy, r.Direction, r.Index, r.Name)
	}
	return fmt.Sprintf("%s, %s rule %d", r.Policy, r.Direction, r.Index)
}

// Verdict is the answer for a connection: the decisions of both directions, which both have to allow it.
type Verdict struct {
	From, To        End
	Allowed         bool
	Egress, Ingress Decision
	// AuditEgress and AuditIngress are what the decisions would be if nothing was in audit; nil for the same.
	AuditEgress, AuditIngress *Decision
}
