//! Which pod template the StatefulSet gets: the one that is asked for, or the one it has.
//!
//! A pod that somebody deletes is made from the template of that moment. So the template moves only when its gate has
//! passed, and never merely because another operator runs: its image may not know what the new one would ask of it, and its
//! repository of etcd images may lack the one that members run.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Container, PersistentVolumeClaim, PodSpec, PodTemplateSpec},
};

use super::{
    BuildInputs,
    container::{ETCD, INCARNATION, INSTALL},
    image::OperatorImage,
    labels::Map,
    spec_hash::{ANNOTATION_SPEC_HASH, RestartRequests},
};
use etcd_operator_api::names::{
    ANNOTATION_KUBECTL_RESTART, ANNOTATION_RESTART, ANNOTATION_RESTARTED_AT, ANNOTATION_VERSION,
};

/// The annotation of the StatefulSet with the template as it was last applied, without what others added to it since.
const ANNOTATION_TEMPLATE: &str = "etcd.database.coreos.com/template";

/// What counts of a StatefulSet that is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTemplates {
    template: PodTemplateSpec,
    claims: Option<Vec<PersistentVolumeClaim>>,
    /// When `kubectl rollout restart` was last asked for it, as it wrote that.
    restarted_at: Option<String>,
}

/// There is no number in it that would differ from itself. Of the very same one this spares the comparison.
impl Eq for StoredTemplates {}

/// Why the pod template is not the desired one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingChange {
    /// The spec differs from what the members run, in these settings.
    Spec(Vec<String>),
    /// Only the operator's own image differs, or the repository of the default etcd image. Both change with the next change of
    /// the spec.
    Operator,
}

impl StoredTemplates {
    /// What counts of this StatefulSet.
    pub fn read(set: &StatefulSet) -> Self {
        let applied = set
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| serde_json::from_str(annotations.get(ANNOTATION_TEMPLATE)?).ok());
        let claims = set.spec.volume_claim_templates.clone().unwrap_or_default();
        let without_status = |claim| PersistentVolumeClaim {
            status: None,
            ..claim
        };
        Self {
            restarted_at: annotation(&set.spec.template, ANNOTATION_KUBECTL_RESTART).map(str::to_owned),
            template: applied.unwrap_or_else(|| set.spec.template.clone()),
            claims: Some(claims.into_iter().map(without_status).collect()),
        }
    }

    /// What counts of a StatefulSet that somebody deleted, from what was kept of it.
    pub fn parse(template: &str) -> Option<Self> {
        Some(Self {
            template: serde_json::from_str(template).ok()?,
            claims: None,
            restarted_at: None,
        })
    }

    /// The same StatefulSet with a template that was kept.
    pub fn with_template(&self, template: &str) -> Option<Self> {
        Some(Self {
            template: serde_json::from_str(template).ok()?,
            ..self.clone()
        })
    }

    /// The template.
    pub(super) fn template(&self) -> &PodTemplateSpec {
        &self.template
    }

    /// The template as it is kept.
    pub fn text(&self) -> String {
        text(&self.template)
    }

    /// The hash of the intent that the template was made from.
    pub fn spec_hash(&self) -> Option<&str> {
        annotation(&self.template, ANNOTATION_SPEC_HASH)
    }

    /// The version of etcd in the template.
    pub fn version(&self) -> Option<&str> {
        annotation(&self.template, ANNOTATION_VERSION)
    }

    /// The requests to restart members that the template was made for.
    pub fn restart_requests(&self) -> RestartRequests {
        let of_template = |key| annotation(&self.template, key).map(str::to_owned);
        RestartRequests {
            annotated: of_template(ANNOTATION_RESTART),
            by_kubectl: of_template(ANNOTATION_RESTARTED_AT),
        }
    }

    /// When `kubectl rollout restart` was last asked for, as it wrote that.
    pub fn kubectl_restart(&self) -> Option<&str> {
        self.restarted_at.as_deref()
    }

    /// The size that the template's members may let their databases grow to, where it says so.
    pub fn quota(&self) -> Option<u64> {
        etcd_flags(etcd_container(&self.template)?)
            .get("--quota-backend-bytes")
            .copied()
            .flatten()?
            .parse()
            .ok()
    }

    /// The image of the operator in the template.
    pub fn operator_image(&self) -> Option<OperatorImage> {
        let containers = self.template.spec.as_ref()?.init_containers.as_ref()?;
        let install = containers.iter().find(|container| container.name == INSTALL)?;
        install.image.as_ref()?.parse().ok()
    }

    /// Whether the template's members speak TLS with one another.
    pub fn has_secure_peers(&self) -> bool {
        self.advertises("--initial-advertise-peer-urls=https://")
    }

    /// Whether the template's members speak TLS with clients.
    pub fn has_secure_clients(&self) -> bool {
        self.advertises("--advertise-client-urls=https://")
    }

    fn advertises(&self, flag: &str) -> bool {
        let etcd = etcd_container(&self.template);
        let mut words = etcd.into_iter().flat_map(|etcd| etcd.command.iter().flatten());
        words.any(|word| word.starts_with(flag))
    }

    /// The claims it makes, where there is one: they can never change.
    pub(super) fn claims(&self) -> Option<&[PersistentVolumeClaim]> {
        self.claims.as_deref()
    }

    /// Its pods.
    pub fn pod(&self) -> Option<&PodSpec> {
        self.template.spec.as_ref()
    }
}

