//! Keeping the objects of a cluster as they should be. An object of a needed name that is somebody else's is never
//! touched; it is reported instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_api::{EtcdCluster, EtcdClusterStatus};
use etcd_operator_cluster_core::build::{
    self, BuildInputs, LiveMetadata, OperatorImage, PendingChange, StateAnnotations,
};
use etcd_operator_cluster_core::desired::Desired;
use etcd_operator_cluster_core::plan::{Plan, TemplateChange};
use etcd_operator_cluster_core::status::BackupFreshness;
use etcd_operator_runtime::apply::{Error, Wish};
use etcd_operator_runtime::drift::APPLIED;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;

use crate::observe::{Observation, is_own_set, is_owned, last_served_template};
use crate::reconcile::Deps;
use crate::reconcile::apply_objects::{ApplyError, ObjectWriter, foreign_object_message};

/// What is said of a volume that does not become what is asked for.
const CLAIM_FIELDS: &str = "spec.storage.size or spec.pod.labels (a StorageClass without allowVolumeExpansion grows no volume; to take a size back, remove spec.storage.size and set the former one again)";

/// The objects of a cluster, and the inputs that they were built from.
#[derive(Debug)]
pub struct DesiredObjects {
    build_inputs: BuildInputs,
    headless: Wish<Service>,
    client: Wish<Service>,
    /// The StatefulSet of the members.
    pub members: Wish<StatefulSet>,
    disruption: Option<Wish<PodDisruptionBudget>>,
    /// Why the pod template is not the one that is asked for.
    pub pending: Option<PendingChange>,
    live_metadata: LiveMetadata,
}

impl DesiredObjects {
    /// Builds the objects. Refusals say what of the spec cannot be built.
    pub fn build(desired: &Desired, build_inputs: BuildInputs) -> Result<Self, Vec<Refusal>> {
        let objects = build::build(desired, &build_inputs)?;
        Ok(Self {
            build_inputs,
            headless: Wish::from(&objects.headless),
            client: Wish::from(&objects.client),
            members: Wish::from(&objects.members),
            disruption: objects.disruption.as_ref().map(Wish::from),
            pending: objects.pending,
            live_metadata: objects.live_metadata,
        })
    }

    /// Whether these inputs give the same objects; the caller compares the spec.
    pub fn follows_from(&self, build_inputs: &BuildInputs) -> bool {
        self.build_inputs == *build_inputs
    }
}

/// The pending change of a cluster whose objects are left as they are: nothing is built to compare the settings with.
pub fn pending_change(observation: &Observation) -> Option<PendingChange> {
    let stored = observation.stored.as_ref()?;
    let is_changed = stored.spec_hash() != Some(observation.observed.wanted.spec_hash.as_str());
    is_changed.then(|| PendingChange::Spec(Vec::new()))
}

/// The pod template that the status keeps while the objects of a cluster are left as they are: that of the StatefulSet as soon as
/// the spec may ask for another one. If the StatefulSet is deleted meanwhile, its pods are re-created from this template.
pub fn template_left_alone(
    cluster: &EtcdCluster,
    observation: &Observation,
    plan: &Plan,
    may_differ: bool,
) -> Option<String> {
    if may_differ && observation.set.is_some() && plan.persisted.has_formed() {
        return observation.stored.as_ref().map(|stored| stored.text());
    }
    let status = cluster.status.as_ref();
    status.and_then(|status| status.applied_template.clone())
}

/// What the objects are built from besides the spec. `None` if the plan leaves them as they are.
pub fn build_inputs(
    plan: &Plan,
    observation: &Observation,
    status: Option<&EtcdClusterStatus>,
    (operator_image, default_repository): (&OperatorImage, &DefaultRepository),
) -> Option<BuildInputs> {
    let layout = plan.layout.as_ref()?;
    let observed = &observation.observed;
    let mut stored = observation.stored.clone();
    if layout.template == TemplateChange::ReturnToServed
        && let Some(served) = last_served_template(status)
    {
        stored = stored.map(|stored| stored.with_template(served).map_or(stored, Arc::new));
    }
    let voters = plan
        .persisted
        .members
        .iter()
        .filter(|(_, member)| member.is_voter);
    Some(BuildInputs {
        namespace: observed.namespace.clone(),
        cluster_uid: observed.uid.clone(),
        state_annotations: StateAnnotations {
            incarnation: layout.incarnation,
            cluster_id: plan.persisted.cluster,
            voters: layout
                .voter_ordinals
                .iter()
                .map(|ordinal| observed.name(*ordinal))
                .collect(),
            // How far each has come changes all the time, and no object says it.
            members: voters
                .map(|(ordinal, member)| (observed.name(*ordinal), member.without_last_index()))
                .collect(),
            restore: plan.persisted.restore.clone(),
            restored_revision: plan.persisted.restored_revision,
            earlier_restores: plan.persisted.earlier_restores.clone(),
            served_spec_hashes: plan.persisted.served_spec_hashes.clone(),
        },
        replicas: u8::try_from(layout.replicas).unwrap_or(u8::MAX),
        accepts_clients: layout.accepts_clients,
        version: observed.wanted.version.clone(),
        operator_image: operator_image.clone(),
        default_repository: default_repository.clone(),
        budget_voters: build::budget_voters(
            layout.voter_count,
            observed.desired.size.get().into(),
            layout.is_rolling_out,
        ),
        may_update_template: layout.may_update_template(),
        snapshot_count: observed.wanted.snapshot_count,
        restart: observation.restart.clone(),
        stored,
        fetch_container: layout.fetch_container.clone(),
        is_restoring: layout.is_restoring,
    })
}

