package metrics

import "github.com/prometheus/client_golang/prometheus"

// Values is a prometheus.Collector of values that are read when Prometheus asks for them:
//
//	v := metrics.NewValues("porin_hostport_")
//	ports := v.Gauge("ports", "Ports of the node that lead to pods.", "protocol")
//	v.Read = func(ch chan<- prometheus.Metric) { ports.Send(ch, 3, "TCP") }
type Values struct {
	Read func(ch chan<- prometheus.Metric) // nil without values of its own

	prefix string
	descs  []*prometheus.Desc
	others []prometheus.Collector
}

// NewValues returns a collector without values of its own, which collects from the others too. The names of its values
// begin with the prefix.
func NewValues(prefix string, others ...prometheus.Collector) *Values {
	return &Values{prefix: prefix, others: others}
}

// Value is a metric of [Values].
type Value struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Gauge adds a value that goes up and down.
func (v *Values) Gauge(name, help string, labels ...string) Value {
	return v.add(prometheus.GaugeValue, name, help, labels)
}

// Counter adds a value that only goes up.
func (v *Values) Counter(name, help string, labels ...string) Value {
	return v.add(prometheus.CounterValue, name, help, labels)
}

func (v *Values) add(kind prometheus.ValueType, name, help string, labels []string) Value {
	value := Value{prometheus.NewDesc(v.prefix+name, help, labels, nil), kind}
	v.descs = append(v.descs, value.desc)
	return value
}

// Send sends the value with its labels, in the order of Gauge or Counter.
func (v Value) Send(ch chan<- prometheus.Metric, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(v.desc, v.kind, value, labels...)
}

// SendBool sends 1 for true.
func (v Value) SendBool(ch chan<- prometheus.Metric, value bool, labels ...string) {
	v.Send(ch, map[bool]float64{true: 1}[value], labels...)
}

// Fail sends the reason why there is no value.
func (v Value) Fail(ch chan<- prometheus.Metric, err error) {
	ch <- prometheus.NewInvalidMetric(v.desc, err)
}

// Describe implements prometheus.Collector.
func (v *Values) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range v.descs {
		ch <- desc
	}
	for _, other := range v.others {
		other.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (v *Values) Collect(ch chan<- prometheus.Metric) {
	if v.Read != nil {
		v.Read(ch)
	}
	for _, other := range v.others {
		other.Collect(ch)
	}
}
