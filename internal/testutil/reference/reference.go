// Package reference keeps the pages of docs/reference equal to the code. Tests make each page from the code and call
// [Check]; make reference writes the pages.
package reference

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var write = flag.Bool("reference.write", false, "write the pages of docs/reference")

// Check fails the test when a page of docs/reference is not text. With -reference.write it writes the page.
func Check(t *testing.T, page, text string) {
	t.Helper()
	text = "<!-- Made from the code by make reference. Do not edit. -->\n\n" + strings.Trim(text, "\n") + "\n"
	path := filepath.Join(root(t), "docs", "reference", page)
	if *write {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Errorf("docs/reference/%s is not what the code says: run make reference, and commit the page", page)
	}
}

// root returns the folder of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod in a folder above")
	return ""
}

// Table returns a Markdown table.
func Table(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		for _, cell := range cells {
			fmt.Fprintf(&b, "| %s ", strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell))
		}
		b.WriteString("|\n")
	}
	line(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// Code returns text as it is in a line of Markdown; "" stays empty.
func Code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// Keys returns a row for each JSON key that decoding into config reads: its path and the field's tag doc. Each field
// needs both.
func Keys(t *testing.T, config any) [][]string {
	t.Helper()
	return keysBelow(t, "", reflect.TypeOf(config))
}

func keysBelow(t *testing.T, prefix string, structure reflect.Type) (rows [][]string) {
	t.Helper()
	for i := range structure.NumField() {
		field := structure.Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		doc := field.Tag.Get("doc")
		switch {
		case key == "":
			t.Errorf("%s.%s has no tag json", structure, field.Name)
		case doc != "":
			rows = append(rows, []string{Code(prefix + key), doc})
		case field.Type.Kind() == reflect.Struct:
			rows = append(rows, keysBelow(t, prefix+key+".", field.Type)...)
		default:
			t.Errorf("%s.%s has no tag doc, which docs/reference shows", structure, field.Name)
		}
	}
	return rows
}
