package connectivity

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"porin.dev/porin/cmd/porin/fleet"
)

// Namespace has all objects of a test.
const Namespace = "porin-connectivity"

// The ports of servers.
const (
	openPort   = 8080
	deniedPort = 8081 // no rule of the policy allows it
	hostPort   = 28080
)

const (
	roleLabel = "porin.dev/connectivity" // "server" or "client"; of the namespace, a name of the test
	nodeLabel = "porin.dev/connectivity-node"
)

func namespace(test string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: Namespace,
			// A host port needs it.
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged", roleLabel: test},
		},
	}
}

// serverName is the name of a pod and of its Service. It has the number of the node, whose name may be too long.
func serverName(node int) string { return "server-" + strconv.Itoa(node) }
func clientName(node int) string { return "client-" + strconv.Itoa(node) }

// pod is a server or a client on a node.
func pod(name, role string, number int, agent fleet.Pod) *corev1.Pod {
	no, yes, user, second := false, true, int64(65534), int64(1)
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: Namespace, Labels: map[string]string{roleLabel: role, nodeLabel: strconv.Itoa(number)},
		},
		Spec: corev1.PodSpec{
			NodeName:                      agent.Node, // without the scheduler: the node is a part of the test
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			TerminationGracePeriodSeconds: &second,
			Containers: []corev1.Container{{
				Name: "porin", Image: agent.FullImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/porin", "connectivity", "serve", "--name", name},
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: &user, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
					Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
		},
	}
	if role == "server" {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: openPort, HostPort: hostPort, Protocol: corev1.ProtocolTCP}}
	}
	return p
}

// service is of the server of one node, so that it tests translation and no path.
func service(number int) *corev1.Service {
	both := corev1.IPFamilyPolicyPreferDualStack
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: serverName(number), Namespace: Namespace},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: &both,
			Selector: map[string]string{roleLabel: "server", nodeLabel: strconv.Itoa(number)},
			Ports:    []corev1.ServicePort{{Port: openPort, TargetPort: intstr.FromInt32(openPort), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// policy allows one port of servers to all.
func policy() *networkingv1.NetworkPolicy {
	tcp, udp, port := corev1.ProtocolTCP, corev1.ProtocolUDP, intstr.FromInt32(openPort)
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "servers", Namespace: Namespace},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{roleLabel: "server"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}, {Protocol: &udp, Port: &port}}}},
		},
	}
}
