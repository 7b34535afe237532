// Package labels has the one rule for labels of nodes and pods, and for their selectors. It is Kubernetes' rule, so
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

// maxLabels is what an object can have. The API server bounds objects by their size only, and none comes near it.
const maxLabels = 256

var dnsName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`) // RFC 1123

// Check reports every label that is none, and more of them than [maxLabels], beginning with what it is of:
// "node-labels".
func Check(what string, labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%s: %d, more than %d", what, len(labels), maxLabels)
	}
	valid := true
	for key, value := range labels {
		valid = valid && isKey(key) && isValue(value)
	}
	if valid {
		return nil
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if value := labels[key]; !isKey(key) || !isValue(value) {
			errs = append(errs, fmt.Errorf("%s %.320q: want key=value; %s", what, key+"="+value, rule))
		}
	}
	return errors.Join(errs...)
}

func isKey(key string) bool {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		return isPlain(key)
	}
	return isPlain(name) && len(prefix) <= 253 && dnsName.MatchString(prefix)
}

func isValue(value string) bool { return value == "" || isPlain(value) }

func isPlain(name string) bool {
	for i := range len(name) {
		c, inside := name[i], i > 0 && i < len(name)-1
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || inside && (c == '_' || c == '.' || c == '-')) {
			return false
		}
	}
	return name != "" && len(name) <= 63
}
