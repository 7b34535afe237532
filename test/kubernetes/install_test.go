package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: many, namespace: %s}
spec:
  replicas: 0
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: pause, image: registry.k8s.io/pause:3.10.2, imagePullPolicy: Never}]
`

// The manifest makes nodes ready and CoreDNS serve. A Deployment of 30 pods goes up and down ten times, and nothing of it is left.
func TestInstall(t *testing.T) {
	c := porin(t)
	namespace := c.namespace(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	before := c.inventory(t)
	for i := range 10 {
		began := time.Now()
		c.scale(t, namespace, 30)
		up := time.Since(began)
		c.scale(t, namespace, 0)
		t.Logf("round %d: 30 pods up in %.1f s, down in %.1f s", i+1, up.Seconds(), (time.Since(began) - up).Seconds())
	}
	c.nothingLeft(t, before)
}

// inventory is all that a pod leaves somewhere: files, links and namespaces of nodes, addresses of agents and of the API server.
func (c *cluster) inventory(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, node := range c.nodes {
		files, err := c.on(node, "sh", "-c", "ls -d /run/netns/* /run/porin/deletions/* /sys/class/net/* /var/lib/cni/*/* 2>/dev/null")
		if files == "" {
			t.Fatal(err)
		}
		all[node] = slices.DeleteFunc(strings.Fields(files), func(file string) bool { // which are of no pod
			return strings.HasSuffix(file, "/deletions/lock") || strings.HasPrefix(file, "/sys/class/net/porin-l7")
		})
		endpoints, err := c.agent(node, "endpoint", "list")
		if err != nil {
			t.Fatal(err)
		}
		all[node+", endpoints"] = []string{fmt.Sprint(strings.Count(endpoints, "\n"))}
	}
	var groups struct {
		Items []struct {
			Spec struct {
				Endpoints []struct {
					Addresses []string `json:"addresses"`
				} `json:"endpoints"`
			} `json:"spec"`
		} `json:"items"`
	}
	if err := c.get(&groups, "porinendpointgroups"); err != nil {
		t.Fatal(err)
	}
	for _, group := range groups.Items {
		for _, endpoint := range group.Spec.Endpoints {
			all["API server"] = append(all["API server"], endpoint.Addresses...)
		}
	}
	slices.Sort(all["API server"])
	return all
}
