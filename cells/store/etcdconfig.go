package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// EtcdConfig says how an etcd is reached. Files are read when the store starts; certificate, key and password also when
// a connection is made later, so that they may be renewed.
type EtcdConfig struct {
	// Endpoints are URLs of the members: all https, or all http. unix and unixs are for members on this machine.
	Endpoints []string
	// CA signs the members' certificates; empty for the system's.
	CA string
	// Cert and Key are what this node shows the members, and both or none.
	Cert, Key string
	// Username and PasswordFile are both or none.
	Username, PasswordFile string
	// Prefix is before every key, so that several clusters may share an etcd.
	Prefix string
}

func (c *EtcdConfig) flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.Endpoints, "store-etcd-endpoints", c.Endpoints, "`URL` of each etcd member; repeated or comma separated")
	fs.StringVar(&c.CA, "store-etcd-ca", c.CA, "`file` of the certificates that sign etcd's certificates; empty for the system's")
	fs.StringVar(&c.Cert, "store-etcd-cert", c.Cert, "`file` of the certificate for etcd")
	fs.StringVar(&c.Key, "store-etcd-key", c.Key, "`file` of its key")
	fs.StringVar(&c.Username, "store-etcd-username", c.Username, "user of etcd")
	fs.StringVar(&c.PasswordFile, "store-etcd-password-file", c.PasswordFile, "`file` of the user's password")
	fs.StringVar(&c.Prefix, "store-etcd-prefix", c.Prefix, "what every key in etcd begins with")
}

// Validate reports every fault.
func (c EtcdConfig) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Endpoints) == 0 {
		add("store-etcd-endpoints: want one URL or more, such as https://192.0.2.1:2379")
	}
	for _, text := range c.Endpoints {
		if err := checkEndpoint(text); err != nil {
			add("store-etcd-endpoints %q: %w", text, err)
		} else if isSecure(text) != c.secure() {
			add("store-etcd-endpoints %q: some are encrypted and some are not", text)
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		add("store-etcd-cert, store-etcd-key: want both or none")
	}
	if (c.Username == "") != (c.PasswordFile == "") {
		add("store-etcd-username, store-etcd-password-file: want both or none")
	}
	if len(c.Endpoints) > 0 && !c.secure() && c.CA+c.Cert+c.Key != "" {
		add("store-etcd-ca, store-etcd-cert, store-etcd-key: of no effect with endpoints that are not https")
	}
	if key := strings.TrimPrefix(c.Prefix, "/"); len(key) == len(c.Prefix) || checkPrefix(key) != nil {
		add("store-etcd-prefix %q: want one such as /porin/", c.Prefix)
	}
	return errors.Join(errs...)
}

func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("want a URL such as https://192.0.2.1:2379")
	}
	switch {
	case (u.Scheme == "http" || u.Scheme == "https") && u.Port() != "" && u.Hostname() != "" && u.Path == "" && u.User == nil:
		return nil
	case (u.Scheme == "unix" || u.Scheme == "unixs") && u.Path != "":
		return nil
	}
	return errors.New("want a URL of scheme, host and port, such as https://192.0.2.1:2379")
}

func isSecure(endpoint string) bool {
	return strings.HasPrefix(endpoint, "https:") || strings.HasPrefix(endpoint, "unixs:")
}

func (c EtcdConfig) secure() bool { return len(c.Endpoints) > 0 && isSecure(c.Endpoints[0]) }

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
