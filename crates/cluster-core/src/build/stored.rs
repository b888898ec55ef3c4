//! What counts of a StatefulSet that is stored.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Container, PersistentVolumeClaim, PodTemplateSpec},
};
use serde::Serialize;

use super::{
    image::OperatorImage,
    labels::{ETCD, INSTALL, Map},
    probes::has_single_success_probe,
    spec_hash::{ANNOTATION_SPEC_HASH, RestartRequests},
};
use etcd_operator_api::names::{
    ANNOTATION_KUBECTL_RESTART, ANNOTATION_RESTART, ANNOTATION_RESTARTED_AT, ANNOTATION_VERSION,
};

/// The annotation of the StatefulSet with the template as it was last applied, without what others added to it since.
const ANNOTATION_TEMPLATE: &str = "etcd.database.coreos.com/template";

/// The flag of etcd that says after how many log entries it takes a snapshot of the log.
pub(crate) const SNAPSHOT_COUNT: &str = "--snapshot-count";

/// The pod template and the claim templates of the stored StatefulSet, without what others added to the pod template.
///
/// Both are kept as JSON, which needs a quarter of the memory of parsed templates. They are parsed again only to build
/// objects. What every reconcile asks of the pod template is read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTemplates {
    template: Box<str>,
    claims: Option<Box<str>>,
    /// When `kubectl rollout restart` was last asked for it, as it wrote that.
    restarted_at: Option<String>,
    spec_hash: Option<String>,
    version: Option<String>,
    restart_requests: RestartRequests,
    quota: Option<u64>,
    snapshot_count: Option<u64>,
    etcd_image: Option<String>,
    operator_image: Option<OperatorImage>,
    has_secure_peers: bool,
    has_secure_clients: bool,
    has_single_success_probe: bool,
}

impl StoredTemplates {
    /// Reads a StatefulSet. The pod template is the one in its annotation, as the operator applied it; without one, its
    /// own.
    pub fn read(set: &StatefulSet) -> Self {
        let applied = applied_template(set);
        let claims = set.spec.volume_claim_templates.clone().unwrap_or_default();
        let without_status = |claim| PersistentVolumeClaim {
            status: None,
            ..claim
        };
        let claims: Vec<_> = claims.into_iter().map(without_status).collect();
        Self {
            claims: Some(json(&claims).into()),
            restarted_at: annotation(&set.spec.template, ANNOTATION_KUBECTL_RESTART).map(str::to_owned),
            ..Self::of_template(applied.as_ref().unwrap_or(&set.spec.template))
        }
    }

    /// The pod template of a StatefulSet that was deleted, from the text that the status keeps. `None` if it cannot be
    /// parsed. The claim templates are unknown then.
    pub fn parse(template: &str) -> Option<Self> {
        serde_json::from_str(template)
            .ok()
            .map(|template| Self::of_template(&template))
    }

    /// The same StatefulSet with another pod template, from its text. `None` if it cannot be parsed.
    pub fn with_template(&self, template: &str) -> Option<Self> {
        Some(Self {
            claims: self.claims.clone(),
            restarted_at: self.restarted_at.clone(),
            ..Self::parse(template)?
        })
    }

    fn of_template(template: &PodTemplateSpec) -> Self {
        let etcd = etcd_container(template);
        let of_template = |key| annotation(template, key).map(str::to_owned);
        let advertises = |flag: &str| {
            let mut words = etcd.into_iter().flat_map(|etcd| etcd.command.iter().flatten());
            words.any(|word| word.starts_with(flag))
        };
        let spec = template.spec.as_ref();
        let mut init_containers = spec
            .into_iter()
            .flat_map(|spec| spec.init_containers.iter().flatten());
        let install = init_containers.find(|container| container.name == INSTALL);
        Self {
            template: json(template).into(),
            claims: None,
            restarted_at: None,
            spec_hash: of_template(ANNOTATION_SPEC_HASH),
            version: of_template(ANNOTATION_VERSION),
            restart_requests: RestartRequests {
                annotated: of_template(ANNOTATION_RESTART),
                by_kubectl: of_template(ANNOTATION_RESTARTED_AT),
            },
            quota: etcd.and_then(|etcd| number(etcd, "--quota-backend-bytes")),
            snapshot_count: etcd.and_then(snapshot_count),
            etcd_image: etcd.and_then(|etcd| etcd.image.clone()),
            operator_image: install.and_then(|install| install.image.as_ref()?.parse().ok()),
            has_secure_peers: advertises("--initial-advertise-peer-urls=https://"),
            has_secure_clients: advertises("--advertise-client-urls=https://"),
            has_single_success_probe: spec.is_some_and(has_single_success_probe),
        }
    }

    /// The template, parsed.
    pub(super) fn template(&self) -> PodTemplateSpec {
        serde_json::from_str(&self.template).expect("the JSON of a template")
    }

    /// The pod template as text, from which [`Self::parse`] reads it.
    pub fn text(&self) -> String {
        self.template.to_string()
    }

    /// The spec hash that the pod template was made with; `None` if it has none.
    pub fn spec_hash(&self) -> Option<&str> {
        self.spec_hash.as_deref()
    }

    /// The version of etcd that the pod template names; none if it names none.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The requests to restart members that the template was made for.
    pub fn restart_requests(&self) -> &RestartRequests {
        &self.restart_requests
    }

    /// When `kubectl rollout restart` was last asked for, as it wrote that.
    pub fn kubectl_restart(&self) -> Option<&str> {
        self.restarted_at.as_deref()
    }

    /// The quota in bytes that the pod template gives etcd; `None` where it names none and etcd's default applies.
    pub fn quota(&self) -> Option<u64> {
        self.quota
    }

    /// After how many log entries members of this template take a snapshot of the log; `None` where it does not say.
    pub fn snapshot_count(&self) -> Option<u64> {
        self.snapshot_count
    }

    /// The image of etcd in the template.
    pub fn etcd_image(&self) -> Option<&str> {
        self.etcd_image.as_deref()
    }

    /// The image of the operator in the template.
    pub fn operator_image(&self) -> Option<&OperatorImage> {
        self.operator_image.as_ref()
    }

    /// Whether the template's members speak TLS with one another.
    pub fn has_secure_peers(&self) -> bool {
        self.has_secure_peers
    }

    /// Whether the template's members speak TLS with clients.
    pub fn has_secure_clients(&self) -> bool {
        self.has_secure_clients
    }

    /// Whether the template's pods are ready after one success of their readiness probe.
    pub fn has_single_success_probe(&self) -> bool {
        self.has_single_success_probe
    }

    /// The claim templates, which can never change; `None` if the StatefulSet was deleted.
    pub(super) fn claims(&self) -> Option<Vec<PersistentVolumeClaim>> {
        let claims = self.claims.as_deref()?;
        Some(serde_json::from_str(claims).expect("the JSON of claims"))
    }
}

/// The pod template of a StatefulSet as the operator applied it, from its annotation; `None` without one that can be parsed.
pub fn applied_template(set: &StatefulSet) -> Option<PodTemplateSpec> {
    let annotations = set.metadata.annotations.as_ref()?;
    serde_json::from_str(annotations.get(ANNOTATION_TEMPLATE)?).ok()
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
    Map::from([(ANNOTATION_TEMPLATE.to_owned(), json(template))])
}

fn json(templates: &impl Serialize) -> String {
    serde_json::to_string(templates).expect("templates are JSON")
}

/// After how many log entries etcd takes a snapshot of the log in this container; `None` where its flags do not say.
pub fn snapshot_count(etcd: &Container) -> Option<u64> {
    number(etcd, SNAPSHOT_COUNT)
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
