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
