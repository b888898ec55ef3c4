{{- /*
The values that the chart of the older operator had as well, under its names or ours, as one YAML object with our names.
Its names win where they are given: only users of that chart set them. What is empty is not given: that chart's
own values are empty in places where ours are not, and for good reason. Nor are numbers of a probe that is not enabled: they
counted for nothing there.
*/}}
{{- define "etcd-operator.settings" -}}
{{- $settings := pick .Values "replicas" "resources" "nodeSelector" "tolerations" "podAnnotations" "priorityClassName" "podSecurityContext" "livenessProbe" "readinessProbe" | deepCopy -}}
{{- $_ := set $settings "pullPolicy" .Values.image.pullPolicy -}}
{{- $_ := set $settings "scope" (deepCopy .Values.scope) -}}
{{- $_ := set $settings "serviceAccount" (deepCopy .Values.serviceAccount) -}}
{{- $_ := set $settings "cluster" .Values.etcdCluster.create -}}
{{- $_ := set $settings "backup" .Values.etcdBackup.create -}}
{{- $old := default dict .Values.etcdOperator -}}
{{- if hasKey $old "replicaCount" -}}
{{- $_ := set $settings "replicas" $old.replicaCount -}}
{{- end -}}
{{- if not (kindIs "invalid" .Values.replicaCount) -}}
{{- /* A template cannot tell the default of replicas, 1, from a 1 that is given. */ -}}
{{- $others := dict "replicas" (eq (int .Values.replicas) 1 | ternary .Values.replicaCount .Values.replicas) "etcdOperator.replicaCount" (hasKey $old "replicaCount" | ternary $old.replicaCount .Values.replicaCount) -}}
{{- range $name, $count := $others -}}
{{- if ne (int $count) (int $.Values.replicaCount) -}}
{{- fail (printf "%s is %d and replicaCount %d: set one of them" $name (int $count) (int $.Values.replicaCount)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $settings "replicas" .Values.replicaCount -}}
{{- end -}}
{{- range $theirs, $ours := dict "nodeSelector" "nodeSelector" "tolerations" "tolerations" "podAnnotations" "podAnnotations" "priorityClassName" "priorityClassName" "securityContext" "podSecurityContext" -}}
{{- with get $old $theirs -}}
{{- $_ := set $settings $ours . -}}
{{- end -}}
{{- end -}}
{{- with $old.resources -}}
{{- $_ := set $settings "resources" (dict "requests" . "limits" .) -}}
{{- end -}}
{{- with (default dict $old.image).pullPolicy -}}
{{- $_ := set $settings "pullPolicy" . -}}
{{- end -}}
{{- range $name := list "livenessProbe" "readinessProbe" -}}
{{- with get $old $name -}}
{{- if .enabled -}}
{{- $probe := get $settings $name -}}
{{- range $key, $value := omit . "enabled" -}}
{{- $_ := set $probe $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default dict $old.commandArgs) "cluster-wide" -}}
{{- $_ := set $settings.scope "clusterWide" (eq (toString (get $old.commandArgs "cluster-wide")) "true") -}}
{{- end -}}
{{- with .Values.serviceAccount.etcdOperatorServiceAccount -}}
{{- $_ := set $settings "serviceAccount" (mergeOverwrite $settings.serviceAccount .) -}}
{{- end -}}
{{- with .Values.customResources -}}
{{- if .createEtcdClusterCRD -}}{{- $_ := set $settings "cluster" true -}}{{- end -}}
{{- if .createBackupCRD -}}{{- $_ := set $settings "backup" true -}}{{- end -}}
{{- end -}}
{{- $secrets := list -}}
{{- range default (default dict .Values.global).imagePullSecrets .Values.imagePullSecrets -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- $_ := set $settings "imagePullSecrets" $secrets -}}
{{- if and $settings.scope.clusterWide $settings.scope.namespaces -}}
{{- fail "scope.clusterWide watches all namespaces: leave scope.namespaces empty, or set scope.clusterWide to false" -}}
{{- end -}}
{{ toYaml $settings }}
{{- end -}}

{{- /*
The version of the example's etcd. The older chart had a tag beside it that it did not use. A tag without a version counts as
the version; a tag that differs from the version is refused.
*/}}
{{- define "etcd-operator.etcdVersion" -}}
{{- $version := toString .Values.etcdCluster.version | trimPrefix "v" -}}
{{- $tag := toString (default "" (default dict .Values.etcdCluster.image).tag) | trimPrefix "v" -}}
{{- if or (not $tag) (eq $tag $version) -}}
{{ .Values.etcdCluster.version }}
{{- else if eq $version (include "etcd-operator.etcdVersion.default" .) -}}
{{ $tag }}
{{- else -}}
{{- fail (printf "etcdCluster.version is %s and etcdCluster.image.tag %s: leave the tag out, or let both say the same" .Values.etcdCluster.version .Values.etcdCluster.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* What stands in values.yaml, which a template cannot tell from what is given. */}}
{{- define "etcd-operator.etcdVersion.default" -}}
3.6.16
{{- end -}}
