package bench

import "slices"

// rounds are the figures of one measure, by system, one for each round. A round measures each system once.
type rounds struct {
	measure, unit string
	systems       []string // in the order of the first round
	figures       map[string][]float64
}

func newRounds(measure, unit string) *rounds {
	return &rounds{measure: measure, unit: unit, figures: map[string][]float64{}}
}

func (r *rounds) add(system string, figure float64) {
	if !slices.Contains(r.systems, system) {
		r.systems = append(r.systems, system)
	}
	r.figures[system] = append(r.figures[system], figure)
}

// report adds the median of each system, and the median over the rounds of its ratio to another one: what disturbs a
// round disturbs both.
func (r *rounds) report(to *report, placement, against string) {
	measure := r.measure + ", " + placement
	for _, system := range r.systems {
		ratios := make([]float64, len(r.figures[system]))
		for i, figure := range r.figures[system] {
			ratios[i] = figure / r.figures[against][i]
		}
		to.Rows = append(to.Rows, row{
			Measure: measure, System: system, Value: median(r.figures[system]), Unit: r.unit, Ratio: median(ratios), Against: against,
		})
	}
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
