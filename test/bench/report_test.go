package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// report collects rows and what they are to reach.
type report struct {
	Began time.Time `json:"began"`
	Rows  []row     `json:"rows"`
	Goals []goal    `json:"goals"`
}

// row is one figure of one system.
type row struct {
	Measure string  `json:"measure"`
	System  string  `json:"system"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	// Ratio is the value divided by the compared system's; 0 when there is none.
	Ratio   float64 `json:"ratio,omitempty"`
	Against string  `json:"against,omitempty"`
}

// goal is a figure with what it is to reach.
type goal struct {
	Measure string  `json:"measure"`
	Value   float64 `json:"value"`
	Goal    string  `json:"goal"`
	Reached bool    `json:"reached"`
}

func newReport() *report { return &report{Began: time.Now()} }

func (r *report) add(measure, system string, value float64, unit string) {
	r.Rows = append(r.Rows, row{Measure: measure, System: system, Value: value, Unit: unit})
}

func (r *report) value(measure, system string) float64 {
	i := slices.IndexFunc(r.Rows, func(row row) bool { return row.Measure == measure && row.System == system })
	if i < 0 {
		return 0
	}
	return r.Rows[i].Value
}

// ratio is a row's value divided by the compared row's.
func (r *report) ratio(measure, system string) float64 {
	i := slices.IndexFunc(r.Rows, func(row row) bool { return row.Measure == measure && row.System == system })
	if i < 0 {
		return 0
	}
	return r.Rows[i].Ratio
}

// against gives every row of the measure its ratio to the system's.
func (r *report) against(measure, system string) {
	base := r.value(measure, system)
	for i := range r.Rows {
		if r.Rows[i].Measure == measure && base > 0 {
			r.Rows[i].Ratio, r.Rows[i].Against = r.Rows[i].Value/base, system
		}
	}
}

func (r *report) atMost(measure string, value, most float64, unit string) {
	r.Goals = append(r.Goals, goal{measure, value, fmt.Sprintf("%.4g%s or less", most, unit), value <= most})
}

func (r *report) atLeast(measure string, value, least float64, unit string) {
	r.Goals = append(r.Goals, goal{measure, value, fmt.Sprintf("%.4g%s or more", least, unit), value >= least})
}

func (r *report) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nMEASURE\tSYSTEM\tVALUE\tUNIT\tRATIO")
	for _, row := range r.Rows {
		ratio := ""
		if row.Ratio > 0 {
			ratio = fmt.Sprintf("%.3f of %s", row.Ratio, row.Against)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", row.Measure, row.System, figure(row.Value), row.Unit, ratio)
	}
	fmt.Fprintln(w, "\nGOAL\tFIGURE\tTO REACH\t")
	for _, g := range r.Goals {
		verdict := "reached"
		if !g.Reached {
			verdict = "NOT REACHED"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", g.Measure, figure(g.Value), g.Goal, verdict)
	}
	_ = w.Flush()
}

// figure has four digits, or all before the point.
func figure(value float64) string {
	if value >= 1e4 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.4g", value)
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// percentile sorts the durations; p is from 0 to 1. It returns milliseconds.
func percentile(all []time.Duration, p float64) float64 {
	slices.Sort(all)
	return float64(all[min(int(p*float64(len(all))), len(all)-1)].Nanoseconds()) / 1e6
}
