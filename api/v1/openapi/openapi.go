// Package openapi is the agent's API as an OpenAPI 3.1 document, for callers in other languages. It is written by
// hand, and held against the Go types by a test here and against the routes by openapitest.
package openapi

import _ "embed"

//go:embed openapi.json
var document []byte

// Document is the document as JSON. The caller must not change it.
func Document() []byte { return document }
