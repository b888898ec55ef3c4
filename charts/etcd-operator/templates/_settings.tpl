{{- /*
The values that the chart of the older operator had as well, under its names or ours, as one YAML object with our names.
Its names win where they are given: nobody writes them but who comes from there.
*/}}
{{- define "etcd-operator.settings" -}}
{{- $settings := pick .Values "replicas" "resources" "nodeSelector" "tolerations" "podAnnotations" "priorityClassName" "podSecurityContext" | deepCopy -}}
{{- $_ := set $settings "scope" (deepCopy .Values.scope) -}}
{{- $_ := set $settings "serviceAccount" (deepCopy .Values.serviceAccount) -}}
{{- $_ := set $settings "cluster" .Values.etcdCluster.create -}}
{{- $_ := set $settings "backup" .Values.etcdBackup.create -}}
{{- $old := default dict .Values.etcdOperator -}}
{{- range $theirs, $ours := dict "replicaCount" "replicas" "nodeSelector" "nodeSelector" "tolerations" "tolerations" "podAnnotations" "podAnnotations" "priorityClassName" "priorityClassName" "securityContext" "podSecurityContext" -}}
{{- if hasKey $old $theirs -}}
{{- $_ := set $settings $ours (get $old $theirs) -}}
{{- end -}}
{{- end -}}
{{- with $old.resources -}}
{{- $_ := set $settings "resources" (dict "requests" . "limits" .) -}}
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
{{- if and $settings.scope.clusterWide $settings.scope.namespaces -}}
{{- fail "scope.clusterWide watches all namespaces: leave scope.namespaces empty, or set scope.clusterWide to false" -}}
{{- end -}}
{{ toYaml $settings }}
{{- end -}}
