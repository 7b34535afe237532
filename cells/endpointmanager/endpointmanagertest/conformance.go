package endpointmanagertest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/endpointmanager"
)

// Open returns a manager of the steps and the subscriber that has no endpoint, started, and what reads it.
type Open func(t *testing.T, steps endpoint.Steps, subscriber endpoint.Subscriber) (endpointmanager.Manager, endpointmanager.Lookup)

// TestManager holds a manager to what [endpointmanager.Manager] and [endpointmanager.Lookup] promise. [Manager] and the
// real one pass it.
func TestManager(t *testing.T, open Open) {
	for name, test := range managerTests {
		t.Run(name, func(t *testing.T) {
			n := testNode{ipam: NewStep("ipam"), datapath: NewStep("datapath"), events: endpointtest.NewEvents()}
			n.Manager, n.Lookup = open(t, endpoint.Steps{n.ipam, n.datapath}, n.events)
			test(t, n)
		})
	}
}

var managerTests = map[string]func(*testing.T, testNode){
	"create and delete":             testCreate,
	"create again":                  testCreateAgain,
	"create with another spec":      testCreateOther,
	"create invalid":                testCreateInvalid,
	"create fails":                  testCreateFails,
	"create ends with its caller":   testCreateCallerLeaves,
	"create ends with its deletion": testCreateDeleted,
	"late create":                   testLateCreate,
	"newer container of a pod":      testNewerContainer,
	"address in use":                testAddressInUse,
	"delete fails":                  testDeleteFails,
	"delete by force":               testDeleteForce,
	"delete of an earlier life":     testDeleteSpares,
	"delete container":              testDeleteContainer,
	"delete container, reserved":    testDeleteContainerReserved,
	"delete with sweep":             testSweep,
	"repair":                        testRepair,
	"update":                        testUpdate,
	"update fails":                  testUpdateFails,
	"create again with labels":      testCreateAgainWithLabels,
	"collect":                       testCollect,
	"many side by side":             testSideBySide,
}

// testNode is a manager with its steps and its subscriber.
type testNode struct {
	endpointmanager.Manager
	endpointmanager.Lookup
	ipam, datapath *Step
	events         *endpointtest.Events
}

func (n testNode) create(t *testing.T, spec endpoint.Spec) endpoint.Endpoint {
	t.Helper()
	ep, err := n.Create(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

// refused creates what is refused with an error.
func (n testNode) refused(t *testing.T, spec endpoint.Spec, want error) {
	t.Helper()
	if _, err := n.Create(t.Context(), spec, nil); !errors.Is(err, want) {
		t.Errorf("create %s: error %v, want %v", spec.Attachment, err, want)
	}
}

// wants compares who is attached to both steps and in the table, and what the subscriber has heard.
func (n testNode) wants(t *testing.T, attached string, events ...string) {
	t.Helper()
	var listed []string
	for _, ep := range n.List() {
		listed = append(listed, ep.Spec.Attachment.String())
	}
	slices.Sort(listed)
	for what, got := range map[string][]string{"the table has": listed, "ipam has": n.ipam.Attached(), "datapath has": n.datapath.Attached()} {
		if strings.Join(got, " ") != attached {
			t.Errorf("%s %q, want %q", what, got, attached)
		}
	}
	if got := n.events.Lines(); !slices.Equal(got, events) {
		t.Errorf("the subscriber heard %q, want %q", got, events)
	}
}

func (n testNode) del(t *testing.T, attachment string, cfg endpoint.DeleteConfig, want endpointmanager.DeleteResult) {
	t.Helper()
	wantResult(t, "delete "+attachment, n.Delete(t.Context(), Spec(attachment).Attachment, cfg), want)
}

func wantResult(t *testing.T, what string, got, want endpointmanager.DeleteResult) {
	t.Helper()
	if got.Deleted != want.Deleted || got.Skipped != want.Skipped || len(got.Errors) != len(want.Errors) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

var (
	one       = endpointmanager.DeleteResult{Deleted: 1}
	none      = endpointmanager.DeleteResult{}
	errKernel = errors.New("the kernel said no")
)

func wantLog(t *testing.T, s *Step, want ...string) {
	t.Helper()
	if got := s.Log(); !slices.Equal(got, want) {
		t.Errorf("calls of the step %q, want %q", got, want)
	}
}
