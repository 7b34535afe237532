// Package v1 is the agent's HTTP API in Go types, which the agent, the CNI plugin, the operator's CLI and other
// programs share. It imports nothing heavy on purpose, for the plugin is a process that starts for every pod.
//
// The API is JSON over a Unix socket (package client is one in Go). A failure is a [Problem] with a stable code.
// Unknown fields in a request are refused. The document at GET /v1/openapi.json says the same to other languages.
package v1
