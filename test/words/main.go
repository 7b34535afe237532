// Command words counts constructions that plain technical English does without, in Go comments and in Markdown, and
// comment lines of more than 120 letters. It
// fails when a count of the whole tree is above the one in limits.txt. With -write it lowers the limits to the counts
// of today, with -list ROW it prints the places. The goal of each row is 0.3 per 1,000 words; -write prints the rates.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const limitsFile = "test/words/limits.txt"

// rows are the constructions. conventions: name the actor, an active verb, the object.
var rows = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{"nobody", regexp.MustCompile(`\b(nobody|somebody|everybody)\b`)},                                                                  // the agent, the caller
	{"what-is", regexp.MustCompile(`(?:^|[.:;,] )[Ww]hat (?:is|was|has|it|the|an?|they|others|comes|goes|fails)\b`)},                   // leftovers, failed steps
	{"who-has", regexp.MustCompile(`(?:^|[.:;,] |for |by |to )[Ww]ho (?:has|is|asks|waits|writes|knows|may|reads|gets|takes|uses)\b`)}, // the owner
	{"has-done", regexp.MustCompile(`\b(?:has|have|had) (?:the|an?|it|what|them|others|all)\b[^.;,]{0,40}\b(?:be|written|told|closed|released|done)\b`)},
	{"one-that", regexp.MustCompile(`\b(?:ones? that|those that|that of|those of|one of it|that one's)\b`)}, // the noun again
	{"of-which", regexp.MustCompile(`\b(?:as ever|by then|by that|by which|of which|in which case|thereby|therein|thereof)\b`)},
	{"anew", regexp.MustCompile(`\banew\b`)}, // again, from scratch
	{longLine, regexp.MustCompile(`^//.{119,}$`)},
}

// longLine is the row of whole lines of Go; pictures and directives, where no space or more than one is before the
// text, are left out.
const longLine = "long-line"

var comment = regexp.MustCompile(`^// \S`)

var (
	goComment = regexp.MustCompile(`(?:^|\s)//\s?(.*)`)
	generated = regexp.MustCompile(`_bpfel|_bpfeb|zz_generated`)
)

// tally has the words and, for each row, the findings of one kind of text.
type tally struct {
	words    int
	findings map[string][]string
}

func (t *tally) add(path string, line int, text string) {
	t.words += len(strings.Fields(text))
	t.find(path, line, text, false)
}

func (t *tally) find(path string, line int, text string, isLine bool) {
	for _, row := range rows {
		if (row.name == longLine) != isLine {
			continue
		}
		for _, at := range row.pattern.FindAllStringIndex(text, -1) {
			place := fmt.Sprintf("%s:%d: %s", path, line, text[max(0, at[0]-50):min(len(text), at[1]+60)])
			t.findings[row.name] = append(t.findings[row.name], place)
		}
	}
}

// read adds the text of a file. A block of comment lines is one text.
func (t *tally) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	isGo := strings.HasSuffix(path, ".go")
	block, start, number := "", 0, 0
	flush := func() {
		t.add(path, start, block)
		block, start = "", 0
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		number++
		text := strings.TrimSpace(lines.Text())
		if isGo {
			found := goComment.FindStringSubmatch(text)
			if found == nil {
				flush()
				continue
			}
			if comment.MatchString(text) {
				t.find(path, number, text, true)
			}
			text = found[1]
		}
		if start == 0 {
			start = number
		}
		block = strings.TrimSpace(block + " " + text)
		if !isGo {
			flush()
		}
	}
	flush()
	return lines.Err()
}

func count() (map[string]*tally, error) {
	kinds := map[string]*tally{".go": {findings: map[string][]string{}}, ".md": {findings: map[string][]string{}}}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata" || entry.Name() == "bin" || entry.Name() == "adr"):
			return fs.SkipDir
		case entry.IsDir() || generated.MatchString(path) || kinds[filepath.Ext(path)] == nil:
			return nil
		}
		return kinds[filepath.Ext(path)].read(path)
	})
	return kinds, err
}

func main() {
	write := flag.Bool("write", false, "lower the limits to the counts of today, and print the rates")
	list := flag.String("list", "", "print the places of this row")
	flag.Parse()
	if err := run(*write, *list); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

func run(write bool, list string) error {
	kinds, err := count()
	if err != nil {
		return err
	}
	limits, err := readLimits()
	if err != nil {
		return err
	}
	var faults []error
	var lines strings.Builder
	for _, kind := range []string{".go", ".md"} {
		for _, row := range rows {
			found, key := kinds[kind].findings[row.name], kind+" "+row.name
			limit, known := limits[key]
			if known && len(found) > limit {
				faults = append(faults, fmt.Errorf("%s: %d, at most %d; go run ./test/words -list %s", key, len(found), limit, row.name))
			}
			if !known || len(found) < limit {
				limit = len(found)
			}
			fmt.Fprintf(&lines, "%s %d\n", key, limit)
			if write {
				fmt.Printf("%s: %.2f per 1,000 words\n", key, 1000*float64(len(found))/float64(kinds[kind].words))
			}
			if row.name == list {
				fmt.Println(strings.Join(found, "\n"))
			}
		}
	}
	if write {
		faults = append(faults, os.WriteFile(limitsFile, []byte(lines.String()), 0o644))
	}
	return errors.Join(faults...)
}

// readLimits reads lines of kind, row and count.
func readLimits() (map[string]int, error) {
	data, err := os.ReadFile(limitsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	limits := map[string]int{}
	for line := range strings.Lines(string(data)) {
		var kind, row string
		var count int
		if _, err := fmt.Sscan(line, &kind, &row, &count); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", limitsFile, line, err)
		}
		limits[kind+" "+row] = count
	}
	return limits, nil
}
