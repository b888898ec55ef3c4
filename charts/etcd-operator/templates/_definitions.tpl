{{- /*
What is to be done about one CustomResourceDefinition: `install`, or why it is left as it is. It is looked at first:
another release may keep it, somebody may have applied it by hand, and a later version may have written it.
*/}}
{{- define "etcd-operator.definition" -}}
{{- $root := .root -}}
{{- $there := dict -}}
{{- if $root.Values.crds.install -}}
{{- $there = lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name -}}
{{- end -}}
{{- $marks := dict -}}
{{- if $there -}}
{{- $marks = default dict $there.metadata.annotations -}}
{{- end -}}
{{- $release := get $marks "meta.helm.sh/release-name" -}}
{{- $namespace := get $marks "meta.helm.sh/release-namespace" -}}
{{- $written := get $marks "etcd.database.coreos.com/chart-version" -}}
{{- if not $root.Values.crds.install -}}
crds.install is false
{{- else if not $there -}}
install
{{- else if not $release -}}
it was not installed by helm
{{- else if or (ne $release $root.Release.Name) (ne $namespace $root.Release.Namespace) -}}
release {{ $release }} in namespace {{ $namespace }} keeps it
{{- /* By order alone: a constraint leaves out versions before a release, or takes them for later ones. */ -}}
{{- else if and $written (gt ((semver $written).Compare (semver $root.Chart.Version)) 0) -}}
version {{ $written }} of the chart wrote it
{{- else -}}
install
{{- end -}}
{{- end -}}

{{- define "etcd-operator.definitions" -}}
etcdclusters.etcd.database.coreos.com etcdbackups.etcd.database.coreos.com etcdrestores.etcd.database.coreos.com
{{- end -}}
