package spec

import (
	"slices"
	"strings"

	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// Versions are those of the specification that the plugin speaks, oldest first.
func Versions() []string { return []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} }

// atLeast compares two of [Versions].
func atLeast(version, other string) bool {
	all := Versions()
	return slices.Index(all, version) >= slices.Index(all, other)
}

// VersionJSON is the answer to VERSION.
func VersionJSON() []byte {
	all := Versions()
	var w jsontext.Writer
	w.Open('{')
	w.Field("cniVersion", all[len(all)-1])
	w.Key("supportedVersions")
	w.Open('[')
	for _, v := range all {
		w.String(v)
	}
	w.Close(']')
	w.Close('}')
	return append(w.Bytes(), '\n')
}

func checkVersion(version, command string) *Error {
	if version == "" {
		version = "0.1.0" // which is what the specification takes a missing version for
	}
	if !slices.Contains(Versions(), version) {
		return &Error{
			Incompatible, "cniVersion " + clip(version) + " of the network configuration is not supported",
			"set it to one of " + strings.Join(Versions(), ", "),
		}
	}
	if since := map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}[command]; since != "" && !atLeast(version, since) {
		return &Error{Incompatible, command + " is not part of CNI " + version, "set cniVersion to " + since + " or later"}
	}
	return nil
}

// ParseVersions reads the answer of another plugin to VERSION; none when it is not one.
func ParseVersions(text []byte) (versions []string) {
	err := jsontext.Fields(text, func(key string, value []byte) (err error) {
		if key == "supportedVersions" {
			versions, err = jsontext.Strings(value)
		}
		return err
	})
	if err != nil {
		return nil
	}
	return versions
}
