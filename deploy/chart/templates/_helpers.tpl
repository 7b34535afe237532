{{- define "porin.image" -}}
{{- with .Values.image -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* The part of the agent's configuration file that the chart writes itself. */}}
{{- define "porin.config" -}}
store: kubernetes
kubernetes-daemonset: {{ .Release.Namespace }}/porin-agent
kubernetes-api-server: {{ toJson .Values.apiServer.urls }}
ipam-mode: {{ .Values.ipam.mode }}
routing: {{ .Values.routing }}
masquerade: {{ .Values.masquerade }}
cni-conf-path: {{ .Values.cniConfDir }}/05-porin.conflist
proxy-mode: {{ ternary "external" "internal" .Values.proxy.enabled }}
health-address: 127.0.0.1:{{ int .Values.health.port }}
metrics-address: {{ quote .Values.metrics.address }}
log-level: {{ .Values.logLevel }}
{{- end }}

{{/* The part of the pod's spec that all DaemonSets have. */}}
{{- define "porin.pod" -}}
hostNetwork: true
# There is no network for a DNS server of the cluster before the agent runs.
dnsPolicy: Default
enableServiceLinks: false
priorityClassName: system-node-critical
nodeSelector:
  kubernetes.io/os: linux
tolerations:
  - operator: Exists
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  seccompProfile:
    type: RuntimeDefault
  # The runtime's profile denies mounts, and writes to /proc/sys and to the BPF file system.
  appArmorProfile:
    type: Unconfined
  # The type of containers may not write to folders of the node.
  seLinuxOptions:
    type: spc_t
{{- end }}
