// Package deploy has what an installation applies.
package deploy

import _ "embed"

// CRDs are the definitions of the records at the API server, as YAML documents.
//
//go:embed chart/templates/crds.yaml
var CRDs []byte
