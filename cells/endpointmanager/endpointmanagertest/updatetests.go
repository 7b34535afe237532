package endpointmanagertest

import (
	"errors"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/fault"
)

const webInShop = `{"labels":{"app":"web"},"namespaceLabels":{"team":"shop"}}`

// labelled is the Spec of an attachment with labels.
func labelled(attachment, metadata string) endpoint.Spec {
	spec := Spec(attachment)
	spec.Metadata = metadata
	return spec
}

func (n testNode) hasMetadata(t *testing.T, attachment, want string) {
	t.Helper()
	a, err := endpoint.ParseAttachment(attachment)
	if err != nil {
		t.Fatal(err)
	}
	if ep, err := n.Get(endpoint.ByAttachment(a)); err != nil || ep.Metadata != want {
		t.Errorf("%s has %s (%v), want %s", attachment, ep.Metadata, err, want)
	}
}

func testUpdate(t *testing.T, n testNode) {
	ep := n.create(t, labelled("c1:eth0", webInShop))
	if ep.Metadata != webInShop || ep.Spec.Metadata != "" {
		t.Errorf("created with %q, and %q in its Spec", ep.Metadata, ep.Spec.Metadata)
	}
	wantLog(t, n.ipam, "ipam attach c1:eth0")
	const want = `{"labels":{"app":"db"},"namespaceLabels":{"team":"shop"}}`
	for range 2 { // the second time nothing changes
		changed, err := n.Update(t.Context(), ep.Spec.Attachment, endpoint.Metadata{Labels: map[string]string{"app": "db"}})
		if err != nil || changed.Metadata != want || changed.ID != ep.ID {
			t.Errorf("update: %+v, %v, want metadata %s", changed, err, want)
		}
	}
	n.hasMetadata(t, "c1:eth0", want)
	wantLog(t, n.ipam, "ipam update c1:eth0")
	if _, err := n.Update(t.Context(), ep.Spec.Attachment, endpoint.Metadata{Labels: map[string]string{"-": ""}}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a label that is none: error %v, want one of kind invalid", err)
	}
	other := map[string]string{endpoint.NamespaceNameLabel: "kube-system"}
	if _, err := n.Update(t.Context(), ep.Spec.Attachment, endpoint.Metadata{NamespaceLabels: other}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("another namespace's name: error %v, want one of kind invalid", err)
	}
	if _, err := n.Update(t.Context(), Spec("c9:eth0").Attachment, endpoint.Metadata{}); !errors.Is(err, endpointmanager.ErrNotFound) {
		t.Errorf("update of what is not there: error %v", err)
	}
	n.hasMetadata(t, "c1:eth0", want)
	n.wants(t, "c1:eth0", "created c1:eth0", "updated c1:eth0")
	wantLog(t, n.ipam)
}

// testUpdateFails has a later step fail: the earlier one is taken back.
func testUpdateFails(t *testing.T, n testNode) {
	ep := n.create(t, labelled("c1:eth0", webInShop))
	wantLog(t, n.ipam, "ipam attach c1:eth0")
	n.datapath.Fail("update", 1, errKernel)
	if _, err := n.Update(t.Context(), ep.Spec.Attachment, endpoint.Metadata{Labels: map[string]string{}}); !errors.Is(err, errKernel) {
		t.Errorf("error %v, want %v", err, errKernel)
	}
	n.hasMetadata(t, "c1:eth0", webInShop)
	wantLog(t, n.ipam, "ipam update c1:eth0", "ipam update c1:eth0")
}

// testCreateAgainWithLabels has the labels of the last call that has some.
func testCreateAgainWithLabels(t *testing.T, n testNode) {
	first := n.create(t, labelled("c1:eth0", webInShop))
	for _, row := range []struct{ given, want string }{
		{"", webInShop},
		{`{"labels":{"app":"db"}}`, `{"labels":{"app":"db"},"namespaceLabels":{"team":"shop"}}`},
		{`{"labels":{}}`, `{"labels":{},"namespaceLabels":{"team":"shop"}}`},
	} {
		if again := n.create(t, labelled("c1:eth0", row.given)); again.ID != first.ID || !again.Renewed || again.Metadata != row.want {
			t.Errorf("created again with %q: %+v, want %d with %s", row.given, again, first.ID, row.want)
		}
		n.hasMetadata(t, "c1:eth0", row.want)
	}
	n.datapath.Fail("update", 1, errKernel)
	n.refused(t, labelled("c1:eth0", webInShop), errKernel)
	n.wants(t, "c1:eth0", "created c1:eth0", "updated c1:eth0", "updated c1:eth0")
}
