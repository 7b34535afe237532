package manifest

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"porin.dev/porin/cells/policy/model"
)

// ciliumICMP is an entry of icmps. Without fields it matches nothing.
type ciliumICMP struct {
	Fields []ciliumICMPField `json:"fields"`
}

type ciliumICMPField struct {
	Family string              `json:"family"`
	Type   *intstr.IntOrString `json:"type"`
}

// ciliumTypes has names of types, in lower case.
var ciliumTypes = map[model.Protocol]map[string]int{
	model.ICMP: {
		"echoreply": 0, "destinationunreachable": 3, "redirect": 5, "echo": 8, "echorequest": 8, "routeradvertisement": 9, "routerselection": 10, "timeexceeded": 11,
		"parameterproblem": 12, "timestamp": 13, "timestampreply": 14,
	},
	model.ICMPv6: {
		"destinationunreachable": 1, "packettoobig": 2, "timeexceeded": 3, "parameterproblem": 4, "echorequest": 128, "echoreply": 129, "multicastlistenerquery": 130,
		"multicastlistenerreport": 131, "multicastlistenerdone": 132, "routersolicitation": 133, "routeradvertisement": 134, "neighborsolicitation": 135,
		"neighboradvertisement": 136, "redirectmessage": 137,
	},
}

// ciliumICMPs returns no ports if nothing matches. Replies and errors of a connection pass with it: to accept them
// takes no port. A rule can deny other types than echo requests only together, denies them with echo requests, and
// accepts none of them.
func (f *faults) ciliumICMPs(path *field.Path, action model.Action, list []ciliumICMP) (ports []model.Port) {
	for i, entry := range list {
		at := path.Index(i).Child("fields")
		f.atMost(at, len(entry.Fields), 40)
		for j, one := range entry.Fields {
			protocol, number, ok := f.ciliumICMPType(at.Index(j), one)
			switch {
			case !ok:
			case action == model.Deny:
				if number == int(protocol.EchoRequest()) {
					ports = append(ports, model.Port{Protocol: protocol, First: protocol.EchoRequest(), Last: protocol.EchoRequest()})
				}
				// Also for echo requests: the programs take one with the identifier 0 for another type.
				ports = append(ports, model.Port{Protocol: protocol, First: model.OtherTypes, Last: model.OtherTypes})
			case number == int(protocol.EchoRequest()):
				ports = append(ports, model.Port{Protocol: protocol, First: protocol.EchoRequest(), Last: protocol.EchoRequest()})
			case !comesWithConnections(protocol, number):
				f.add(field.Invalid(at.Index(j).Child("type"), one.Type.String(), "only echo requests can be accepted by type; a rule without ports accepts all types"))
			}
		}
	}
	return ports
}

func (f *faults) ciliumICMPType(path *field.Path, one ciliumICMPField) (protocol model.Protocol, number int, ok bool) {
	switch one.Family {
	case "", "IPv4":
		protocol = model.ICMP
	case "IPv6":
		protocol = model.ICMPv6
	default:
		f.add(field.NotSupported(path.Child("family"), one.Family, []string{"IPv4", "IPv6"}))
		return 0, 0, false
	}
	if one.Type == nil {
		f.add(field.Required(path.Child("type"), ""))
		return 0, 0, false
	}
	text := one.Type.String()
	if number, ok = ciliumTypes[protocol][strings.ToLower(text)]; ok {
		return protocol, number, true
	}
	parsed, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		f.add(field.Invalid(path.Child("type"), text, "no type of "+protocol.String()))
	}
	return protocol, int(parsed), err == nil
}

// comesWithConnections reports whether messages of the type belong to the connection of another packet (echo replies,
// errors), or are no matter of policy (neighbour discovery).
func comesWithConnections(protocol model.Protocol, number int) bool {
	if protocol == model.ICMP {
		return number == 0 || number == 3 || number == 11 || number == 12
	}
	return number < 128 || number == 129 || number >= 133 && number <= 136
}
