package flow

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/monitor/stream"
	"porin.dev/porin/internal/httpx"
)

// Mount is server.Routes.
func (c *Collector) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/flows", httpx.Handler(c.stream))
}

// stream answers with one flow a line.
func (c *Collector) stream(w http.ResponseWriter, r *http.Request) error {
	query, err := stream.ParseQuery(r.URL.Query(), "a flow")
	if err != nil {
		return err
	}
	f, err := parseFilter(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	c.readNow()
	if f.last > 0 {
		query.Since = beforeLast(c.ring, query.Since, &f)
	}
	format := stream.Format[record]{
		Line: func(seq uint64, r *record) any {
			if !f.wants(r) {
				return nil
			}
			return r.toV1(seq)
		},
		Missed: func(seq, n uint64) any { return v1.Flow{Seq: seq, Time: time.Now().UTC(), Lost: n} },
	}
	c.ring.Serve(w, r, query, format, c.stopping)
	return nil
}

// beforeLast returns the number of the flow after which f.last flows come that the filter wants, or since.
func beforeLast(ring *stream.Ring[record], since uint64, f *filter) uint64 {
	reader, newest := ring.NewReader(since), ring.Newest()
	var wanted []uint64 // at most f.last
	for batch := reader.UpTo(newest); len(batch) > 0; batch = reader.UpTo(newest) {
		for i := range batch {
			if batch[i].lost > 0 || !f.wants(&batch[i]) {
				continue
			}
			if len(wanted) == f.last {
				wanted = wanted[1:]
			}
			wanted = append(wanted, reader.First+uint64(i))
		}
	}
	if len(wanted) < f.last {
		return since
	}
	return wanted[0] - 1
}
