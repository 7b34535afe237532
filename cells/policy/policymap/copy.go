package policymap

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// policyCopy is one of the copies of the policy, and what is in it.
type policyCopy struct {
	maps   Maps
	number uint32 // 0 or 1

	classes   map[netip.Addr]engine.ClassID
	prefixes  map[netip.Prefix]engine.ClassID
	members   map[engine.ClassID]int // how many of classes and prefixes are of it
	tables    map[engine.TableID]*table
	endpoints map[string]endpoint
	unknown   map[uint16]bool    // IDs of no known endpoint, which are denied everything
	sets      map[string]*rowSet // by content
	unused    []*rowSet
	lastSet   uint32
	rowCount  int // in all sets
	entries   int // in the map tables
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

type endpoint struct {
	id     uint16
	tables [2]engine.TableID // by direction
}

func newPolicyCopy(m Maps, number uint32) *policyCopy {
	return &policyCopy{
		maps: m, number: number, classes: map[netip.Addr]engine.ClassID{}, prefixes: map[netip.Prefix]engine.ClassID{},
		members: map[engine.ClassID]int{engine.FixedClass(model.World): 1}, // all addresses that the maps do not have
		tables:  map[engine.TableID]*table{}, endpoints: map[string]endpoint{}, unknown: map[uint16]bool{}, sets: map[string]*rowSet{},
	}
}

// numbered returns the number in the maps for n, which is at least 1. The two copies never use the same number, and neither uses 0 or 1.
func (c *policyCopy) numbered(n uint32) uint32 { return n*abi.PolicyCopies + c.number }

// write writes everything into an empty copy.
func (c *policyCopy) write(e *engine.Engine, ids map[string]uint16) error {
	for _, view := range viewsOf(e, ids) {
		if err := c.addTable(view); err != nil {
			return err
		}
	}
	for addr, class := range e.Addresses() {
		if err := c.setAddress(e, addr, class); err != nil {
			return err
		}
	}
	if err := c.setPrefix(allIPv4, engine.FixedClass(model.World)); err != nil {
		return err
	}
	for cidr, class := range e.Prefixes() {
		if err := c.setPrefix(cidr, class); err != nil {
			return err
		}
	}
	for key, id := range ids {
		if err := c.setEndpoint(e, key, id); err != nil {
			return err
		}
	}
	return nil
}

// addTable writes a table. The rows for all classes come last.
func (c *policyCopy) addTable(view engine.Table) error {
	t := &table{id: view.ID(), rows: map[engine.ClassID]*rowSet{}}
	c.tables[t.id] = t
	for class, rows := range view.Rows() {
		if err := c.setRows(t, class, rows); err != nil {
			return err
		}
	}
	return c.setRows(t, anyClass, view.Any())
}

// anyClass is the class 0 of the map tables.
const anyClass engine.ClassID = 0

func (c *policyCopy) tableKey(t *table, class engine.ClassID) abi.TableKey {
	return abi.TableKey{Table: c.numbered(uint32(t.id)), Class: uint32(class)}
}

// setRows points a class in a table to rows.
func (c *policyCopy) setRows(t *table, class engine.ClassID, rows []engine.Row) error {
	set, err := c.acquire(rows)
	if err != nil {
		return err
	}
	return c.point(t, class, set)
}

// point points a class in a table to a set that was acquired for it.
func (c *policyCopy) point(t *table, class engine.ClassID, set *rowSet) error {
	was := t.rows[class]
	if class == anyClass {
		was = t.any
	}
	if was == nil && c.entries >= room(c.maps.Tables) {
		return fmt.Errorf("%w: more than %d classes in tables", ErrNoRoom, room(c.maps.Tables))
	}
	if err := c.maps.Tables.Put(c.tableKey(t, class), set.number); err != nil {
		return fmt.Errorf("write a table of the policy: %w", noRoom(err))
	}
	if was == nil {
		c.entries++
	}
	if class == anyClass {
		t.any = set
	} else {
		t.rows[class] = set
	}
	c.release(was)
	return nil
}

// removeRows lets a class have the rows of all classes.
func (c *policyCopy) removeRows(t *table, class engine.ClassID) error {
	set := t.rows[class]
	if set == nil {
		return nil
	}
	if err := c.deleteEntry(t, class); err != nil {
		return err
	}
	delete(t.rows, class)
	c.release(set)
	return nil
}

// removeTable removes a table that no endpoint has.
func (c *policyCopy) removeTable(id engine.TableID) error {
	t := c.tables[id]
	if t == nil {
		return nil
	}
	for class := range t.rows {
		if err := c.removeRows(t, class); err != nil {
			return err
		}
	}
	if err := c.deleteEntry(t, anyClass); err != nil {
		return err
	}
	c.release(t.any)
	delete(c.tables, id)
	return nil
}

func (c *policyCopy) deleteEntry(t *table, class engine.ClassID) error {
	if err := c.maps.Tables.Delete(c.tableKey(t, class)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove from a table of the policy: %w", err)
	}
	c.entries--
	return nil
}
