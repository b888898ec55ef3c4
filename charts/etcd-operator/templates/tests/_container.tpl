{{- define "etcd-operator.test.container" -}}
image: {{ .image }}
{{- with .spec.imagePullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
command: [etcdctl]
args:
{{- range .command }}
- {{ . | quote }}
{{- end }}
env:
# What etcd before 3.4 does not take for granted.
- name: ETCDCTL_API
  value: "3"
resources:
  requests:
    cpu: 10m
    memory: 32Mi
  limits:
    memory: 128Mi
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- if .tls }}
volumeMounts:
- name: tls
  mountPath: /tls
  readOnly: true
{{- end }}
{{- end -}}
