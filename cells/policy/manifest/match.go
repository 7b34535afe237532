package manifest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"porin.dev/porin/cells/policy/model"
)

// selector converts labels in the order of their keys, so that equal selectors are equal values.
func (f *faults) selector(path *field.Path, s metav1.LabelSelector) model.Selector {
	f.add(metavalidation.ValidateLabelSelector(&s, metavalidation.LabelSelectorValidationOptions{}, path)...)
	var requirements model.Selector
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		requirements = append(requirements, model.Requirement{Key: key, Operator: model.In, Values: []string{s.MatchLabels[key]}})
	}
	for _, e := range s.MatchExpressions {
		operator := map[metav1.LabelSelectorOperator]model.Operator{
			metav1.LabelSelectorOpIn: model.In, metav1.LabelSelectorOpNotIn: model.NotIn,
			metav1.LabelSelectorOpExists: model.Exists, metav1.LabelSelectorOpDoesNotExist: model.DoesNotExist,
		}[e.Operator] // an unknown one has been reported
		requirements = append(requirements, model.Requirement{Key: e.Key, Operator: operator, Values: slices.Sorted(slices.Values(e.Values))})
	}
	return requirements
}

// prefix accepts bits behind the mask, as the API server does, and drops them.
func (f *faults) prefix(path *field.Path, text string) netip.Prefix {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		f.add(field.Invalid(path, text, "not a CIDR such as 10.0.0.0/8 or fd00::/8"))
	} else if p.Addr().Is4In6() {
		f.add(field.Invalid(path, text, "write the IPv4 addresses as IPv4"))
	}
	return p.Masked()
}

// block converts a CIDR with exceptions, which are parts of it.
func (f *faults) block(path *field.Path, cidr string, exceptions []string) *model.Block {
	block := &model.Block{CIDR: f.prefix(path.Child("cidr"), cidr)}
	for i, text := range exceptions {
		at := path.Child("except").Index(i)
		except := f.prefix(at, text)
		if block.CIDR.IsValid() && except.IsValid() && (except.Bits() <= block.CIDR.Bits() || !block.CIDR.Overlaps(except)) {
			f.add(field.Invalid(at, text, "not a part of cidr "+cidr))
		}
		block.Except = append(block.Except, except)
	}
	return block
}

func (f *faults) protocol(path *field.Path, p corev1.Protocol) model.Protocol {
	switch p {
	case corev1.ProtocolTCP, "":
		return model.TCP
	case corev1.ProtocolUDP:
		return model.UDP
	case corev1.ProtocolSCTP:
		return model.SCTP
	}
	f.add(field.NotSupported(path, p, []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}))
	return 0
}

func (f *faults) portNumber(path *field.Path, number int32) uint16 {
	for _, text := range validation.IsValidPortNum(int(number)) {
		f.add(field.Invalid(path, number, text))
	}
	return uint16(number)
}

func (f *faults) portName(path *field.Path, name string) string {
	for _, text := range validation.IsValidPortName(name) {
		f.add(field.Invalid(path, name, text))
	}
	return name
}

// atMost reports a list that is too long.
func (f *faults) atMost(path *field.Path, length, limit int) {
	if length > limit {
		f.add(field.TooMany(path, length, limit))
	}
}

// oneOf reports an object that does not have exactly one field set.
func (f *faults) oneOf(path *field.Path, set map[string]bool) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if set[name] {
			names = append(names, name)
		}
	}
	switch all := slices.Sorted(maps.Keys(set)); {
	case len(names) == 0:
		f.add(field.Required(path, fmt.Sprintf("one of %v", all)))
	case len(names) > 1:
		f.add(field.Forbidden(path, fmt.Sprintf("%v together: only one of %v", names, all)))
	}
}
