package store

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// tls returns what connections are made with, or nil for plain ones.
func (c EtcdConfig) tls() (*tls.Config, error) {
	if !c.secure() {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("store-etcd-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("store-etcd-ca: no certificate in %s", c.CA)
		}
	}
	if c.Cert != "" {
		if _, err := c.certificate(nil); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = c.certificate
	}
	return cfg, nil
}

// certificate reads the files at every connection, so that they may be renewed.
func (c EtcdConfig) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("store-etcd-cert, store-etcd-key: %w", err)
	}
	return &pair, nil
}

func (c EtcdConfig) password() (string, error) {
	if c.PasswordFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("store-etcd-password-file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("store-etcd-password-file: %s is empty", c.PasswordFile)
	}
	return password, nil
}
