package agent

import (
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/jsontext"
)

func decodeStatus(text []byte) (s v1.Status, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		switch key {
		case "ready":
			s.Ready = isTrue(value)
		case "datapath":
			s.Datapath, err = decodeDatapath(value)
		case "resources":
			s.Resources, err = decodeList(value, decodeResource)
		}
		return err
	})
	return s, decoded(err)
}

func decodeDatapath(text []byte) (d v1.Datapath, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		if key == "programs" {
			d.Programs, err = decodeList(value, func([]byte) (v1.Program, error) { return v1.Program{}, nil })
		}
		return err
	})
	return d, err
}

func decodeResource(text []byte) (r v1.Resource, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		switch key {
		case "name":
			r.Name, err = jsontext.String(value)
		case "available":
			r.Available = isTrue(value)
		case "reason":
			r.Reason, err = jsontext.String(value)
		case "exhaustedIn":
			var n int
			n, err = jsontext.Int(value)
			r.ExhaustedIn = time.Duration(n)
		}
		return err
	})
	return r, err
}

// decodeFindings reads them from the answer of GET /v1/doctor.
func decodeFindings(text []byte) (list []v1.Finding, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		if key == "findings" {
			list, err = decodeList(value, decodeFinding)
		}
		return err
	})
	return list, decoded(err)
}

func decodeFinding(text []byte) (f v1.Finding, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		switch key {
		case "kind":
			f.Kind, err = jsontext.String(value)
		case "subject":
			f.Subject, err = jsontext.String(value)
		case "detail":
			f.Detail, err = jsontext.String(value)
		}
		return err
	})
	return f, err
}

func decodeGCResult(text []byte) (r v1.GCResult, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		switch key {
		case "stale":
			r.Stale, err = jsontext.Strings(value)
		case "deleted":
			r.Deleted, err = jsontext.Int(value)
		case "errors":
			r.Errors, err = jsontext.Int(value)
		case "details":
			r.Details, err = jsontext.Strings(value)
		case "withheld":
			r.Withheld, err = jsontext.String(value)
		}
		return err
	})
	return r, decoded(err)
}

func decodeList[T any](text []byte, decode func([]byte) (T, error)) (list []T, err error) {
	err = jsontext.Items(text, func(value []byte) error {
		item, err := decode(value)
		list = append(list, item)
		return err
	})
	return list, err
}

func isTrue(value []byte) bool { return string(value) == "true" }
