package kubernetes

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// cause is the part of the error that does not depend on the request and its connection.
func cause(err error) error {
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		return failed.Err
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status
	}
	return err
}

// remedy is the error with what to do about it.
func remedy(err error) string {
	switch unknown, _ := errors.AsType[x509.UnknownAuthorityError](err); {
	case unknown.Cert != nil:
		return fmt.Sprintf("%v: the CA in the kubeconfig or of the service account is not the API server's: correct it", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("%v: the API server does not take the agent's token or certificate: renew it", err)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%v: bind the agent's account to a role that may list and watch it", err)
	}
	return err.Error()
}
