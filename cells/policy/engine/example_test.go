package engine_test

import (
	"fmt"
	"net/netip"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
)

func ExampleEngine_Evaluate() {
	policies, err := manifest.Read([]byte(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 3306}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	web, db := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	e := engine.New(engine.Config{})
	e.Apply(engine.Update{SetPolicies: policies, SetEndpoints: []model.Endpoint{
		{Key: "shop/web", Kind: model.Pod, Namespace: "shop", Labels: map[string]string{"app": "web"}, Addresses: []netip.Addr{web}},
		{Key: "shop/db", Kind: model.Pod, Local: true, Namespace: "shop", Labels: map[string]string{"app": "db"}, Addresses: []netip.Addr{db}},
	}})
	fmt.Println(e.Evaluate(web, db, model.TCP, 3306).Ingress)
	fmt.Println(e.Evaluate(web, db, model.TCP, 22).Ingress)
	fmt.Println(e.Evaluate(db, web, model.TCP, 80).Egress)
	// Output:
	// allowed: rule: NetworkPolicy shop/db, ingress rule 0
	// denied: default deny: NetworkPolicy shop/db, ingress
	// allowed: no policy selects the pod
}
