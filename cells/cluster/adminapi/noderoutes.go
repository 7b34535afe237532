package adminapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/internal/httpx"
)

// NodeRoutes are the calls on /v1/node.
type NodeRoutes struct {
	backend cluster.Backend
	nodes   *admin.Nodes
}

// NewNodeRoutes returns the part of the API.
func NewNodeRoutes(b cluster.Backend, n *admin.Nodes) NodeRoutes { return NodeRoutes{b, n} }

// Mount implements server.Routes.
func (s NodeRoutes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/node", httpx.Handler(s.listNodes))
	r.Method(http.MethodPost, "/v1/node/{name}/delete", httpx.Handler(s.deleteNode))
	r.Method(http.MethodPost, "/v1/node/{name}/reset", httpx.Handler(s.resetNode))
}

func (s NodeRoutes) listNodes(w http.ResponseWriter, r *http.Request) error {
	read := s.nodes.List
	if r.URL.Query().Get("blocks") == "false" {
		read = s.nodes.ListRecords
	}
	nodes, err := read(r.Context())
	if err != nil {
		return err
	}
	list := []v1.Node{}
	for _, n := range nodes {
		list = append(list, nodeOf(n))
	}
	return httpx.JSON(w, http.StatusOK, list)
}

// node is the node that a request names.
func (s NodeRoutes) node(r *http.Request, key string) (cluster.Node, error) {
	name, err := httpx.Param(r, "name")
	if err != nil {
		return cluster.Node{}, err
	}
	return s.nodes.Find(r.Context(), name, key)
}

func (s NodeRoutes) deleteNode(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.NodeDeletion](w, r)
	if err != nil {
		return err
	}
	if err := checkRights(s.backend, "node delete"); err != nil {
		return err
	}
	n, err := s.node(r, body.Key)
	if err == nil {
		err = s.nodes.Delete(r.Context(), n.ID, body.MachineIsOff)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s NodeRoutes) resetNode(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.NodeReset](w, r)
	if err != nil {
		return err
	}
	if err := checkRights(s.backend, "node reset"); err != nil {
		return err
	}
	n, err := s.node(r, body.Key)
	if err == nil {
		err = s.nodes.Reset(r.Context(), n.ID)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
