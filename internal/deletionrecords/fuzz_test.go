package deletionrecords

import "testing"

// FuzzDecode reads foreign bytes as a record: no panic, and what is accepted can be written again and means the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"containerID":"c1","ifname":"eth0","network":"porin","began":12}`))
	f.Add([]byte(`{"containerID":"c1","later":{}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := decode(content)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decode(again); len(again) <= maxRecord && (err != nil || back != r) {
			t.Errorf("%+v became %+v, %v", r, back, err)
		}
	})
}
