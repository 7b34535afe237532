# Porin. Each target is one obvious command; `make` alone lists them.

# sudo's PATH often lacks Go's folder.
GO      ?= $(or $(shell command -v go),/usr/local/go/bin/go)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
BIN     := $(CURDIR)/bin
LDFLAGS := -s -w -X porin.dev/porin/internal/version.linked=$(VERSION)
# A race detector needs a C compiler: RACE=1 asks for it.
RACE    ?=
RERUN   ?=
# FULL=1: chaos, the whole model, each row of a test that otherwise chooses one, and random tests five times as long or more.
FULL    ?=
# Restrict a run: make test PKG=./cells/ipam RUN=Quarantine
PKG     ?= ./...
RUN     ?= .

NOT_PRODUCT := _test\.go$$|_bpfel|_bpfeb|zz_generated|(^|/)test/|test/[^/]*\.go$$|testutil|oracle/|example/

export PATH := $(dir $(GO)):$(PATH)
# One way to compile for build, lint and tests, so that they share what they have compiled. The race detector needs cgo.
export CGO_ENABLED := 0
export GOFLAGS     := $(GOFLAGS) -trimpath

# kube-apiserver is built once a machine, and kept outside of the checkout. PORIN_KUBE_APISERVER names another one.
KUBERNETES_VERSION    = $(shell sed -n 's|^	k8s.io/kubernetes \(v[^ ]*\).*|\1|p' test/kube-apiserver/go.mod)
PORIN_KUBE_APISERVER ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/porin/kube-apiserver-$(KUBERNETES_VERSION)
PORIN_ETCD           ?= $(BIN)/etcd

.PHONY: help build image release test-image deps deps-generate ipam-plugins libcni kube-apiserver versions generate lint lines check test test-apiserver test-chart kubernetes e2e-kubernetes bench-kubernetes test-kernels demo crash chaos bench scale graph reference helm manifest model random schedules fuzz clean

help:
	@echo "make build     bin/porin-agent, bin/porin-proxy, bin/porin-cni and bin/porin"
	@echo "make image     bin/porin-image.tar: an OCI archive for amd64 and arm64, with the name porin.dev/porin:TAG; PLATFORMS=linux/amd64 for one"
	@echo "make release   VERSION=0.1.0: programs, image, chart, manifest, SBOM, notes and checksums, in bin/release/0.1.0"
	@echo "make test-image  the image's files, labels and programs, and that a second archive is the same"
	@echo "make check     build, lint and the tests that need no root: before every commit"
	@echo "make test      every test; without root, those that need none, and what was left out; FULL=1: before an issue is resolved, with chaos and the whole model"
	@echo "make deps      installs the programs that tests run, as root on Debian; elsewhere lists them (test and demo do it first)"
	@echo "make test-apiserver  what depends on the Kubernetes API, on a real API server; FULL=1: for each change of cells/kubernetes (root)"
	@echo "make test-chart  deploy/chart by Helm's engine: values, templates, and that deploy/porin.yaml is the chart with its defaults"
	@echo "make e2e-kubernetes  installs Porin in clusters of kubelets and containerd, and runs upstream's tests there; NODES=3 PROXY=nftables IPFAMILY=dual RUN=TestInstall; RELEASE=0.1.0 installs the files of make release (root)"
	@echo "make bench-kubernetes  110 pods at once on a node of such a cluster, beside the reference plugins: time, ADDs, memory (root)"
	@echo "make kubernetes  the programs and images of these clusters, once a machine: 15 minutes"
	@echo "make test-kernels  what depends on the kernel, on Debian's 6.1 and 6.12 in emulated machines; KERNELS=6.1 TESTS=e2e RUN=Ping (root)"
	@echo "make demo      a node, two containers, a killed agent: the whole story in half a minute (root)"
	@echo "make crash     kills agent and plugin at every effect of every operation, and counts them (root)"
	@echo "make chaos     the same at random, 32 at once, with traffic and policies, for DURATION (2m); SEED=n; MODE=multi-pool: three nodes, and a Kubernetes API of three servers (root)"
	@echo "make bench     against the reference CNI plugins and a bare veth pair; ONLY=traffic is one part; BASELINE=DIR has the binaries of another version (root)"
	@echo "make scale     one agent among 1,000 simulated nodes with 50 pods each, and 200 agents at a real API server: memory, time, processor; NODES=1000 PODS=50 AGENTS=200 ONLY=TestAgents (root)"
	@echo "make lint      gofmt, go vet, staticcheck, and the count of words"
	@echo "make lines     the lines of the product: without tests, test kits and generated files"
	@echo "make generate  compile bpf/ again (make deps-generate installs the compiler)"
	@echo "make model     all orders of claims, deletions, restarts and restores of blocks, searched to the end"
	@echo "make random    nodes that share a pool, and OPERATIONS (50000) at random with trouble on each kind of store"
	@echo "make schedules the life of endpoints, interleaved at random, in SCHEDULES ways (100000)"
	@echo "make fuzz      every fuzz test for FUZZTIME (10s)"
	@echo "make reference docs/reference from the code: flags, commands, API, metrics, findings, CNI keys, values of the chart"
	@echo "make helm      the Helm of the tests, in bin/helm; make test-apiserver builds it"
	@echo "make manifest  deploy/porin.yaml and deploy/cleanup.yaml from deploy/chart"
	@echo "make graph     docs/graph.svg of the agent's modules (graphviz)"
	@echo "make ipam-plugins  the reference plugins of the tests, in bin/plugins: IPAM, and portmap"
	@echo "make libcni    programs that call plugins as container runtimes do, in bin/libcni"
	@echo "make kube-apiserver  the API server of the tests, once a machine: minutes; and its etcd, in bin/etcd"
	@echo "make versions  the earlier versions of the tests of upgrades, from the repository's history, in bin/versions"
	@echo "make clean     removes bin/"

