#!/bin/sh
# Runs in the machine: every test binary of this folder, one line for each, and the whole log of one that fails.
# Of e2e and datapath it runs what the kernel has a say in: with all of it an emulated machine is busy for an hour. Of hostfilter and masquerade, what needs no program nft.
# TESTS are the binaries. RUN restricts their tests, and may name any test of e2e.
export PORIN_BIN_DIR=$PWD/bin PORIN_PLUGIN_DIR=$PWD/bin/plugins PORIN_LIBCNI_DIR=$PWD/bin/libcni REQUIRE_ROOT=1 HEAVY=1
e2e='TestAttachAndDetach|TestTwoNetworks|TestContainerChangesInterface|TestSpoofedSource|TestNodeSysctls|TestRestartKeepsConnections|TestCHECK(Differences|AddressRemoved)|TestStart(WithoutLinks|InOtherNamespace|AfterBoot)$|TestVXLANOuterFamilies$|TestHTTPRulesWithoutServices|TestHostPort(Taken|ReplacedPod|SCTP|UDPClientStays|RouteLocalnet)'
hostfilter='TestPodToNode|TestPrecedence|TestRevoked|TestNodeToPod|TestNeighbour|TestGuard(NewTunnel)?$|TestApplyChange'
datapath='TestAttachDetach$|TestTraffic|TestFrames|TestUplinks|TestHostFilter|TestSweep|TestConnectionsExpire|TestTimer|TestUpgrade|TestRestartAdopts|TestForward|TestSetRemoteBlocks|TestExamineFromUplink|TestStart|TestPruneRoutes|TestFlowEvents|TestTranslations'
masquerade='TestOutside|TestFamilies|TestKeepsAddress|TestInbound|TestErrorsComeBack'
policy='TestConformance$/v1alpha2|TestExamples$' # directly: a Service needs the program nft. Here SCTP has sockets, and connections
if [ -n "${SHORT:-}" ]; then
	datapath='TestAttachDetach$|TestUplinks|TestUpgrade|TestRestartAdopts|TestTimer'
	policy='TestExamples$'
	e2e='TestAttachAndDetach|TestSpoofedSource|TestNodeSysctls|TestRestartKeepsConnections|TestStartAfterBoot$|TestVXLANOuterFamilies$|TestHTTPRulesWithoutServices|TestHostPortSCTP'
else
	e2e="$e2e|TestUpgradeFrom$|TestDowngradeTo$"
fi
status=0 ran=0
for test in ${TESTS:?}; do
	began=$(date +%s)
	result=ok run=. flags=
	[ $test != e2e ] || run=$e2e
	[ $test != hostfilter ] || run=$hostfilter
	[ $test != datapath ] || run=$datapath
	[ $test != policy ] || run=$policy
	[ $test != masquerade ] || run=$masquerade
	[ $test != bpf ] || [ -z "${SHORT:-}" ] || run=TestVerifier
	[ $test != bpf ] || flags='-cases 2000' # of random policies; an emulated machine takes 100 times as long
	[ $test != tunnel ] || flags='-test.skip TestOwnersFull' # a large table
	./$test.test -test.v -test.timeout 25m -test.run "${RUN:-$run}" $flags >/tmp/log 2>&1 || result=FAIL
	echo "$result	$test	$(grep -c '^--- PASS' /tmp/log) passed, $(grep -c '^--- SKIP' /tmp/log) skipped	$(($(date +%s) - began)) s"
	grep '^--- SKIP' /tmp/log
	ran=$((ran + $(grep -c '^--- ' /tmp/log)))
	grep -o 'SCTP of the kernel [a-z]*' /tmp/log | sort -u
	if [ $result = FAIL ]; then
		status=1
		cat /tmp/log
	fi
done
[ $ran != 0 ] || { echo "no test has the name $RUN" && exit 1; }
exit $status
