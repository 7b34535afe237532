package control

import "github.com/prometheus/client_golang/prometheus"

// namesCollector shows what comes of names while no agent runs.
type namesCollector struct {
	router           *LearnRouter
	answers, written *prometheus.Desc
}

// NewNamesCollector returns the metrics of porin-proxy about names.
func NewNamesCollector(l *LearnRouter) prometheus.Collector {
	return &namesCollector{
		router: l,
		answers: prometheus.NewDesc("porin_proxy_offline_names_total",
			"Answers whose addresses porin-proxy was to learn while no agent ran: learned; refused, as no class is reserved (no-class), the classes are not known (stale), "+
				"there is no room (full) or the journal cannot be written (no-journal); or passed on with an address that no name may have (protected).", []string{"result"}, nil),
		written: prometheus.NewDesc("porin_proxy_offline_addresses_written_total", "Addresses of names that porin-proxy has written into the datapath while no agent ran.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *namesCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.answers
	ch <- c.written
}

// Collect implements prometheus.Collector. It sends every result, also those that never were.
func (c *namesCollector) Collect(ch chan<- prometheus.Metric) {
	counts := c.router.Counts()
	for result, n := range map[string]uint64{
		"learned": counts.Learned, "no-class": counts.NotReserved, "stale": counts.Stale, "protected": counts.Protected, "full": counts.Full, "no-journal": counts.NoJournal,
	} {
		ch <- prometheus.MustNewConstMetric(c.answers, prometheus.CounterValue, float64(n), result)
	}
	ch <- prometheus.MustNewConstMetric(c.written, prometheus.CounterValue, float64(counts.Written))
}
