//! What counts of a StatefulSet that is stored.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Container, PersistentVolumeClaim, PodSpec, PodTemplateSpec},
};

use super::{
    image::OperatorImage,
    labels::{ETCD, INSTALL, Map},
    spec_hash::{ANNOTATION_SPEC_HASH, RestartRequests},
};
use etcd_operator_api::names::{
    ANNOTATION_KUBECTL_RESTART, ANNOTATION_RESTART, ANNOTATION_RESTARTED_AT, ANNOTATION_VERSION,
};

/// The annotation of the StatefulSet with the template as it was last applied, without what others added to it since.
const ANNOTATION_TEMPLATE: &str = "etcd.database.coreos.com/template";

/// The pod template and the claim templates of the stored StatefulSet, without what others added to the pod template.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTemplates {
    template: PodTemplateSpec,
    claims: Option<Vec<PersistentVolumeClaim>>,
    /// When `kubectl rollout restart` was last asked for it, as it wrote that.
    restarted_at: Option<String>,
}

/// There is no number in it that would differ from itself. Of the very same one this spares the comparison.
impl Eq for StoredTemplates {}

impl StoredTemplates {
    /// Reads a StatefulSet. The pod template is the one in its annotation, as the operator applied it; without one, its
    /// own.
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

    /// The pod template of a StatefulSet that was deleted, from the text that the status keeps. `None` if it cannot be
    /// parsed. The claim templates are unknown then.
    pub fn parse(template: &str) -> Option<Self> {
        Some(Self {
            template: serde_json::from_str(template).ok()?,
            claims: None,
            restarted_at: None,
        })
    }

    /// The same StatefulSet with another pod template, from its text. `None` if it cannot be parsed.
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

    /// The pod template as text, from which [`Self::parse`] reads it.
    pub fn text(&self) -> String {
        text(&self.template)
    }

    /// The spec hash that the pod template was made with; `None` if it has none.
    pub fn spec_hash(&self) -> Option<&str> {
        annotation(&self.template, ANNOTATION_SPEC_HASH)
    }

    /// The version of etcd that the pod template names; none if it names none.
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

    /// The quota in bytes that the pod template gives etcd; `None` where it names none and etcd's default applies.
    pub fn quota(&self) -> Option<u64> {
        number(etcd_container(&self.template)?, "--quota-backend-bytes")
    }

    /// After how many log entries members of this template take a snapshot of the log; `None` where it does not say.
    pub fn snapshot_count(&self) -> Option<u64> {
        snapshot_count(etcd_container(&self.template)?)
    }

    /// The image of etcd in the template.
    pub fn etcd_image(&self) -> Option<&str> {
        etcd_container(&self.template)?.image.as_deref()
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

    /// The claim templates, which can never change; `None` if the StatefulSet was deleted.
    pub(super) fn claims(&self) -> Option<&[PersistentVolumeClaim]> {
        self.claims.as_deref()
    }

    /// The spec of its pods.
    pub fn pod(&self) -> Option<&PodSpec> {
        self.template.spec.as_ref()
    }
}

pub(super) fn annotation<'a>(template: &'a PodTemplateSpec, key: &str) -> Option<&'a str> {
    let annotations = template.metadata.as_ref()?.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

pub(super) fn etcd_container(template: &PodTemplateSpec) -> Option<&Container> {
    let mut containers = template.spec.iter().flat_map(|spec| &spec.containers);
    containers.find(|container| container.name == ETCD)
}

/// The template as an annotation.
pub(super) fn template_annotation(template: &PodTemplateSpec) -> Map {
    Map::from([(ANNOTATION_TEMPLATE.to_owned(), text(template))])
}

fn text(template: &PodTemplateSpec) -> String {
    serde_json::to_string(template).expect("a template is JSON")
}

/// After how many log entries etcd takes a snapshot of the log in this container; `None` where its flags do not say.
pub fn snapshot_count(etcd: &Container) -> Option<u64> {
    number(etcd, "--snapshot-count")
}

fn number(etcd: &Container, flag: &str) -> Option<u64> {
    etcd_flags(etcd).get(flag).copied().flatten()?.parse().ok()
}

/// The flags of etcd in a container's command, after the separator `--`. The value is `None` for a flag without `=`.
pub(super) fn etcd_flags(container: &Container) -> BTreeMap<&str, Option<&str>> {
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