/// What each `EtcdBackup` of this cluster reports about its freshness.
pub fn backups(key: &ObjectKey, deps: &Deps) -> Vec<BackupFreshness> {
    let all = deps.backups.belonging_to(key);
    all.iter().map(|backup| BackupFreshness::read(backup)).collect()
}

/// Messages about objects of needed names that are not this cluster's, from the informers' copies. Those lack objects
/// without the operator's labels.
pub fn conflicts(key: &ObjectKey, uid: &str, deps: &Deps) -> Vec<String> {
    let client = key.beside(&format!("{}-client", key.name));
    let mut found = Vec::new();
    let mut add = |is_foreign: bool, kind: &str, name: &str| {
        if is_foreign {
            found.push(foreign_object_message(kind, name));
        }
    };
    add(
        deps.sets.get(key).is_some_and(|set| !is_own_set(&set, uid)),
        "StatefulSet",
        &key.name,
    );
    for key in [key, &client] {
        let service = deps.services.get(key);
        let is_foreign = service.is_some_and(|service| !is_owned(&*service, uid));
        add(is_foreign, "Service", &key.name);
    }
    let budget = deps.budgets.get(key);
    add(
        budget.is_some_and(|budget| !is_owned(&*budget, uid)),
        "PodDisruptionBudget",
        &key.name,
    );
    found
}

/// Which objects were not applied: names that others have, and what the API server refuses.
#[derive(Debug, Default)]
pub struct ApplyReport {
    /// Objects of needed names that are somebody else's.
    pub conflicts: Vec<String>,
    /// What the API server refuses to have made or changed.
    pub refused: Vec<String>,
    /// The first refusal that is not about claims or pods that are there. Members that have formed a cluster are looked
    /// after all the same; before that, and while a restore shapes their pods, no step goes without its objects.
    pub missing_object: Option<Error>,
}