build:
	$(GO) build -ldflags "$(LDFLAGS)" -o $(BIN)/porin-agent ./cmd/agent
	$(GO) build -ldflags "$(LDFLAGS)" -o $(BIN)/porin-proxy ./cmd/proxy
	$(GO) build -ldflags "$(LDFLAGS)" -o $(BIN)/porin-cni ./cmd/cni
	$(GO) build -ldflags "$(LDFLAGS)" -o $(BIN)/porin ./cmd/porin

# TAG is the version of the chart.
TAG       ?= $(or $(shell sed -n "s/^appVersion: *[\"']*\([^\"' ]*\).*/\1/p" deploy/chart/Chart.yaml 2>/dev/null),0.1.0)
PLATFORMS ?= linux/amd64 linux/arm64
image:
	for platform in $(PLATFORMS); do \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} $(MAKE) --no-print-directory build BIN=$(BIN)/image/$$platform || exit; \
	done
	cd deploy/image && $(GO) run . -out $(BIN)/porin-image.tar -name porin.dev/porin:$(TAG) \
		-version "$(VERSION)" -revision "$$(git rev-parse HEAD)" $(BIN)/image $(PLATFORMS)

# The files of a release, in bin/release/VERSION.
release:
	@BIN=$(BIN) GO=$(GO) deploy/release/release.sh "$(VERSION)"

test-image: image
	cd deploy/image && PORIN_IMAGE=$(BIN)/porin-image.tar PORIN_IMAGE_NAME=porin.dev/porin:$(TAG) PORIN_IMAGE_PLATFORMS="$(PLATFORMS)" $(GO) test -count=1 -v .

deps:
	@test/deps.sh

deps-generate:
	@test/deps.sh generate

generate:
	$(GO) generate ./bpf/...

lint:
	@files=$$(gofmt -l .); test -z "$$files" || { echo "gofmt: not formatted: $$files"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) run ./test/words
	cd deploy/image && $(GO) vet .
	cd test/bench && $(GO) vet ./...
	cd test/etcd && $(GO) vet .
	cd test/libcni && $(GO) vet . && $(GO) vet -tags crio . && $(GO) vet -modfile=containerd-1.7.mod .

