package store_test

import (
	"testing"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

func BenchmarkCompareAndSwap(b *testing.B) {
	b.Run("embedded", func(b *testing.B) { swaps(b, storetest.New(b)) })
	b.Run("etcd", func(b *testing.B) { swaps(b, storetest.Open(b, etcdtest.Start(b, nil).Config())) })
}

func swaps(b *testing.B, s store.Store) {
	value := make([]byte, 700)
	revision, err := s.Create(b.Context(), "block/1", value, nil)
	for b.Loop() && err == nil {
		revision, err = s.CompareAndSwap(b.Context(), "block/1", revision, value)
	}
	if err != nil {
		b.Fatal(err)
	}
}
