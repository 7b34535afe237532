package endpointmanager

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// TestDeleteEventAfterCreateEvent deletes the attachment again and again from the moment that its
// endpoint is in the registry.
func TestDeleteEventAfterCreateEvent(t *testing.T) {
	p := &probe{}
	m := started(t, t.TempDir(), p)
	spec := specOf("c1:eth0")
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				m.Delete(context.Background(), spec.Attachment, endpoint.DeleteConfig{})
			}
		})
	}
	for range 200 {
		_, _ = m.Create(t.Context(), spec, nil)
	}
	stop()
	wg.Wait()
	m.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{})
	if refused := m.table.refused.Load(); refused != 0 || p.attached != 0 || len(m.table.List()) != 0 {
		t.Errorf("%d transitions refused, %d attached, table %v", refused, p.attached, m.table.List())
	}
}

func TestDeleteEventBeforeNextCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{}
		m := started(t, t.TempDir(), p)
		spec := specOf("c1:eth0")
		if _, err := m.Create(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
		again := make(chan error, 1)
		p.deleted = func(endpoint.Endpoint) {
			go func() {
				_, err := m.Create(context.Background(), spec, nil)
				again <- err
			}()
			synctest.Wait() // the next life has come as far as it can
		}
		m.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{})
		if err := <-again; err != nil {
			t.Fatal(err)
		}
		if want := []string{"created 1", "deleted 1", "created 2"}; !slices.Equal(p.told, want) {
			t.Errorf("told %v, want %v", p.told, want)
		}
	})
}

func TestCreateDeletedMeanwhile(t *testing.T) {
	attaching := make(chan struct{})
	p := &probe{attach: func(ctx context.Context) error { close(attaching); <-ctx.Done(); return ctx.Err() }}
	m := started(t, t.TempDir(), p)
	errs := make(chan error, 1)
	go func() {
		_, err := m.Create(context.Background(), specOf("c1:eth0"), nil)
		errs <- err
	}()
	<-attaching
	m.DeleteContainer(t.Context(), "c1", endpoint.DeleteConfig{})
	if err := <-errs; !errors.Is(err, ErrDeleted) || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("error %v of kind %s, want ErrDeleted", err, fault.KindOf(err))
	}
}

func TestCreateWaitsForDetach(t *testing.T) {
	p := &probe{detach: func() error { return errors.New("the kernel said no") }}
	m := started(t, t.TempDir(), p)
	if _, err := m.Create(t.Context(), specOf("c1:eth0"), nil); err != nil {
		t.Fatal(err)
	}
	other := specOf("c1:eth0")
	other.MTU = 1400
	if _, err := m.Create(t.Context(), other, nil); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("error %v, want one of kind unavailable", err)
	}
	p.detach = nil
	if _, err := m.Create(t.Context(), other, nil); err != nil || p.attached != 1 {
		t.Errorf("error %v, attached %d", err, p.attached)
	}
}

// TestDeleteNotRecordedOverHTTP asks over HTTP: a plugin that hears of a success never comes back.
func TestDeleteNotRecordedOverHTTP(t *testing.T) {
	detaching, release := make(chan struct{}), make(chan struct{})
	p := &probe{}
	m := started(t, t.TempDir(), p)
	for _, a := range []string{"c1:eth0", "c2:eth0"} {
		if _, err := m.Create(t.Context(), specOf(a), nil); err != nil {
			t.Fatal(err)
		}
	}
	del := func(ctx context.Context, a string) error {
		attachment, _ := endpoint.ParseAttachment(a)
		return answerDeletion(httptest.NewRecorder(), m.Delete(ctx, attachment, endpoint.DeleteConfig{}))
	}
	p.detach = sync.OnceValue(func() error { close(detaching); <-release; return nil })
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-detaching; leave() }()
	if err := del(ctx, "c1:eth0"); !errors.Is(err, ErrPending) || fault.KindOf(err) != fault.Deadline {
		t.Errorf("the caller left: error %v", err)
	}
	close(release)
	if err := del(t.Context(), "c1:eth0"); err != nil {
		t.Errorf("asked again: %v", err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := del(t.Context(), "c2:eth0"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("the agent has stopped: error %v, want one of kind unavailable", err)
	}
	recorder := httptest.NewRecorder()
	failed := DeleteResult{Errors: []error{errors.New("on record")}}
	if err := answerDeletion(recorder, failed); err != nil || recorder.Code != http.StatusOK {
		t.Errorf("what is on record: %v, status %d", err, recorder.Code)
	}
}

func TestRetryEndsWithManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{detach: func() error { return errors.New("the kernel said no") }}
		m := started(t, t.TempDir(), p)
		if _, err := m.Create(t.Context(), specOf("c1:eth0"), nil); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			m.Delete(t.Context(), specOf("c1:eth0").Attachment, endpoint.DeleteConfig{})
		}
		e := m.registry.find(specOf("c1:eth0").Attachment)
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e.removal.failures != 3 || e.removal.retry != nil {
			t.Errorf("after %d failures a timer runs on", e.removal.failures)
		}
	})
}

func TestDeleteRetryBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var tries []time.Duration
		p := &probe{detach: func() error {
			if tries = append(tries, time.Since(began)); len(tries) == 9 {
				return nil
			}
			return errors.New("the kernel said no")
		}}
		m := started(t, t.TempDir(), p)
		if _, err := m.Create(t.Context(), specOf("c1:eth0"), nil); err != nil {
			t.Fatal(err)
		}
		m.Delete(t.Context(), specOf("c1:eth0").Attachment, endpoint.DeleteConfig{})
		time.Sleep(time.Hour)
		synctest.Wait()
		var want []time.Duration
		for _, s := range []int{0, 1, 3, 7, 15, 31, 63, 123, 183} {
			want = append(want, time.Duration(s)*time.Second)
		}
		if !slices.Equal(tries, want) || len(m.table.List()) != 0 {
			t.Errorf("tried at %v, want %v; left %v", tries, want, m.table.List())
		}
	})
}

func TestCreateInvalid(t *testing.T) {
	for name, spoil := range map[string]func(*endpoint.Spec){
		"an interface of no name":            func(s *endpoint.Spec) { s.Attachment.IfName = "" },
		"an interface named a path":          func(s *endpoint.Spec) { s.Attachment.IfName = "../../etc" },
		"an MTU too small for IPv6":          func(s *endpoint.Spec) { s.MTU = 576 },
		"a namespace with a slash":           func(s *endpoint.Spec) { s.Pod.Namespace = "a/b" },
		"the broadcast address":              func(s *endpoint.Spec) { s.Requested.IPv4 = netip.MustParseAddr("255.255.255.255") },
		"an external IPAM without addresses": func(s *endpoint.Spec) { s.ExternalIPAM = true },
	} {
		spec := specOf("c1:eth0")
		if spoil(&spec); fault.KindOf(spec.Validate()) != fault.Invalid {
			t.Errorf("%s was taken", name)
		}
	}
}

// sameAddress is a step that gives all endpoints the same address.
type sameAddress struct{ *probe }

func (sameAddress) Attach(_ context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	ep.Addresses.IPv4 = netip.MustParseAddr("10.0.0.1")
	return ep, nil
}

func TestTableAddressOwner(t *testing.T) {
	p := &probe{}
	m := unstarted(t.TempDir(), p)
	m.steps = endpoint.Steps{sameAddress{p}}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Stop(context.Background()) }()
	first, err := m.Create(t.Context(), specOf("c1:eth0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.detach = func() error { return errors.New("the kernel said no") }
	if _, err := m.Create(t.Context(), specOf("c2:eth0"), nil); !errors.Is(err, ErrInUse) {
		t.Errorf("error %v, want ErrInUse", err)
	}
	if got, err := m.table.Get(endpoint.ByAddress(first.Addresses.IPv4)); err != nil || got != first {
		t.Errorf("the address leads to %v, %v", got.Spec.Attachment, err)
	}
}

func TestCreateBeforeStart(t *testing.T) {
	if _, err := unstarted(t.TempDir(), &probe{}).Create(t.Context(), specOf("c1:eth0"), nil); !errors.Is(err, ErrStopped) {
		t.Errorf("error %v, want ErrStopped", err)
	}
}
