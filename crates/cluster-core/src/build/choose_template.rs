//! Which pod template the StatefulSet gets: the one that is asked for, or the one it has.
//!
//! The StatefulSet controller creates each pod from the pod template as it is then, also one that a user has deleted. So the
//! template changes only after its gate has passed, and never merely because another version of the operator runs: the image in
//! the template may not know a flag of the new operator, and its repository of etcd images may lack the image that members run.

use std::collections::BTreeSet;

use etcd_operator_api::names::{ANNOTATION_RESTART, ANNOTATION_RESTARTED_AT, ANNOTATION_VERSION};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};

use super::{
    inputs::BuildInputs,
    labels::{ETCD, ETCD_MINOR, INCARNATION},
    spec_hash::ANNOTATION_SPEC_HASH,
    stored::{annotation, etcd_container, etcd_flags},
};

/// Why the pod template is not the desired one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingChange {
    /// The spec differs from what the members run, in these settings.
    Spec(Vec<String>),
    /// Only the operator's own image differs, or the repository of the default etcd image. Both change with the next change of
    /// the spec.
    Operator,
}

/// The template for the StatefulSet, and why it is not the wanted one; `None` if it is. With another spec hash than the
/// stored one, the wanted one is taken only if `may_update_template` is set. With the same, it is taken only if the
/// images are the same, too.
pub(super) fn choose_template(
    wanted: PodTemplateSpec,
    inputs: &BuildInputs,
) -> (PodTemplateSpec, Option<PendingChange>) {
    let Some(stored) = &inputs.stored else {
        return (wanted, None);
    };
    let is_changed = annotation(&wanted, ANNOTATION_SPEC_HASH) != stored.spec_hash();
    if is_changed && inputs.may_update_template {
        return (wanted, None);
    }
    let template = stored.template();
    let pending = if is_changed {
        PendingChange::Spec(changed_settings(&template, &wanted))
    } else if stored.operator_image() == Some(&inputs.operator_image)
        && stored.etcd_image() == etcd_image(&wanted)
    {
        return (keep_version_check(&template, wanted), None);
    } else {
        PendingChange::Operator
    };
    (
        keep_stored_template(template, wanted, inputs.state_annotations.incarnation),
        Some(pending),
    )
}

/// The wanted template, without the check of etcd's version where the stored one, from an earlier operator, has none: that comes
/// with the next change.
fn keep_version_check(stored: &PodTemplateSpec, mut wanted: PodTemplateSpec) -> PodTemplateSpec {
    let command = etcd_container(stored).and_then(|etcd| etcd.command.as_ref());
    let mut own = command.into_iter().flatten().take_while(|word| *word != "--");
    if own.any(|word| word.starts_with(ETCD_MINOR)) {
        return wanted;
    }
    let containers = wanted.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for etcd in containers.filter(|container| container.name == ETCD) {
        let command = etcd.command.iter_mut();
        command.for_each(|words| words.retain(|word| !word.starts_with(ETCD_MINOR)));
    }
    wanted
}

fn etcd_image(template: &PodTemplateSpec) -> Option<&str> {
    etcd_container(template)?.image.as_deref()
}

/// The settings in which two pod templates differ, by fields of the spec and flags of etcd. Never empty.
fn changed_settings(stored: &PodTemplateSpec, wanted: &PodTemplateSpec) -> Vec<String> {
    let (no_pod, no_container) = (PodSpec::default(), Container::default());
    let pod_was = stored.spec.as_ref().unwrap_or(&no_pod);
    let pod_is = wanted.spec.as_ref().unwrap_or(&no_pod);
    let was = etcd_container(stored).unwrap_or(&no_container);
    let is = etcd_container(wanted).unwrap_or(&no_container);
    let version = |template| annotation(template, ANNOTATION_VERSION);
    let is_other_version = version(stored) != version(wanted);
    let mut changed: Vec<String> = [
        ("version", is_other_version),
        ("image", was.image != is.image && !is_other_version),
        ("imagePullPolicy", was.image_pull_policy != is.image_pull_policy),
        (
            "imagePullSecrets",
            pod_was.image_pull_secrets != pod_is.image_pull_secrets,
        ),
        ("pod.resources", was.resources != is.resources),
        ("pod.etcdEnv", was.env != is.env),
        (
            "pod.securityContext",
            pod_was.security_context != pod_is.security_context,
        ),
        ("pod.nodeSelector", pod_was.node_selector != pod_is.node_selector),
        ("pod.affinity", pod_was.affinity != pod_is.affinity),
        ("pod.tolerations", pod_was.tolerations != pod_is.tolerations),
        (
            "pod.topologySpreadConstraints",
            pod_was.topology_spread_constraints != pod_is.topology_spread_constraints,
        ),
        (
            "pod.priorityClassName",
            pod_was.priority_class_name != pod_is.priority_class_name,
        ),
        (
            "pod.serviceAccountName",
            pod_was.service_account_name != pod_is.service_account_name,
        ),
        (
            "pod.terminationGracePeriodSeconds",
            pod_was.termination_grace_period_seconds != pod_is.termination_grace_period_seconds,
        ),
        ("TLS or storage", pod_was.volumes != pod_is.volumes),
    ]
    .into_iter()
    .filter(|(_, is_changed)| *is_changed)
    .map(|(name, _)| name.to_owned())
    .collect();
    let (flags_were, flags_are) = (etcd_flags(was), etcd_flags(is));
    let names: BTreeSet<&&str> = flags_were.keys().chain(flags_are.keys()).collect();
    // Another version has other flags of its own.
    let flags = names
        .into_iter()
        .filter(|name| !is_other_version && flags_were.get(*name) != flags_are.get(*name));
    changed.extend(flags.map(|name| (*name).to_owned()));
    if changed.is_empty() {
        changed.push("pod.patch or another pod setting".to_owned());
    }
    changed
}

/// The stored template with what may change without a restart: the user's labels and annotations, and the incarnation,
/// by which pods that are created from now on judge their volumes.
fn keep_stored_template(
    mut stored: PodTemplateSpec,
    wanted: PodTemplateSpec,
    incarnation: i64,
) -> PodTemplateSpec {
    let before = stored.metadata.take().unwrap_or_default();
    let mut metadata = wanted.metadata.unwrap_or_default();
    for key in [
        ANNOTATION_SPEC_HASH,
        ANNOTATION_VERSION,
        ANNOTATION_RESTART,
        ANNOTATION_RESTARTED_AT,
    ] {
        let annotations = metadata.annotations.get_or_insert_default();
        match before.annotations.as_ref().and_then(|before| before.get(key)) {
            Some(value) => annotations.insert(key.to_owned(), value.clone()),
            None => annotations.remove(key),
        };
    }
    stored.metadata = Some(metadata);
    let containers = stored.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for etcd in containers.filter(|container| container.name == ETCD) {
        // What follows the separator is etcd's.
        let own = etcd.command.iter_mut().flatten().take_while(|word| *word != "--");
        for word in own.filter(|word| word.starts_with(INCARNATION)) {
            *word = format!("{INCARNATION}{incarnation}");
        }
    }
    stored
}
