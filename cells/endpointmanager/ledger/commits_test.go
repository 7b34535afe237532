package ledger

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
)

// TestCommitTogether holds the first write until others wait. One of them fails.
func TestCommitTogether(t *testing.T) {
	no := errors.New("not this one")
	for name, test := range map[string]struct{ others, fails, want int }{
		"all succeed": {others: 20, fails: -1, want: 2},
		"one fails":   {others: 20, fails: 7, want: 2 + 20}, // and takes no other with it: each is tried alone
		"alone":       {others: 0, fails: -1, want: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			writes, hold := 0, make(chan struct{})
			c := &commits{run: func(change func(*bbolt.Tx) error) error {
				if writes++; writes == 1 {
					<-hold
				}
				return change(nil)
			}}
			go func() { _ = c.commit(func(*bbolt.Tx) error { return nil }) }()
			synctest.Wait()
			for i := range test.others {
				go func() {
					err := c.commit(func(*bbolt.Tx) error {
						if i == test.fails {
							return no
						}
						return nil
					})
					if (i == test.fails) != errors.Is(err, no) {
						t.Errorf("%s: change %d: error %v", name, i, err)
					}
				}()
			}
			synctest.Wait()
			close(hold)
			synctest.Wait()
			if writes != test.want {
				t.Errorf("%s: %d transactions, want %d", name, writes, test.want)
			}
		})
	}
}

func BenchmarkLedgerCommit32AtOnce(b *testing.B) {
	l, err := Open(b.TempDir() + "/ledger.db")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	rec := recordFor("c1", Committed, time.Now())
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := l.Put(rec); err != nil {
				b.Error(err)
			}
		}
	})
}
