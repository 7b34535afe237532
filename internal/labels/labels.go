// Package labels has the one rule for labels of nodes and pods, and for what selects them. It is that of Kubernetes, so
// that a selector means the same everywhere.
package labels

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// rule is for people.
const rule = "a key has letters, digits, '_', '.' and '-', beginning and ending with a letter or digit, 63 at the most, " +
	"after a DNS name and '/' if need be; a value is as that, or empty"

var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	dnsName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`) // RFC 1123
)

// Check reports every label that is none, beginning with what it is of: "node-labels".
func Check(what string, labels map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if value := labels[key]; !isKey(key) || value != "" && !plainName.MatchString(value) {
			errs = append(errs, fmt.Errorf("%s %.320q: want key=value; %s", what, key+"="+value, rule))
		}
	}
	return errors.Join(errs...)
}

func isKey(key string) bool {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		return plainName.MatchString(key)
	}
	return plainName.MatchString(name) && dnsName.MatchString(prefix) && len(prefix) <= 253
}
