package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// print writes value as JSON or, for people, what human writes.
func (s *session) print(value any, human func(w io.Writer)) error {
	if s.output.value == "json" {
		encoder := json.NewEncoder(s.out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	human(w)
	return w.Flush()
}

// show is print, or the error of the request for the value.
func (s *session) show(value any, err error, human func(w io.Writer)) error {
	if err != nil {
		return err
	}
	return s.print(value, human)
}

// done says for people what a command without an answer has done, or returns its error.
func (s *session) done(err error, format string, args ...any) error {
	if err != nil || s.output.value == "json" {
		return err
	}
	_, err = fmt.Fprintf(s.out, format+"\n", args...)
	return err
}

// row writes the cells of one line. Text from others, as the name of a pod, must not move the cursor. Errors that were
// joined have several lines.
func row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = printable(strings.ReplaceAll(fmt.Sprint(cell), "\n", "; "))
	}
	_, _ = fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// printable is text without control characters, and "-" for none.
func printable(text string) string {
	if text == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}

// printableLines is text without control characters but the ends of its lines.
func printableLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}

// age is how long ago that was, and ahead how long it is until then.
func (s *session) age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return age(s.now().Sub(since))
}

func (s *session) ahead(until time.Time) string { return age(until.Sub(s.now()).Round(time.Second)) }

// age is a time in the largest unit with a value of at least two; a negative time is 0.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// timestamp is a point in time to the millisecond.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// shortDuration is a duration with about three digits.
func shortDuration(d time.Duration) string {
	for unit := time.Second; unit > time.Nanosecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// plainDuration is a duration as people write it: "1m", not "1m0s".
func plainDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// plural is "1 endpoint" or "2 endpoints".
func plural[N int | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// joinNonEmpty joins the texts that are not empty by a space.
func joinNonEmpty(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), " ")
}

// joined has a space between the items.
func joined[T fmt.Stringer](items []T) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.String()
	}
	return strings.Join(texts, " ")
}

// labelsText is "app=web tier=front".
func labelsText(labels map[string]string) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		texts = append(texts, key+"="+labels[key])
	}
	return strings.Join(texts, " ")
}
