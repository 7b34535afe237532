package cni

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/testutil/reference"
)

func TestNetworkReference(t *testing.T) {
	var keys [][]string
	for _, config := range []any{baseConfig{}, addConfig{}, checkConfig{}, gcConfig{}, resultConfig{}} {
		keys = append(keys, reference.Keys(t, config)...)
	}
	var args [][]string
	for _, field := range reflect.VisibleFields(reflect.TypeOf(podArgs{})) {
		if doc := field.Tag.Get("doc"); doc != "" {
			args = append(args, []string{reference.Code(field.Name), doc})
		} else if field.Name != "CommonArgs" && field.Name != "IgnoreUnknown" {
			t.Errorf("podArgs.%s has no tag doc", field.Name)
		}
	}
	codes := [][]string{
		code(types.ErrIncompatibleCNIVersion, "Porin does not support the version of the configuration", "change `cniVersion`"),
		code(types.ErrInvalidEnvironmentVariables, "a variable of the environment, or of `CNI_ARGS`, is wrong", "the container runtime must set it"),
		code(types.ErrIOFailure, "the plugin could not read its configuration", ""),
		code(types.ErrDecodingFailure, "the configuration is not JSON", "correct it"),
		code(8, "`CNI_NETNS` is no network namespace", "the container runtime must make it first"),
		code(50, "STATUS: no ADD can succeed, and waiting does not help", "the error says what is lacking"),
		code(codeDiffers, "CHECK: something is not as the ADD left it", "remove the container and create it again"),
	}
	for _, kind := range fault.Kinds() {
		number, hint := codeOf(kind)
		codes = append(codes, code(number, "an error of the agent of kind "+string(kind), hint))
	}
	slices.SortStableFunc(codes, func(a, b []string) int { return cmp.Or(cmp.Compare(len(a[0]), len(b[0])), strings.Compare(a[0], b[0])) })
	reference.Check(t, "cni-network.md", `# CNI: network configuration, arguments and error codes

## Keys

The agent reads these keys of the network configuration. [cni-plugin.md](cni-plugin.md) has the keys that the plugin reads itself.

`+reference.Table([]string{"key", "meaning"}, keys)+`
## CNI_ARGS

Keys that Porin does not know are ignored.

`+reference.Table([]string{"key", "meaning"}, args)+`
## Annotations of the pod

They need the capability `+"`io.kubernetes.cri.pod-annotations`"+`, which the configuration that the agent writes has. An argument in
`+"`CNI_ARGS`"+` comes before the annotation.

`+reference.Table([]string{"annotation", "meaning"}, [][]string{
		{reference.Code(poolAnnotation), "as `PORIN_POOL`"}, {reference.Code(reservationAnnotation), "as `PORIN_RESERVATION`"},
		{reference.Code(masqueradeAnnotation), "`\"false\"`: the pod keeps its address towards what is outside of the cluster"},
	})+`
## Error codes

An error that an IPAM plugin printed is passed on as it is. An error may have a better hint than this one.

`+reference.Table([]string{"code", "reason", "what to do"}, codes))
}

func code(number uint, reason, hint string) []string {
	return []string{fmt.Sprint(number), reason, hint}
}