# The reference plugins that the tests delegate addresses to, and portmap that they chain, each with the dependencies that their own module pins.
ipam-plugins:
	mkdir -p $(BIN)/plugins
	cd test/bench && $(GO) mod download github.com/containernetworking/plugins
	cd "$$(cd test/bench && $(GO) list -m -f '{{.Dir}}' github.com/containernetworking/plugins)" && \
		$(GO) build -ldflags "-s -w" -o $(BIN)/plugins/ ./plugins/ipam/host-local ./plugins/ipam/static ./plugins/meta/portmap

# What calls the plugins in containerd 1.7 and 2 and in CRI-O.
libcni:
	mkdir -p $(BIN)/libcni
	cd test/libcni && $(GO) build -ldflags "-s -w" -modfile=containerd-1.7.mod -o $(BIN)/libcni/containerd-1.7 .
	cd test/libcni && $(GO) build -ldflags "-s -w" -o $(BIN)/libcni/containerd-2 .
	cd test/libcni && $(GO) build -ldflags "-s -w" -tags crio -o $(BIN)/libcni/cri-o .

kube-apiserver: $(PORIN_KUBE_APISERVER)
	cd test/etcd && $(GO) build -ldflags "-s -w" -o $(BIN)/etcd .

# The file appears when it is whole: an interrupted build leaves none.
$(PORIN_KUBE_APISERVER):
	mkdir -p $(@D)
	cd test/kube-apiserver && $(GO) build -o $@.new -ldflags "-s -w $(foreach version,gitVersion=$(KUBERNETES_VERSION) gitMajor=1 gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION))),-X k8s.io/component-base/version.$(version))" \
		k8s.io/kubernetes/cmd/kube-apiserver
	mv $@.new $@

# The earlier versions that upgrades and downgrades are tested with, from the repository's history.
versions:
	@BIN=$(BIN) GO=$(GO) test/versions.sh

# Every commit has to pass this. It takes some minutes with a warm build cache.
check: build lint
	NO_ROOT=1 $(GO) test ./...

lines:
	@git ls-files '*.go' | grep -vE '$(NOT_PRODUCT)' | xargs cat | wc -l

# RERUN=3 runs a failed test up to three more times, alone.
test: deps build ipam-plugins libcni
	-@BIN=$(BIN) GO=$(GO) test/versions.sh
	@PORIN_BIN_DIR=$(BIN) PORIN_PLUGIN_DIR=$(BIN)/plugins PORIN_LIBCNI_DIR=$(BIN)/libcni GO=$(GO) RACE=$(RACE) RERUN=$(RERUN) FULL=$(FULL) test/run.sh '$(PKG)' '$(RUN)'

APISERVER_ENV = PORIN_BIN_DIR=$(BIN) PORIN_PLUGIN_DIR=$(BIN)/plugins PORIN_LIBCNI_DIR=$(BIN)/libcni \
	PORIN_KUBE_APISERVER=$(PORIN_KUBE_APISERVER) PORIN_ETCD=$(PORIN_ETCD) PORIN_HELM=$(BIN)/helm GO=$(GO) FULL=$(FULL) RACE= RERUN=$(RERUN)
# FULL=1: for each change of cells/kubernetes.
test-apiserver: build ipam-plugins libcni kube-apiserver
	@test "$$(id -u)" = 0 || { echo "make test-apiserver: a node is a network namespace, and making one needs root: sudo make test-apiserver"; exit 1; }
ifeq ($(RUN),.)
	@$(MAKE) --no-print-directory helm
	@$(APISERVER_ENV) test/run.sh "./internal/testutil/apiserver ./test/apiserver" .
	@$(APISERVER_ENV) test/run.sh ./cells/ipam/multipool '^(TestRandomAPIServer|TestRestore.*|TestWipe)$$'
	@$(APISERVER_ENV) test/run.sh ./test/scale/remote '^(TestConvergeAPIServer|TestAgents)$$'
else
	@$(APISERVER_ENV) test/run.sh "./internal/testutil/apiserver ./test/apiserver ./cells/ipam/multipool" '$(RUN)'
