{{- /* Where managers run beside one another: what the user says, else apart. */}}
{{- define "etcd-operator.spread" -}}
{{- $replicas := (include "etcd-operator.settings" . | fromYaml).replicas | int -}}
{{- $selector := dict "matchLabels" (include "etcd-operator.selector" . | fromYaml) -}}
{{- $apart := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" $selector -}}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if and (gt $replicas 1) (eq .Values.antiAffinity "preferred") }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        {{- toYaml $apart | nindent 8 }}
{{- else if and (gt $replicas 1) (eq .Values.antiAffinity "required") }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - {{- toYaml $apart | nindent 6 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
- {{- toYaml (hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" $selector) .)) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
