package ipam_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

// withFile is a node with a file of reservations, as an agent has it at its start.
func withFile(t *testing.T, path string) (*allocator.Allocator, *ipam.ReservationFile) {
	t.Helper()
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs = []string{"10.0.0.0/24", "fd00::/64"}
	file := ipam.NewReservationFile(path)
	a, err := ipam.New(cfg, file)
	if err == nil {
		err = file.Restore(a, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return a, file
}

func TestReservationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib", "reservations.db")
	a, file := withFile(t, path)
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there before the first reservation")
	}
	reserve := func(owner allocator.Handle, lifetime time.Duration) allocator.Reservation {
		t.Helper()
		r, err := allocator.NewSource(a, nil).Reserve(t.Context(), allocator.Request{Owner: owner}, lifetime)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	printer, move := reserve("printer", allocator.Permanent), reserve("move", time.Hour)
	returned, takenOver := reserve("returned", time.Hour), reserve("taken over", time.Hour)
	reserve("over", time.Nanosecond)
	if _, err := a.ReleaseReservation(returned.Addresses.IPv4, returned.Token, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := allocator.NewSource(a, nil).Allocate(t.Context(), allocator.Request{Owner: "porin.c1.eth0", Reservation: takenOver.Token}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		a, file = withFile(t, path)
		got := map[allocator.Handle]allocator.Allocation{}
		for _, one := range a.List() {
			got[one.Owner] = one
		}
		if p := got["printer"]; len(got) != 2 || p.Addresses != printer.Addresses || !p.Reserved || !p.Expires.IsZero() || !p.Since.Equal(printer.Since) {
			t.Errorf("after a restart: %+v", got)
		}
		if left := got["move"].Expires.Sub(move.Expires).Abs(); got["move"].Addresses != move.Addresses || left > time.Second {
			t.Errorf("move: %+v, want %+v", got["move"], move)
		}
	}
	if _, err := a.ReleaseReservation(printer.Addresses.IPv6, printer.Token, nil); err != nil {
		t.Errorf("by the token of before the restart: %v", err)
	}
}

// fullDisk is a store of reservations whose deletions fail.
type fullDisk struct{ *ipam.ReservationFile }

func (fullDisk) Delete(string) error { return errors.New("no space left on device") }

// TestReservationFileReplaces has an owner reserve again after the end of its reservation did not get to the disk: a
// restart knows the later one alone.
func TestReservationFileReplaces(t *testing.T) {
	for range 10 { // the order in the file is by random tokens
		file := ipam.NewReservationFile(filepath.Join(t.TempDir(), "reservations.db"))
		cfg := ipam.DefaultConfig()
		cfg.PodCIDRs = []string{"10.0.0.0/24"}
		a, err := ipam.New(cfg, fullDisk{file})
		if err != nil {
			t.Fatal(err)
		}
		var last allocator.Reservation
		for range 2 {
			if last, err = allocator.NewSource(a, nil).Reserve(t.Context(), allocator.Request{Owner: "db"}, allocator.Permanent); err != nil {
				t.Fatal(err)
			}
			if _, err := a.ReleaseReservation(last.Addresses.IPv4, "", nil); err == nil {
				t.Error("a release that is not on the disk is no error")
			}
		}
		next, err := ipam.New(cfg, file)
		if err == nil {
			err = file.Restore(next, slog.New(slog.DiscardHandler))
		}
		if err != nil {
			t.Fatal(err)
		}
		if all := next.List(); len(all) != 1 || all[0].Addresses != last.Addresses {
			t.Errorf("after a restart: %+v, want %s", all, last.Addresses.IPv4)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReservationFileDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reservations.db")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := ipam.NewReservationFile(path)
	err := file.Restore(allocator.New(nil), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "move the file away") {
		t.Errorf("error %v", err)
	}
	if err := file.Save(allocator.Reservation{Owner: "x", Token: "t"}); err == nil {
		t.Error("it was written to")
	}
}

// TestReservationFileCannotBeWritten: a reservation that is not on the disk does not exist.
func TestReservationFileCannotBeWritten(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs = []string{"10.0.0.0/24"}
	a, err := ipam.New(cfg, ipam.NewReservationFile(filepath.Join(folder, "reservations.db")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := allocator.NewSource(a, nil).Reserve(t.Context(), allocator.Request{Owner: "x"}, 0); err == nil {
		t.Error("it is reserved")
	}
	if left := a.List(); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}
