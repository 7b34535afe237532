package policymap

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
)

// tables is a copy's part of the map tables.
type tables struct {
	m          *ebpf.Map
	copyNumber uint32
	rowSets    *rowSets
	byID       map[engine.TableID]*table
	entries    int // in the map
}

// table is what the map tables has of one.
type table struct {
	id   engine.TableID
	any  *rowSet // of all classes that are not in rows
	rows map[engine.ClassID]*rowSet
}

// restricts reports whether the table denies anything to anybody.
func (t *table) restricts() bool { return len(t.rows) > 0 || t.any.number != abi.RowsAllow }

func (t *table) setOf(c engine.ClassID) *rowSet {
	if set := t.rows[c]; set != nil {
		return set
	}
	return t.any
}

// add writes a table. The rows for all classes come last.
func (x *tables) add(view engine.Table) error {
	t := &table{id: view.ID(), rows: map[engine.ClassID]*rowSet{}}
	x.byID[t.id] = t
	for class, rows := range view.Rows() {
		if err := x.setRows(t, class, rows); err != nil {
			return err
		}
	}
	return x.setRows(t, anyClass, view.Any())
}

// anyClass is the class 0 of the map tables.
const anyClass engine.ClassID = 0

func (x *tables) key(t *table, class engine.ClassID) abi.TableKey {
	return abi.TableKey{Table: numbered(uint32(t.id), x.copyNumber), Class: uint32(class)}
}

// setRows points a class in a table to rows.
func (x *tables) setRows(t *table, class engine.ClassID, rows []engine.Row) error {
	set, err := x.rowSets.acquire(rows)
	if err != nil {
		return err
	}
	return x.point(t, class, set)
}

// point points a class in a table to a set that was acquired for it.
func (x *tables) point(t *table, class engine.ClassID, set *rowSet) error {
	was := t.rows[class]
	if class == anyClass {
		was = t.any
	}
	if was == nil && x.entries >= room(x.m) {
		return fmt.Errorf("%w: more than %d classes in tables", ErrNoRoom, room(x.m))
	}
	if err := x.m.Put(x.key(t, class), set.number); err != nil {
		return fmt.Errorf("write a table of the policy: %w", noRoom(err))
	}
	if was == nil {
		x.entries++
	}
	if class == anyClass {
		t.any = set
	} else {
		t.rows[class] = set
	}
	x.rowSets.release(was)
	return nil
}

// removeRows lets a class have the rows of all classes.
func (x *tables) removeRows(t *table, class engine.ClassID) error {
	set := t.rows[class]
	if set == nil {
		return nil
	}
	if err := x.deleteEntry(t, class); err != nil {
		return err
	}
	delete(t.rows, class)
	x.rowSets.release(set)
	return nil
}

// remove removes a table that no endpoint has.
func (x *tables) remove(id engine.TableID) error {
	t := x.byID[id]
	if t == nil {
		return nil
	}
	for class := range t.rows {
		if err := x.removeRows(t, class); err != nil {
			return err
		}
	}
	if err := x.deleteEntry(t, anyClass); err != nil {
		return err
	}
	x.rowSets.release(t.any)
	delete(x.byID, id)
	return nil
}

func (x *tables) deleteEntry(t *table, class engine.ClassID) error {
	if err := x.m.Delete(x.key(t, class)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove from a table of the policy: %w", err)
	}
	x.entries--
	return nil
}

// number is the table's in the maps: 0 for a table that allows everything.
func (x *tables) number(id engine.TableID) uint32 {
	if !x.byID[id].restricts() {
		return 0
	}
	return numbered(uint32(id), x.copyNumber)
}
