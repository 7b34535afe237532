// Package metrics serves the agent's metrics to Prometheus.
//
//	server, endpointmanager, datapath, ipam  --  [Collect] their collectors  ->  [Exporter]  ->  GET /metrics
//
// Most collectors are [Values]. The registry is the cell's own, so two agents in one process do not meet, and nothing
// that an imported package registers by itself is exported. Without --metrics-address nothing listens.
package metrics