endif

# It takes a minute or two without a build cache. make test-apiserver installs the chart with the whole Helm.
test-chart:
	cd test/chart && $(GO) test -count=1 .

# The programs and images of test/kubernetes are built once a machine, as kube-apiserver.
PORIN_KUBERNETES_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/porin/kubernetes
kubernetes:
	@PORIN_KUBERNETES_DIR=$(PORIN_KUBERNETES_DIR) GO=$(GO) GOFLAGS= test/kubernetes/build.sh

# RELEASE=0.1.0 installs the files of make release. Each other variable of the command line restricts it.
RELEASE       ?=
RELEASE_FILES  = $(if $(RELEASE),$(BIN)/release/$(RELEASE))
e2e-kubernetes: kubernetes
	@test "$$(id -u)" = 0 || { echo "make e2e-kubernetes: a node is a set of namespaces, and making them needs root: sudo make e2e-kubernetes"; exit 1; }
	$(if $(RELEASE),,@$(MAKE) --no-print-directory image PLATFORMS=linux/$$($(GO) env GOARCH))
	@$(GO) test -c -o $(BIN)/kubernetes.test ./test/kubernetes
	@CGO_ENABLED=0 $(GO) build -o $(BIN)/porin ./cmd/porin
	@$(MAKE) --no-print-directory versions helm
	@PORIN_KUBERNETES_DIR=$(PORIN_KUBERNETES_DIR) PORIN_HELM=$(BIN)/helm PORIN_COMMAND=$(BIN)/porin \
		PORIN_IMAGE=$(if $(RELEASE),$(RELEASE_FILES)/porin-image-$(RELEASE).tar,$(BIN)/porin-image.tar) PORIN_RELEASE=$(RELEASE_FILES) \
		PORIN_EARLIER=$(BIN)/versions/$$(sed -n 's/ .*chart$$//p' test/e2e/testdata/versions) FULL=$(FULL) \
		ONLY_NODES='$(NODES)' ONLY_PROXY='$(PROXY)' ONLY_IPFAMILY='$(IPFAMILY)' test/kubernetes/run.sh $(BIN)/kubernetes.test '$(RUN)'

# In clusters of one node, one after the other.
bench-kubernetes:
	@CGO_ENABLED=0 $(GO) build -o $(BIN)/timed ./test/kubernetes/timed
	@PORIN_TIMED=$(BIN)/timed $(MAKE) --no-print-directory e2e-kubernetes NODES=1 PROXY=iptables IPFAMILY=ipv4 RUN='^TestBench$$$$'

# TESTS and RUN restrict it to some test binaries and to some of their tests. SHORT=1 leaves out upgrades, conformance of policies, and most of bpf, datapath and e2e.
KERNELS ?= 6.1 6.12
TESTS   ?=
SHORT   ?=
test-kernels: build ipam-plugins libcni
	-@BIN=$(BIN) GO=$(GO) test/versions.sh
	@BIN=$(BIN) GO=$(GO) TESTS='$(TESTS)' SHORT='$(SHORT)' RUN='$(filter-out .,$(RUN))' test/kernels/run.sh $(KERNELS)

demo: deps build
	@test "$$(id -u)" = 0 || { echo "make demo: a node is a network namespace, and making one needs root: sudo make demo"; exit 1; }
	@$(GO) test -c -o $(BIN)/demo.test ./test/demo
	@cd test/demo && HEAVY=1 PORIN_BIN_DIR=$(BIN) $(BIN)/demo.test -test.run '^TestDemo$$'

crash: build ipam-plugins
	@test "$$(id -u)" = 0 || { echo "make crash: a node is a network namespace, and making one needs root: sudo make crash"; exit 1; }
	@$(GO) test -c -o $(BIN)/crash.test ./test/crash
	@cd test/crash && HEAVY=1 PORIN_BIN_DIR=$(BIN) PORIN_PLUGIN_DIR=$(BIN)/plugins $(BIN)/crash.test -test.timeout 2h -every 1