/// Brings all objects to what is wanted. Refusals and conflicts are reported and do not keep the other objects from
/// being applied; any other failure ends it.
pub async fn apply_all(
    writer: &ObjectWriter<'_>,
    wanted: &DesiredObjects,
    plan: &Plan,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<ApplyReport, ApplyError> {
    let mut report = ApplyReport::default();
    report.note(writer.apply(&deps.services, &wanted.headless).await)?;
    let observed_set = observation.set.as_deref();
    let applied = writer.apply_stateful_set(&deps.sets, observed_set, &wanted.members);
    report.note(Box::pin(applied).await)?;
    report.note(writer.apply(&deps.services, &wanted.client).await)?;
    match &wanted.disruption {
        Some(budget) => report.note(writer.apply(&deps.budgets, budget).await)?,
        None => {
            if let Some(old) = deps.budgets.get(key).filter(|old| writer.is_ours(&**old)) {
                report.note(writer.delete(&*old).await.map(|()| None))?;
            }
        }
    }
    report
        .refused
        .extend(claims(writer, plan, observation, &wanted.build_inputs, key, deps).await?);
    if report.conflicts.is_empty() {
        report
            .refused
            .extend(pods(writer, &wanted.live_metadata, observation, key, deps).await?);
    }
    Ok(report)
}

impl ApplyReport {
    /// Records the outcome for one object. Only a failure that is no refusal is passed on.
    fn note(&mut self, done: Result<Option<String>, ApplyError>) -> Result<(), ApplyError> {
        match done {
            Err(ApplyError::Failed(error)) if error.is_refusal() => {
                self.refused.push(error.to_string());
                self.missing_object.get_or_insert(error);
            }
            other => self.conflicts.extend(other?),
        }
        Ok(())
    }
}

/// The message about a refused write. Only a failure that is no refusal is passed on.
fn refusal(done: Result<(), ApplyError>, what: &str) -> Result<Option<String>, ApplyError> {
    match done {
        Err(ApplyError::Failed(error)) if error.is_refusal() => Ok(Some(format!("{what}: {error}"))),
        other => other.map(|()| None),
    }
}

/// Applies the user's labels and annotations to running pods, without a restart. A pod that has them already, because
/// it was made with them, is not touched.
async fn pods(
    writer: &ObjectWriter<'_>,
    wanted: &LiveMetadata,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Vec<String>, ApplyError> {
    let observed = &observation.observed;
    let mut refused = Vec::new();
    for (ordinal, observed_member) in &observed.members {
        let Some(pod) = observed_member.pod.as_ref().filter(|pod| pod.deleting.is_none()) else {
            continue;
        };
        let name = observed.name(*ordinal);
        let stored = deps.pods.get(&key.beside(&name));
        let Some(stored) = stored.filter(|stored| stored.metadata.uid.as_deref() == Some(&pod.uid)) else {
            continue;
        };
        let live_metadata = wanted.of_pod(&name);
        let has_all = |wanted: &Option<BTreeMap<String, String>>, present: &BTreeMap<String, String>| {
            wanted
                .iter()
                .flatten()
                .all(|(key, value)| present.get(key) == Some(value))
        };
        let was_applied = stored.annotations().contains_key(APPLIED);
        let is_current = has_all(&live_metadata.metadata.labels, stored.labels())
            && has_all(&live_metadata.metadata.annotations, stored.annotations());
        if was_applied || !is_current {
            let done = writer.ensure(&*stored, &live_metadata).await;
            refused.extend(refusal(done, "spec.pod.labels or spec.pod.annotations")?);
        }
    }
    Ok(refused)
}

/// Claims that were created for this cluster and no member uses, if volumes are deleted with the cluster: a member that
/// was scaled away before it joined leaves one. One that is older than the cluster may hold the user's data and is not
/// among them.
fn unused_claims(
    plan: &Plan,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Vec<Arc<PersistentVolumeClaim>> {
    let observed = &observation.observed;
    if !observed.desired.storage.is_deleted_with_cluster() {
        return Vec::new();
    }
    let ordinals = observed.members.iter();
    let ordinals = ordinals.filter(|(ordinal, observed_member)| {
        let claim = observed_member
            .claim
            .as_ref()
            .filter(|claim| claim.deleting.is_none());
        let is_created_for_cluster = claim
            .and_then(|claim| claim.created)
            .is_some_and(|created| created >= observed.created);
        is_created_for_cluster && !plan.persisted.members.contains_key(ordinal)
    });
    let stored = ordinals.filter_map(|(ordinal, observed_member)| {
        let stored = deps
            .claims
            .get(&key.beside(&ordinal.claim(&observed.desired.name)))?;
        (stored.metadata.uid == observed_member.claim.as_ref().map(|claim| claim.uid.clone()))
            .then_some(stored)
    });
    stored.collect()
}

/// Applies labels, owner and size to claims of members, and to those that the function `unused_claims` finds; returns
/// what the API server refuses of that, which is no error. Any other claim may hold the user's data and is left alone.
async fn claims(
    writer: &ObjectWriter<'_>,
    plan: &Plan,
    observation: &Observation,
    build_inputs: &BuildInputs,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Vec<String>, ApplyError> {
    let mut refused = Vec::new();
    let desired = &observation.observed.desired;
    for stored in unused_claims(plan, observation, key, deps) {
        if let Some(wanted) = build::claim(desired, build_inputs, &stored) {
            let done = writer.ensure(&*stored, &wanted).await;
            refused.extend(refusal(done, CLAIM_FIELDS)?);
        }
    }
    for (ordinal, member) in &plan.persisted.members {
        let name = key.beside(&ordinal.claim(&desired.name));
        let stored = match deps.claims.get(&name) {
            Some(stored) => stored,
            // Without labels it is in no copy, until it gets them here.
            None if member.claim.is_some() => match deps.applier.read(&name).await? {
                Some(stored) => std::sync::Arc::new(stored),
                None => continue,
            },
            None => continue,
        };
        let is_recorded_claim = stored.metadata.uid.is_some() && stored.metadata.uid == member.claim;
        if !is_recorded_claim || stored.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if let Some(wanted) = build::claim(desired, build_inputs, &stored) {
            let done = writer.ensure(&*stored, &wanted).await;
            refused.extend(refusal(done, CLAIM_FIELDS)?);
        }
    }
    Ok(refused)
}
