{{- /* What the example is made of, as one YAML object; empty where none is wanted. */}}
{{- define "etcd-operator.example" -}}
{{- $settings := include "etcd-operator.settings" . | fromYaml -}}
{{- $values := .Values.etcdCluster -}}
{{- $scope := $settings.scope -}}
{{- if and $settings.backup (not $settings.cluster) (not .Values.etcdBackup.spec.etcdCluster) (not .Values.etcdBackup.spec.etcdEndpoints) -}}
{{- fail "etcdBackup.create: there is no cluster to back up; set etcdCluster.create to true, or name one in etcdBackup.spec.etcdCluster" -}}
{{- end -}}
{{- /* Where the definitions come with this very release, helm cannot make objects of theirs yet: the next upgrade can. */ -}}
{{- $group := "etcd.database.coreos.com/v1beta2" -}}
{{- $known := and (.Capabilities.APIVersions.Has (printf "%s/EtcdCluster" $group)) (.Capabilities.APIVersions.Has (printf "%s/EtcdBackup" $group)) -}}
{{- if and (or $settings.cluster $settings.backup) (not $known) (not .Values.crds.install) -}}
{{- fail "etcdCluster.create and etcdBackup.create need the CustomResourceDefinitions: set crds.install to true, or install them first" -}}
{{- end -}}
{{- if and $settings.backup (eq (toString .Values.etcdBackup.spec.deletionPolicy) "Delete") -}}
{{- fail "etcdBackup.spec.deletionPolicy: Delete needs an operator that outlives the EtcdBackup, and this one goes with the release; take Retain, or write an EtcdBackup of your own" -}}
{{- end -}}
{{- if and $settings.backup (not .Values.etcdBackup.spec.storageType) -}}
{{- fail "etcdBackup.spec.storageType must say where backups go: S3, ABS, GCS, OSS or Local, beside the block of that name; for example: etcdBackup.spec.storageType=Local,etcdBackup.spec.local.persistentVolumeClaim=backups" -}}
{{- end -}}
{{- $namespace := include "etcd-operator.namespace" . -}}
{{- if and $scope.namespaces (not (has $namespace $scope.namespaces)) -}}
{{- $namespace = first $scope.namespaces -}}
{{- end -}}
{{- $annotations := deepCopy $values.annotations -}}
{{- if and $scope.clusterWide $scope.requireAnnotation -}}
{{- $_ := set $annotations "etcd.database.coreos.com/scope" "clusterwide" -}}
{{- end -}}
{{- $old := default dict $values.image -}}
{{- $spec := dict "size" $values.size "version" (include "etcd-operator.etcdVersion" .) -}}
{{- with default $values.repository $old.repository -}}{{- $_ := set $spec "repository" . -}}{{- end -}}
{{- with $old.pullPolicy -}}{{- $_ := set $spec "imagePullPolicy" . -}}{{- end -}}
{{- with $values.storage -}}{{- $_ := set $spec "storage" . -}}{{- end -}}
{{- with $values.pod -}}{{- $_ := set $spec "pod" . -}}{{- end -}}
{{- if $values.enableTLS -}}{{- $_ := set $spec "TLS" $values.tls -}}{{- end -}}
{{- with $settings.imagePullSecrets -}}{{- $_ := set $spec "imagePullSecrets" . -}}{{- end -}}
{{- $spec = mergeOverwrite $spec (deepCopy $values.spec) -}}
{{- $backup := deepCopy .Values.etcdBackup.spec -}}
{{- if not (or $backup.etcdCluster $backup.etcdEndpoints) -}}
{{- $_ := set $backup "etcdCluster" (dict "name" $values.name) -}}
{{- end -}}
{{ toYaml (dict "cluster" (and $settings.cluster $known) "backup" (and $settings.backup $known) "waits" (and (or $settings.cluster $settings.backup) (not $known)) "namespace" $namespace "annotations" $annotations "spec" $spec "backupName" (default $values.name .Values.etcdBackup.name) "backupSpec" $backup) }}
{{- end -}}
