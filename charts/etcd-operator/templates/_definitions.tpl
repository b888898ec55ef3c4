{{- /*
What is to be done about one CustomResourceDefinition: `install`, or why it is left as it is. It is looked at first:
another release may keep it, a user may have applied it, and a later version may have written it.
*/}}
{{- define "etcd-operator.definition" -}}
{{- $root := .root -}}
{{- $there := dict -}}
{{- $crds := $root.Values.crds -}}
{{- /* Values of a release of before may not have it. */ -}}
{{- $is_guarded := and $root.Release.IsUpgrade (not (and (hasKey $crds "guard") (not $crds.guard))) -}}
{{- if or $crds.install $is_guarded -}}
{{- $there = lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name -}}
{{- end -}}
{{- $marks := dict -}}
{{- if $there -}}
{{- $marks = default dict $there.metadata.annotations -}}
{{- end -}}
{{- $is_kept := eq (get $marks "helm.sh/resource-policy") "keep" -}}
{{- $release := get $marks "meta.helm.sh/release-name" -}}
{{- $namespace := get $marks "meta.helm.sh/release-namespace" -}}
{{- $written := get $marks "etcd.database.coreos.com/chart-version" -}}
{{- $what := "install" -}}
{{- if not $crds.install -}}
{{- $what = "crds.install is false" -}}
{{- else if not $there -}}
{{- $what = "install" -}}
{{- else if not $release -}}
{{- $what = "it was not installed by helm" -}}
{{- else if or (ne $release $root.Release.Name) (ne $namespace $root.Release.Namespace) -}}
{{- $what = printf "release %s in namespace %s keeps it" $release $namespace -}}
{{- /* By order alone: a constraint leaves out versions before a release, or takes them for later ones. */ -}}
{{- else if and $written (gt ((semver $written).Compare (semver $root.Chart.Version)) 0) -}}
{{- $what = printf "version %s of the chart wrote it" $written -}}
{{- end -}}
{{- /* Helm deletes what it once wrote and no longer renders; with a definition it would delete every cluster. */ -}}
{{- if and $there $root.Release.IsUpgrade (ne $what "install") (not $is_kept) -}}
{{- fail (printf "the CustomResourceDefinition %s has lost the annotation that keeps it: Helm could delete it now, with every object of its kind. First run: kubectl annotate crd %s helm.sh/resource-policy=keep" .name .name) -}}
{{- end -}}
{{- $what -}}
{{- end -}}

{{- define "etcd-operator.definitions" -}}
etcdclusters.etcd.database.coreos.com etcdbackups.etcd.database.coreos.com etcdrestores.etcd.database.coreos.com
{{- end -}}
