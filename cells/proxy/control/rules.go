package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"porin.dev/porin/internal/diskfile"
	"porin.dev/porin/internal/fault"
)

// agentWait is how long a start without a previous proxy waits for an agent, which may hold sockets with connections
// that wait.
const agentWait = 2 * time.Second

// startFromFile goes on with the rules of the file, unless an agent comes before. Without maps no agent has run in this
// boot.
func (s *Server) startFromFile() {
	select {
	case <-s.agentConnected:
		return
	case <-s.ctx.Done():
		return
	case <-time.After(agentWait):
	}
	rules, err := s.file.read()
	rules.Partial = false
	if err != nil {
		s.log.Warn("the layer 7 rules that were in force last cannot be read: what needs them is denied until an agent connects", "error", err)
		return
	}
	if len(rules.Rules) == 0 {
		return
	}
	if err := s.maps.Open(); err != nil {
		s.log.Warn("the agent's maps cannot be opened: connections wait until an agent connects", "error", err)
		return
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	leaving := s.handingOver || s.stopping // the next proxy has the rules
	connected := isClosed(s.agentConnected)
	s.resumed = !leaving && !connected
	s.mu.Unlock()
	if leaving || connected {
		return
	}
	if rejected, err := s.apply(s.ctx, rules); err != nil || len(rejected) > 0 {
		s.log.Warn("not all of the layer 7 rules that were in force last are in use", "rejected", len(rejected), "error", err)
		return
	}
	s.log.Info("no agent is there: goes on with the layer 7 rules that were in force last", "sets", len(rules.Rules))
}

// update gives the proxy other rules. Those of an agent that is not the current one, and older ones, are ignored.
func (s *Server) update(ctx context.Context, agent *rpcConn, rules snapshot) (rejectedRules, error) {
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	current := s.current == agent
	s.mu.Unlock()
	if !current {
		return nil, fault.New(fault.Conflict, "another agent controls the proxy")
	}
	if rules.Version < s.version {
		return nil, nil
	}
	s.version = rules.Version
	rejected, err := s.apply(ctx, rules)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.handingOver { // meanwhile: the next proxy does not know of these rules
		err = errReplaced
	}
	return rejected, err
}

// apply has the proxy use the rules, and no others unless they are partial. It expects updating.
func (s *Server) apply(ctx context.Context, rules snapshot) (rejectedRules, error) {
	all, rejected := rules.decode()
	s.mu.Lock()
	before, stopping := s.rules, s.stopping
	s.mu.Unlock()
	if rules.Partial && before.Rules == nil {
		var err error
		if before, err = s.file.read(); err != nil { // until the agent has written its policies, rows have the numbers of these rules
			s.log.Warn("the layer 7 rules that were in force last cannot be read: what needs them is denied until the agent has written its policies", "error", err)
		}
		kept, _ := before.decode()
		maps.Copy(kept, all)
		all = kept
	}
	for number, one := range all {
		if err := s.proxy.Supports(one); err != nil {
			rejected[number] = err.Error()
			delete(all, number)
		}
	}
	if stopping { // current requests are decided by them
		if err := s.proxy.Update(ctx, all); err != nil {
			return rejected, err
		}
	} else if err := s.proxy.Prepare(ctx, all); err != nil {
		return rejected, err
	}
	if rules.Partial {
		merged := map[uint32]json.RawMessage{}
		maps.Copy(merged, before.Rules)
		maps.Copy(merged, rules.Rules)
		rules.Rules = merged
		rules.Names = mergeScopes(before.Names, rules.Names)
	} else {
		var unused []uint32
		for number := range before.Rules {
			if _, ok := all[number]; !ok {
				unused = append(unused, number)
			}
		}
		s.proxy.Release(unused)
	}
	s.mu.Lock()
	s.rules = rules
	s.mu.Unlock()
	s.learner.setScope(rules.Names)
	if !stopping {
		if err := s.file.write(rules); err != nil {
			s.log.Warn("the layer 7 rules are not kept for a start without the agent", "error", err)
		}
	}
	return rejected, nil
}

// rulesFile has the rules that were in force last, for a start without the agent.
type rulesFile struct{ dir string }

func (f rulesFile) path() string { return filepath.Join(f.dir, "proxy-rules.json") }

func (f rulesFile) write(rules snapshot) error {
	text, err := json.Marshal(rules)
	if err != nil {
		return err
	}
	return diskfile.Replace(f.path(), text)
}

// read returns no rules when there is no file, or with an error.
func (f rulesFile) read() (rules snapshot, err error) {
	text, err := os.ReadFile(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return snapshot{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &rules)
	}
	if err != nil {
		return snapshot{}, fmt.Errorf("read %s: %w", f.path(), err)
	}
	return rules, nil
}
