package endpointmanager

import "testing"

// TestPathForms: PUT and DELETE take CONTAINER:INTERFACE with and without its prefix.
func TestPathForms(t *testing.T) {
	for _, text := range []string{"c1:eth0", "cni-attachment-id:c1:eth0"} {
		a, err := parseAttachment(text)
		ref, refErr := parseRef(text)
		named, ok := ref.Attachment()
		if err != nil || refErr != nil || !ok || a != named || a.String() != "c1:eth0" {
			t.Errorf("%s: %v, %v, and %v, %v", text, a, err, ref, refErr)
		}
	}
}
