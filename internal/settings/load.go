// Package settings reads the configuration of Porin's daemons: from flags, the environment and a YAML file; and makes
// their logger.
package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// envPrefix and a flag's name in capitals with _ for - is the name of its environment variable.
const envPrefix = "PORIN_"

// Load fills the flags that the command line did not set: from the environment, else from the YAML file of --config.
// A source that has a value replaces the next source's as a whole, a list too; an environment variable that is empty
// is an empty value. It reports every fault at once. getenv is os.LookupEnv. The set has the program's name.
func Load(fs *pflag.FlagSet, file string, getenv func(string) (string, bool)) error {
	values, err := readFile(file)
	errs := []error{err}
	for name := range values {
		if fs.Lookup(name) == nil || name == "config" {
			errs = append(errs, fmt.Errorf("%s: unknown key %q: the keys are the flags of %s --help", file, name, fs.Name()))
		}
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "config" || f.Name == "help" {
			return
		}
		if value, ok := getenv(envName(f.Name)); ok {
			if err := setText(fs, f, value); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", envName(f.Name), err))
			}
		} else if node, ok := values[f.Name]; ok {
			if err := setNode(f, node); err != nil {
				errs = append(errs, fmt.Errorf("%s: line %d: %s: %w", file, node.Line, f.Name, err))
			}
		}
	})
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return errors.Join(errs...)
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readFile returns the values of a YAML file, which is one map. yaml refuses a key that comes twice.
func readFile(file string) (map[string]yaml.Node, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	var values map[string]yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read configuration %s: %w", file, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return values, fmt.Errorf("read configuration %s: more than one document", file)
	}
	return values, nil
}

// setText gives a flag what an environment variable says. A map that is empty is no fault, as it is not for a list.
func setText(fs *pflag.FlagSet, f *pflag.Flag, text string) error {
	if text == "" && isMap(f) {
		return nil
	}
	return fs.Set(f.Name, text)
}

func isMap(f *pflag.Flag) bool { return f.Value.Type() == "stringToString" }

// setNode gives a flag a scalar as it is written, a list flag a list of scalars, and a map flag a map of
// scalars.
func setNode(f *pflag.Flag, node yaml.Node) error {
	switch list, isList := f.Value.(pflag.SliceValue); {
	case node.Kind == yaml.MappingNode && isMap(f):
		return setPairs(f, node.Content)
	case node.Value == "" && node.Tag == "!!str" && isMap(f):
		return nil
	case node.Kind == yaml.ScalarNode && node.Tag != "!!null":
		return f.Value.Set(node.Value)
	case node.Kind == yaml.SequenceNode && isList:
		parts := make([]string, len(node.Content))
		for i, item := range node.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return errors.New("want a list of plain values")
			}
			parts[i] = item.Value
		}
		return list.Replace(parts)
	case isList:
		return errors.New("want a value or a list of values")
	}
	return errors.New(`want one value; "" is the empty one`)
}

// setPairs takes keys and values in turn, as yaml has them. It would let a key come twice.
func setPairs(f *pflag.Flag, pairs []*yaml.Node) error {
	seen := map[string]bool{}
	for ; len(pairs) > 0; pairs = pairs[2:] {
		key, value := pairs[0], pairs[1]
		switch {
		case key.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode || value.Tag == "!!null":
			return errors.New("want a map of plain values")
		case seen[key.Value]:
			return fmt.Errorf("%q comes twice", key.Value)
		}
		seen[key.Value] = true
		if err := f.Value.Set(key.Value + "=" + value.Value); err != nil {
			return err
		}
	}
	return nil
}
