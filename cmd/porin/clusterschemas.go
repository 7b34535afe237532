package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"porin.dev/porin/deploy"
)

// definition is the part of a CustomResourceDefinition that says what a record can have.
type definition struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Versions []struct {
			Name   string `json:"name"`
			Schema any    `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// addSchemaFaults compares the definitions of Porin's records at the API server with its own. With older definitions,
// agents of its version cannot write all of their records.
func addSchemaFaults(ctx context.Context, s *session, faults, notes *faultList) {
	for document := range bytes.SplitSeq(deploy.CRDs, []byte("\n---\n")) {
		var want, have definition
		text, err := yaml.YAMLToJSON(document)
		if err == nil {
			err = json.Unmarshal(text, &want)
		}
		name := want.Metadata.Name
		if err == nil && name == "" {
			continue // comments
		}
		if err == nil {
			err = s.cluster.Request(ctx, http.MethodGet, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name, nil, &have)
		}
		switch {
		case apierrors.IsNotFound(err):
			faults.add("", "CRD "+name+" is missing: apply the manifest of the agents' version")
		case err != nil:
			notes.add("", "CRDs are not compared: "+err.Error())
			return
		case !reflect.DeepEqual(want.Spec.Versions, have.Spec.Versions):
			notes.add("", fmt.Sprintf("CRD %s is not that of this program's version: if it is older than the agents, apply the manifest of their version", name))
		}
	}
}