fn annotation<'a>(template: &'a PodTemplateSpec, key: &str) -> Option<&'a str> {
    let annotations = template.metadata.as_ref()?.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

fn etcd_container(template: &PodTemplateSpec) -> Option<&Container> {
    let mut containers = template.spec.iter().flat_map(|spec| &spec.containers);
    containers.find(|container| container.name == ETCD)
}

fn etcd_image(template: &PodTemplateSpec) -> Option<&str> {
    etcd_container(template)?.image.as_deref()
}

/// The template as an annotation.
pub(super) fn template_annotation(template: &PodTemplateSpec) -> Map {
    Map::from([(ANNOTATION_TEMPLATE.to_owned(), text(template))])
}

fn text(template: &PodTemplateSpec) -> String {
    serde_json::to_string(template).expect("a template is JSON")
}

/// The template the StatefulSet gets.
pub(super) fn choose_template(
    wanted: PodTemplateSpec,
    inputs: &BuildInputs,
) -> (PodTemplateSpec, Option<PendingChange>) {
    let Some(stored) = &inputs.stored else {
        return (wanted, None);
    };
    let is_changed = annotation(&wanted, ANNOTATION_SPEC_HASH) != stored.spec_hash();
    let pending = match (is_changed, inputs.may_update_template && !inputs.is_restoring) {
        (true, true) => return (wanted, None),
        (true, false) => PendingChange::Spec(changed_settings(&stored.template, &wanted)),
        (false, _)
            if stored.operator_image().as_ref() == Some(&inputs.operator_image)
                && etcd_image(&stored.template) == etcd_image(&wanted) =>
        {
            return (wanted, None);
        }
        (false, _) => PendingChange::Operator,
    };
    (
        keep_stored_template(
            stored.template.clone(),
            wanted,
            inputs.state_annotations.incarnation,
        ),
        Some(pending),
    )
}

/// The settings in which two pod templates differ, in the words of the spec and as flags of etcd.
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

/// The flags of etcd in a container's command, which follow the separator.
fn etcd_flags(container: &Container) -> BTreeMap<&str, Option<&str>> {
    let words = container
        .command
        .iter()
        .flatten()
        .skip_while(|word| *word != "--");
    words
        .skip(1)
        .filter(|word| word.starts_with("--"))
        .map(|word| match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        })
        .collect()
}

/// The stored pod with what does not touch a running one: labels and annotations of the user, and the incarnation,
/// which moves for itself.
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
