package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// envPrefix and a flag's name in capitals with _ for - is the name of its environment variable.
const envPrefix = "PORIN_"

// load fills the flags that the command line did not set: from the environment, else from the YAML file of --config.
// It reports every fault at once. getenv is os.LookupEnv.
func load(fs *pflag.FlagSet, file string, getenv func(string) (string, bool)) error {
	values, err := readFile(file)
	if err != nil {
		return err
	}
	var errs []error
	for name := range values {
		if fs.Lookup(name) == nil || name == "config" {
			errs = append(errs, fmt.Errorf("%s: unknown key %q: the keys are the flags of porin-agent --help", file, name))
		}
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "config" || f.Name == "help" {
			return
		}
		if value, ok := getenv(envName(f.Name)); ok {
			errs = append(errs, set(fs, f.Name, value, "environment variable "+envName(f.Name)))
		} else if value, ok := values[f.Name]; ok {
			errs = append(errs, set(fs, f.Name, value, file))
		}
	})
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return errors.Join(errs...)
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func set(fs *pflag.FlagSet, name, value, source string) error {
	if err := fs.Set(name, value); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	return nil
}

// readFile returns the values of a YAML file as a command line would say them.
func readFile(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(text, &nodes); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", file, err)
	}
	var errs []error
	values := map[string]string{}
	for name, node := range nodes {
		value, err := flagValue(node)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: line %d: %s: %w", file, node.Line, name, err))
		}
		values[name] = value
	}
	return values, errors.Join(errs...)
}

// flagValue is a scalar as it is written, and a list of scalars with commas between.
func flagValue(node yaml.Node) (string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		return node.Value, nil
	case yaml.SequenceNode:
		var parts []string
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode {
				return "", errors.New("want a list of plain values")
			}
			parts = append(parts, item.Value)
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("want a value or a list of values")
}
