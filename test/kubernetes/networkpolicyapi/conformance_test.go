// Package networkpolicyapi is network-policy-api's conformance suite, as a program that test/kubernetes runs.
package networkpolicyapi

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientconfig "sigs.k8s.io/controller-runtime/pkg/client/config"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/config"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

var folder = flag.String("programs", "", "folder of the nodes with the programs agnhost and agnhost-sctp")

// TestNames prints the names of the suite's tests.
func TestNames(*testing.T) {
	for _, test := range tests.ConformanceTests {
		fmt.Println(test.ShortName)
	}
}

func TestConformance(t *testing.T) {
	kubeconfig, err := clientconfig.GetConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(kubeconfig, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := v1alpha2.Install(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	clientset, err := kubernetes.NewForConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s := suite.New(suite.Options{
		Client: mounting{c, *folder}, ClientSet: clientset, KubeConfig: *kubeconfig,
		CleanupBaseResources: true, EnableAllSupportedFeatures: true,
		// By default 3 s and 0.5 s, and half of the requests get no answer.
		TimeoutConfig: config.TimeoutConfig{RequestTimeout: 500 * time.Millisecond, PokeInterval: 50 * time.Millisecond},
	})
	s.Setup(t)
	s.Run(t, tests.ConformanceTests)
}

// mounting creates StatefulSets whose containers have agnhost-sctp in the place of agnhost.
type mounting struct {
	client.Client
	folder string
}

// Create implements [client.Client].
func (m mounting) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if set, ok := object.(*unstructured.Unstructured); ok && set.GetKind() == "StatefulSet" {
		spec := set.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		spec["volumes"] = []any{map[string]any{"name": "programs", "hostPath": map[string]any{"path": m.folder}}}
		for _, container := range spec["containers"].([]any) {
			container.(map[string]any)["volumeMounts"] = []any{
				map[string]any{"name": "programs", "mountPath": "/programs"},
				map[string]any{"name": "programs", "mountPath": "/agnhost", "subPath": "agnhost-sctp"},
			}
		}
	}
	return m.Client.Create(ctx, object, options...)
}
