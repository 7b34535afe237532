package capacity

import "time"

// The samples, and the definition of a trend.
const (
	sampleInterval = 10 * time.Second
	window         = 10 * time.Minute
	leastSamples   = 3
	// leastFit is the least share of the use's variance that the line explains (r²). A single step explains at most 0.8,
	// wherever it stands among at least three samples, so a burst is no trend.
	leastFit = 0.85
	// maxForecast is how far a forecast goes, as a multiple of the time that the samples span: a minute of pods that start
	// says nothing about the next hour.
	maxForecast = 12
)

// sample is the use of a resource at a moment.
type sample struct {
	at   time.Time
	used int64
}

// history is the samples of one resource, oldest first, none older than the window.
type history []sample

func (h history) add(s sample) history {
	for len(h) > 0 && s.at.Sub(h[0].at) > window {
		h = h[1:]
	}
	return append(h, s)
}

// growth returns the slope, a second, of the least-squares line through the samples; 0 when it does not grow, or not
// like a line.
func (h history) growth() float64 {
	if len(h) < leastSamples {
		return 0
	}
	var meanT, meanU float64
	seconds := func(s sample) float64 { return s.at.Sub(h[0].at).Seconds() }
	for _, s := range h {
		meanT += seconds(s) / float64(len(h))
		meanU += float64(s.used) / float64(len(h))
	}
	var tt, tu, uu float64
	for _, s := range h {
		t, u := seconds(s)-meanT, float64(s.used)-meanU
		tt, tu, uu = tt+t*t, tu+t*u, uu+u*u
	}
	if tu <= 0 || tt == 0 || tu*tu < leastFit*tt*uu {
		return 0
	}
	return tu / tt
}

// exhaustedIn returns when the rest is used up if the growth goes on; 0 without a growth, or a rest, or when it is far
// away.
func (h history) exhaustedIn(left int64) time.Duration {
	growth := h.growth()
	if left <= 0 || growth <= 0 {
		return 0
	}
	seconds := float64(left) / growth
	if seconds > maxForecast*h[len(h)-1].at.Sub(h[0].at).Seconds() {
		return 0
	}
	return max(time.Duration(seconds*float64(time.Second)).Round(time.Second), time.Second)
}