DURATION ?= 2m
SEED     ?= 0
MODE     ?= pod-cidr
chaos: deps build
	@test "$$(id -u)" = 0 || { echo "make chaos: a node is a network namespace, and making one needs root: sudo make chaos"; exit 1; }
	@$(GO) test -c -o $(BIN)/chaos.test ./test/chaos
	@cd test/chaos && HEAVY=1 FULL=1 PORIN_BIN_DIR=$(BIN) $(BIN)/chaos.test -test.timeout 0 -chaos.duration $(DURATION) -chaos.seed $(SEED) -chaos.mode $(MODE)

bench: build
	@test "$$(id -u)" = 0 || { echo "make bench: it makes network namespaces, and that needs root: sudo make bench"; exit 1; }
	@test/deps.sh bench
	mkdir -p $(BIN)/plugins
	cd test/bench && $(GO) build -ldflags "-s -w" -o $(BIN)/plugins/ \
		github.com/containernetworking/plugins/plugins/main/ptp \
		github.com/containernetworking/plugins/plugins/main/bridge \
		github.com/containernetworking/plugins/plugins/meta/bandwidth \
		github.com/containernetworking/plugins/plugins/meta/portmap \
		github.com/containernetworking/plugins/plugins/ipam/host-local
	$(GO) build -o $(BIN)/ ./test/fill ./test/scale
	$(GO) test -c -o $(BIN)/scale.test ./test/scale
	cd test/bench && $(GO) test -c -o $(BIN)/bench.test .
	cd test/bench && HEAVY=1 PORIN_BIN_DIR=$(BIN) PORIN_PLUGIN_DIR=$(BIN)/plugins PORIN_BASELINE_DIR=$(abspath $(BASELINE)) $(BIN)/bench.test -test.run '^TestBench$$/$(ONLY)' -test.timeout 30m

PODS  ?= 50
AGENTS ?= 200
scale: build kube-apiserver
	@test "$$(id -u)" = 0 || { echo "make scale: a node is a network namespace, and making one needs root: sudo make scale"; exit 1; }
	@$(GO) test -c -o $(BIN)/remote.test ./test/scale/remote
	@cd test/scale/remote && HEAVY=1 $(APISERVER_ENV) $(BIN)/remote.test -test.timeout 60m -test.run '$(or $(ONLY),.)' -measure -nodes $(or $(NODES),1000) -pods $(PODS) -agents $(AGENTS) $(if $(GROUP),-group $(GROUP))

model:
	FULL=1 $(GO) test -count=1 -timeout 15m ./cells/ipam/multipool/model

OPERATIONS ?= 50000
random:
	$(GO) test -count=1 -v -timeout 0 -run '^TestRandom$$' ./cells/ipam/multipool -operations $(OPERATIONS)

SCHEDULES ?= 100000
schedules:
	$(GO) test -count=1 -v -timeout 30m -run '^TestSchedules$$' ./cells/endpointmanager -schedules $(SCHEDULES)

FUZZTIME ?= 10s
fuzz:
	GO=$(GO) test/fuzz.sh $(FUZZTIME)

graph:
	$(GO) run ./cmd/agent graph | dot -Tsvg -o docs/graph.svg

# The pages of docs/reference. The same tests without the flag compare them with the code.
reference:
	$(GO) test -count=1 -run '^Test(Agent|Proxy|Metrics|Findings|Command|Plugin|Network|API|Chart)Reference$$' \
		./cmd/agent ./cmd/proxy ./cmd/porin ./cmd/cni ./cells/cni ./api/v1/openapi ./deploy -reference.write

# Helm for TestChart of make test-apiserver: minutes without a build cache.
helm:
	cd test/chart && $(GO) build -o $(BIN)/helm helm.sh/helm/v4/cmd/helm

# deploy/porin.yaml, the chart with its defaults, and deploy/cleanup.yaml. The same test without the flag compares them.
manifest:
	cd test/chart && $(GO) test -count=1 -run '^TestManifest$$' . -write

clean:
	rm -rf $(BIN)
