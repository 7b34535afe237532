package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestSentencesAndCellsAreShort allows 35 words in a sentence and 300 letters in a table cell.
func TestSentencesAndCellsAreShort(t *testing.T) {
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, root+"/README.md", root+"/CONTRIBUTING.md") {
		for _, text := range paragraphs(read(t, page)) {
			if strings.HasPrefix(text, "|") {
				for cell := range strings.SplitSeq(strings.Trim(text, "|"), " | ") {
					if n := utf8.RuneCountInString(strings.TrimSpace(cell)); n > 300 {
						t.Errorf("%s: a cell of %d letters: %s", page, n, cell)
					}
					long(t, page, cell)
				}
				continue
			}
			long(t, page, text)
		}
	}
}

func TestReadmeWords(t *testing.T) {
	if n := len(strings.Fields(read(t, root+"/README.md"))); n > 900 {
		t.Errorf("README.md has %d words, at most 900", n)
	}
}

// TestLimitsAreShort wants at most two sentences in each row of docs/limits.md.
func TestLimitsAreShort(t *testing.T) {
	for _, text := range paragraphs(read(t, root+"/docs/limits.md")) {
		row, ok := strings.CutPrefix(text, "|")
		if !ok {
			continue
		}
		for cell := range strings.SplitSeq(strings.Trim(row, "|"), " | ") {
			if n := len(sentences(cell)); n > 2 {
				t.Errorf("%d sentences: %s", n, cell)
			}
		}
	}
}

func long(t *testing.T, page, text string) {
	t.Helper()
	for _, sentence := range sentences(text) {
		if n := len(strings.Fields(sentence)); n > 35 {
			t.Errorf("%s: a sentence of %d words: %s", page, n, sentence)
		}
	}
}

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	newText   = regexp.MustCompile(`^(?:#|\||- |\d+\. )`)
	sentence  = regexp.MustCompile(`[.?!][)*"]* +`)
)

// paragraphs returns the paragraphs, list items, headings and table rows of a page, without its code.
func paragraphs(page string) []string {
	var texts []string
	begin := true
	for line := range strings.Lines(codeBlock.ReplaceAllString(page, "\n")) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			begin = true
		case begin || newText.MatchString(line):
			texts, begin = append(texts, line), false
		default:
			texts[len(texts)-1] += " " + line
		}
	}
	return texts
}

func sentences(text string) []string { return sentence.Split(strings.TrimSpace(text), -1) }
