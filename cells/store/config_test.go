package store_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"porin.dev/porin/cells/store"
)

func TestFlags(t *testing.T) {
	const secure = "--store etcd --store-etcd-endpoints https://192.0.2.1:2379,https://[2001:db8::1]:2379 "
	for line, want := range map[string]string{
		"":                  "",
		"--store embedded":  "",
		"--store-dir /data": "",
		"--store-dir data":  "store-dir \"data\": want an absolute path",
		"--store consul":    "want embedded, kubernetes or etcd",
		"--store etcd":      "want one URL or more",
		secure:              "",
		secure + "--store-etcd-ca /ca --store-etcd-cert /c --store-etcd-key /k --store-etcd-username u --store-etcd-password-file /p": "",
		secure + "--store-etcd-cert /c":                                      "store-etcd-cert, store-etcd-key: want both or none",
		secure + "--store-etcd-username u":                                   "store-etcd-username, store-etcd-password-file: want both or none",
		secure + "--store-etcd-prefix porin/":                                "want one such as /porin/",
		secure + "--store-etcd-prefix /porin":                                "want one such as /porin/",
		secure + "--store-etcd-prefix /Porin/":                               "want one such as /porin/",
		secure + "--store-etcd-prefix /":                                     "",
		secure + "--store-etcd-endpoints http://192.0.2.2:2379":              "some are encrypted and some are not",
		"--store etcd --store-etcd-endpoints 192.0.2.1:2379":                 "want a URL",
		"--store etcd --store-etcd-endpoints http://192.0.2.1":               "want a URL",
		"--store etcd --store-etcd-endpoints http://h:1/path":                "want a URL",
		"--store etcd --store-etcd-endpoints http://u:p@h:1":                 "want a URL",
		"--store etcd --store-etcd-endpoints unix:///run/etcd":               "",
		"--store etcd --store-etcd-endpoints http://h:1 --store-etcd-ca /ca": "of no effect with endpoints that are not https",
		"--store-etcd-endpoints http://h:1":                                  "of no effect without --store etcd",
	} {
		cfg := store.DefaultConfig()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cfg.Flags(flags)
		if err := flags.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		err := cfg.Validate()
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", line, err, want)
		}
	}
}

func TestStartNamesWrongFile(t *testing.T) {
	for what, change := range map[string]func(*store.EtcdConfig, string){
		"store-etcd-ca":                     func(c *store.EtcdConfig, path string) { c.CA = path },
		"store-etcd-cert, store-etcd-key: ": func(c *store.EtcdConfig, path string) { c.Cert, c.Key = path, path },
		"store-etcd-password-file": func(c *store.EtcdConfig, path string) {
			c.Username, c.PasswordFile = "porin", path
		},
	} {
		empty := t.TempDir() + "/empty"
		write(t, empty, "\n")
		for _, path := range []string{"/nowhere", empty} {
			cfg := store.DefaultConfig()
			cfg.Backend, cfg.Etcd.Endpoints = store.BackendEtcd, []string{"https://192.0.2.1:2379"}
			change(&cfg.Etcd, path)
			s, err := store.New(cfg, quiet)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s %s: error %v", what, path, err)
			}
		}
	}
}
