{{- /* The older chart's name of its operator was a part of its objects' names as well. */}}
{{- define "etcd-operator.name" -}}
{{- $given := default .Values.nameOverride (default dict .Values.etcdOperator).name -}}
{{ default (.Chart.Name | lower | replace "_" "-") $given | trunc 52 | trimSuffix "-" }}
{{- end -}}

{{- /* The name of everything the release makes; also of its lease, which names the installation. */}}
{{- define "etcd-operator.fullname" -}}
{{- $name := include "etcd-operator.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- /* Where the operator's own objects are. */}}
{{- define "etcd-operator.namespace" -}}
{{ default .Release.Namespace .Values.namespaceOverride }}
{{- end -}}

{{- define "etcd-operator.lease" -}}
{{ include "etcd-operator.fullname" . }}
{{- end -}}

{{- /*
Names that releases of several namespaces share a room for. Neither part has a colon in it, so that no two releases
come by the same name, as a-b and c would with a and b-c.
*/}}
{{- define "etcd-operator.clusterName" -}}
{{ printf "%s:%s" .Release.Namespace (include "etcd-operator.fullname" .) }}
{{- end -}}

{{- define "etcd-operator.selector" -}}
app.kubernetes.io/name: {{ include "etcd-operator.name" . | toYaml }}
app.kubernetes.io/instance: {{ .Release.Name | toYaml }}
{{- end -}}

{{- define "etcd-operator.labels" -}}
{{ include "etcd-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with include "etcd-operator.commonLabels" . | fromYaml }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* labels and commonLabels as one map. Values of an earlier release lack the latter. */}}
{{- define "etcd-operator.commonLabels" -}}
{{- $labels := deepCopy .Values.labels -}}
{{- range $name, $value := default dict .Values.commonLabels -}}
{{- if and (hasKey $labels $name) (ne (get $labels $name) $value) -}}
{{- fail (printf "labels and commonLabels give %s two values, %s and %s: set it in one of them" $name (get $labels $name) $value) -}}
{{- end -}}
{{- $_ := set $labels $name $value -}}
{{- end -}}
{{ toYaml $labels }}
{{- end -}}

{{- /* The labels of the operator's pods: podLabels before the others. */}}
{{- define "etcd-operator.podLabels" -}}
{{ toYaml (merge (dict) (default dict .Values.podLabels) (include "etcd-operator.labels" . | fromYaml)) }}
{{- end -}}

{{- /* env and extraEnv as one list, below `env`. */}}
{{- define "etcd-operator.env" -}}
{{- $env := list -}}
{{- $names := dict -}}
{{- range $value, $given := dict "env" .Values.env "extraEnv" .Values.extraEnv -}}
{{- range $given -}}
{{- if has .name (list "OPERATOR_IMAGE" "POD_NAME" "POD_NAMESPACE") -}}
{{- fail (printf "%s: %s is set by the chart; take it out" $value .name) -}}
{{- end -}}
{{- if hasPrefix "ETCD_OPERATOR_" .name -}}
{{- fail (printf "%s: %s sets a flag of the manager; set the chart's value for it, or the flag in extraArgs" $value .name) -}}
{{- end -}}
{{- if ne (default $value (get $names .name)) $value -}}
{{- fail (printf "env and extraEnv both set %s: set it in one of them" .name) -}}
{{- end -}}
{{- $_ := set $names .name $value -}}
{{- $env = append $env . -}}
{{- end -}}
{{- end -}}
{{ toYaml (dict "env" $env) }}
{{- end -}}

{{- /* extraArgs, unless one is a flag that the chart sets from another value. */}}
{{- define "etcd-operator.extraArgs" -}}
{{- $values := dict "--namespace" "namespaceOverride" "--cluster-wide" "scope.clusterWide" "--require-scope-annotation" "scope.requireAnnotation" "--watch-namespaces" "scope.namespaces" "--watch-nodes" "nodes.watch" "--lease-name" "fullnameOverride" "--concurrency" "concurrency" "--max-backup-jobs" "backups.maxJobs" "--max-concurrent-rollouts" "rollouts.maxConcurrent" "--intermediate-versions" "rollouts.intermediateVersions" "--log-format" "log.format" "--log-level" "log.level" "--operator-image" "image" "--etcd-repository" "etcdImage.repository" -}}
{{- range .Values.extraArgs -}}
{{- $flag := first (splitList "=" .) -}}
{{- if has $flag (list "--health-address" "--pod-name") -}}
{{- fail (printf "extraArgs: %s is set by the chart; take it out" $flag) -}}
{{- end -}}
{{- with get $values $flag -}}
{{- fail (printf "extraArgs: %s is set by the chart; use the value %s" $flag .) -}}
{{- end -}}
{{- if and (eq $flag "--leader-elect") (ne . "--leader-elect=true") -}}
{{- fail (printf "extraArgs: with %s two managers would write at once, also while the Deployment is updated; take it out" .) -}}
{{- end -}}
{{- end -}}
{{- with .Values.extraArgs -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- /* The operator's image: of its own pod, and where members' pods take a program from. */}}
{{- define "etcd-operator.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is not set; set it to the repository of the operator's image, for example: --set image.repository=registry.example.com/etcd-operator" -}}
{{- end -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- if .Values.image.digest -}}
{{ printf "%s:%s@%s" .Values.image.repository $tag .Values.image.digest }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository $tag }}
{{- end -}}
{{- end -}}

{{- define "etcd-operator.serviceAccount" -}}
{{- $account := (include "etcd-operator.settings" . | fromYaml).serviceAccount -}}
{{- if $account.create -}}
{{ default (include "etcd-operator.fullname" .) $account.name }}
{{- else -}}
{{ default "default" $account.name }}
{{- end -}}
{{- end -}}

{{- define "etcd-operator.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ include "etcd-operator.serviceAccount" . | toYaml }}
  namespace: {{ include "etcd-operator.namespace" . | toYaml }}
{{- end -}}

{{- /* "true" if nodes are watched, else nothing. */}}
{{- define "etcd-operator.watchesNodes" -}}
{{- if kindIs "bool" .Values.nodes.watch -}}
{{ ternary "true" "" .Values.nodes.watch }}
{{- else if (include "etcd-operator.settings" . | fromYaml).scope.clusterWide -}}
true
{{- end -}}
{{- end -}}
