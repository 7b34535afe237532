package fleet

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config reads a kubeconfig as kubectl does: the named file, or $KUBECONFIG, or ~/.kube/config, or a pod's service
// account.
func Config(kubeconfig, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		return nil, fmt.Errorf("there is no kubeconfig in %s, which the variable %s names", os.Getenv(clientcmd.RecommendedConfigPathEnvVar), clientcmd.RecommendedConfigPathEnvVar)
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("there is no kubeconfig: want --kubeconfig, or the variable KUBECONFIG, or ~/.kube/config")
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}
