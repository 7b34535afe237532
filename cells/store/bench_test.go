package store_test

import (
	"testing"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

func BenchmarkReplace(b *testing.B) {
	b.Run("embedded", func(b *testing.B) { replaces(b, storetest.New(b)) })
	b.Run("etcd", func(b *testing.B) { replaces(b, storetest.Open(b, etcdtest.Start(b, nil).Config())) })
}

func replaces(b *testing.B, s store.Store) {
	values := [][]byte{make([]byte, 700), make([]byte, 700)}
	values[1][0] = 1
	err := s.Create(b.Context(), "block/1", values[0])
	for i := 0; b.Loop() && err == nil; i++ {
		err = s.Replace(b.Context(), "block/1", values[i%2], values[1-i%2])
	}
	if err != nil {
		b.Fatal(err)
	}
}
