//! Looking at one cluster: the copies of its objects, and its members themselves. Reads only. Every question to a member
//! is bounded, all are asked at once, and one that is not answered is a fact like any other.

mod claims;
mod members;
mod restore_requester;
mod secrets;
mod upgrade_backups;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etcd_operator_api::contract::{self, RestoreIntent};
use etcd_operator_api::names::{
    ANNOTATION_ADOPT, ANNOTATION_DISCARD, ANNOTATION_REPLACE, ANNOTATION_RESTART, ANNOTATION_RESTORE,
    LABEL_CLUSTER,
};
use etcd_operator_api::{EtcdCluster, EtcdClusterStatus};
use etcd_operator_cluster_core::build::{
    CLUSTER_UID, RestartRequests, StateAnnotations, StoredTemplates, etcd_image, spec_hash,
};
use etcd_operator_cluster_core::desired::Desired;
use etcd_operator_cluster_core::next_version::next_version;
use etcd_operator_cluster_core::observed_state::{
    Claim, ImageCheck, ObservedCluster, ObservedMember, ObservedStatefulSet, Ordinal, PodAdmission,
    QueryResult, WantedTemplate, kube_objects,
};
use etcd_operator_cluster_core::persisted_state::{PersistedState, Rollout};
use etcd_operator_cluster_core::plan::{
    ClusterView, is_next_minor, is_previous_minor, needs_cluster_version, outdated_pods,
};
use etcd_operator_etcd::port::Port;
use etcd_operator_etcd::version::Version;
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::gate::State;
use etcd_operator_runtime::key::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::{Resource, ResourceExt as _};

use crate::reconcile::Deps;

pub use members::MemberProbes;
pub use upgrade_backups::accepts_requests;

/// What was observed of a cluster, with the connections to members for the step after it.
#[derive(Debug)]
pub struct Observation {
    /// What was seen.
    pub observed: ObservedCluster,
    /// Connections to the members that answered.
    pub probes: MemberProbes,
    /// The StatefulSet as it was seen.
    pub set: Option<Arc<StatefulSet>>,
    /// What counts of it.
    pub stored: Option<Arc<StoredTemplates>>,
    /// Requests to restart the members, including those that the stored template was made for.
    pub restart: RestartRequests,
}

impl Observation {
    /// The time of a request by `kubectl rollout restart` that does not count, as kubectl wrote it. `None` if the last
    /// one counts.
    pub fn ignored_restart(&self) -> Option<&str> {
        let rollout = self.observed.persisted.rollout.as_ref();
        ignored_restart(self.stored.as_deref()?, &self.restart, rollout)
    }
}

/// Reads the templates of a StatefulSet, or returns them from an earlier reconcile of the same StatefulSet.
pub type ReadTemplates<'a> = &'a (dyn Fn(&StatefulSet) -> Arc<StoredTemplates> + Sync);

/// Observes one cluster: its objects in the informers' copies, some of them in the API server, and its members. A
/// member that does not answer is no error, and neither is a missing object; an error is a failed read of the API
/// server.
pub async fn observe(
    cluster: &EtcdCluster,
    desired: Desired,
    deps: &Deps,
    read: ReadTemplates<'_>,
) -> Result<Observation, Error> {
    let key = ObjectKey::of(cluster);
    let uid = cluster.metadata.uid.clone().unwrap_or_default();
    let set = deps.sets.get(&key).filter(|set| is_own_set(set, &uid));
    let ordinal = |name: &str| Ordinal::from_name(&desired.name, name);
    let mut persisted = PersistedState::read(cluster.status.as_ref(), ordinal);
    let state_annotations = set.as_deref().and_then(StateAnnotations::read);
    if let Some(state_annotations) = &state_annotations {
        if let Some(cluster) = state_annotations.cluster_id {
            let recorded = state_annotations.members.iter();
            let recorded = recorded.filter_map(|(name, member)| Some((ordinal(name)?, member.clone())));
            persisted.recover_members(cluster, recorded);
        }
        persisted.recover_restore(
            state_annotations.restore.clone(),
            state_annotations.incarnation,
            state_annotations.cluster_id,
        );
        // It only grows, and a copy is never ahead of what it was copied from.
        persisted.restored_revision = persisted
            .restored_revision
            .max(state_annotations.restored_revision);
        if persisted.earlier_restores.is_empty() {
            persisted
                .earlier_restores
                .clone_from(&state_annotations.earlier_restores);
        }
        if persisted.served_spec_hashes.is_empty() {
            persisted
                .served_spec_hashes
                .clone_from(&state_annotations.served_spec_hashes);
        }
    }
    let mut members = read_objects(&desired, &key, (&uid, set.as_deref()), deps);
    let stored = match set.as_deref() {
        Some(set) => Some(read(set)),
        // Somebody deleted it: pods are made as they were, not as they are asked for by now.
        None => last_applied_template(cluster).map(Arc::new),
    };
    let tls = secrets::member_transport(&desired, stored.as_deref(), &key, deps).await?;
    let server_certificate = secrets::server_certificate_fault(&desired, &tls, &key, deps).await?;
    let observed_set = set.as_deref().zip(stored.as_ref());
    let observed_set = observed_set
        .zip(state_annotations)
        .map(|((set, stored), state_annotations)| summarize_set(&desired, set, stored, &state_annotations));
    let voters = recorded_voters(&persisted, observed_set.as_ref());
    let probes = members::probe_members(&desired, &key, &mut members, (&persisted, &voters), tls, deps).await;
    if set.as_deref().is_some_and(has_claim_templates) {
        claims::reread_uncertain(&desired, &key, &mut members, &persisted, deps).await?;
    }
    let restart = restart_requests(cluster, stored.as_deref(), persisted.rollout.as_ref());
    let template_version = template_version(stored.as_deref());
    let created = cluster.metadata.creation_timestamp.as_ref();
    let restore_request = requested_restore(cluster);
    let request = restore_request.as_ref().ok().and_then(Option::as_ref);
    let is_stale = restore_requester::is_stale(request, &persisted, &key, deps).await?;
    let is_requester_present =
        restore_requester::is_requester_present(request, &persisted, &key, deps).await?;
    let next_restore =
        restore_requester::find_next_restore(is_requester_present, &persisted, &key, deps).await?;
    let recorded = cluster
        .status
        .iter()
        .flat_map(|status| status.member_status.iter().flatten());
    let recorded_versions = recorded
        .filter_map(|member| Some((ordinal(&member.name)?, member.version.as_deref()?.parse().ok()?)))
        .collect();
    let mut observed = ObservedCluster {
        now: deps.clock.now(),
        instance: deps.instance.clone(),
        uid,
        namespace: key.namespace.clone(),
        created: created.map_or(Timestamp::MIN, |time| time.0),
        generation: cluster.metadata.generation.unwrap_or_default(),
        persisted,
        discard: annotated_uids(cluster, ANNOTATION_DISCARD),
        adopt: annotated_uids(cluster, ANNOTATION_ADOPT),
        restore: restore_request,
        is_stale,
        is_requester_present,
        next_restore,
        wanted: WantedTemplate {
            spec_hash: String::new(),
            version: desired.version(template_version.as_ref()),
            image: String::new(),
            later_versions: Vec::new(),
            snapshot_count: None,
            version_blocker: None,
            is_restart_requested: stored
                .as_deref()
                .is_some_and(|stored| stored.restart_requests().annotated != restart.annotated),
            restarted_at: restart.by_kubectl.clone(),
            has_slot: true,
        },
        set: observed_set,
        members,
        recorded_versions,
        cluster_version: None,
        is_auth_enabled: None,
        membership: probes.membership.clone(),
        local_membership: probes.local_membership.clone(),
        alarms: probes.alarms.clone(),
        alarms_failure: probes.alarms_failure.clone(),
        digests: probes.digests.clone(),
        replace: requested_replacement(cluster),
        server_certificate,
        unfenced: BTreeSet::new(),
        upgrade_backups: Vec::new(),
        running_backups: Vec::new(),
        pod_admission: PodAdmission::NotAsked,
        image_check: ImageCheck::NotAsked,
        desired,
    };
    let target = observed.desired.version(template_version.as_ref());
    if needs_cluster_version(&ClusterView::new(&observed), &target) {
        observed.cluster_version = probes.cluster_version().await;
    }
    let next = next_version(&observed, template_version.as_ref(), &deps.intermediate_versions);
    let rendered = observed.desired.with_snapshot_count(next.snapshot_count);
    observed.wanted = WantedTemplate {
        spec_hash: spec_hash(&rendered, &next.version, &restart),
        image: etcd_image(&rendered.image, &next.version, &deps.default_repository),
        version: next.version,
        later_versions: next.later,
        version_blocker: next.blocker,
        snapshot_count: next.snapshot_count,
        ..observed.wanted
    };
    if outdated_pods(&ClusterView::new(&observed)).next().is_some() {
        observed.running_backups = upgrade_backups::running_backups(&key, deps);
    }
    if is_next_minor(&ClusterView::new(&observed)) {
        observed.is_auth_enabled = probes.is_auth_enabled().await;
        observed.upgrade_backups = upgrade_backups::upgrade_backups(&key, deps);
    } else if is_previous_minor(&ClusterView::new(&observed)) {
        observed.upgrade_backups = upgrade_backups::upgrade_backups(&key, deps);
    }
    Ok(Observation {
        observed,
        probes,
        set,
        stored,
        restart,
    })
}

/// The pod template for a deleted StatefulSet, which the status keeps where the spec alone would not bring it back, as
/// during a rollout. Its claim templates are unknown. `None` if the status keeps none that can be parsed.
fn last_applied_template(cluster: &EtcdCluster) -> Option<StoredTemplates> {
    StoredTemplates::parse(cluster.status.as_ref()?.applied_template.as_deref()?)
}

/// The last pod template with which a voter was healthy, kept until one is healthy with the current template.
pub fn last_served_template(status: Option<&EtcdClusterStatus>) -> Option<&str> {
    status?.rollout.as_ref()?.last_served.as_deref()
}

/// The requests to restart members: by annotation, by `kubectl rollout restart`, and those that the template was made
/// for. One that kubectl wrote before this cluster's rollouts began, or that was followed already, does not count:
/// `kubectl rollout undo` writes such ones.
fn restart_requests(
    cluster: &EtcdCluster,
    stored: Option<&StoredTemplates>,
    rollout: Option<&Rollout>,
) -> RestartRequests {
    let before = stored.map(StoredTemplates::restart_requests);
    let before = before.cloned().unwrap_or_default();
    let followed = rollout
        .and_then(|rollout| rollout.restarted_at.clone())
        .or_else(|| before.by_kubectl.clone());
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let asked = stored.and_then(StoredTemplates::kubectl_restart);
    let is_newer = asked.and_then(time).zip(rollout).is_some_and(|(asked, rollout)| {
        asked > followed.as_deref().and_then(time).unwrap_or(rollout.started_at)
    });
    let annotated = cluster.annotations().get(ANNOTATION_RESTART);
    RestartRequests {
        annotated: annotated
            .filter(|value| !value.is_empty())
            .cloned()
            .or(before.annotated),
        by_kubectl: asked.filter(|_| is_newer).map(str::to_owned).or(followed),
    }
}

/// The time of a request by `kubectl rollout restart` that does not count. It is not after the last restart that was
/// requested, or not after the last rollout began: the clock of kubectl's machine may be slow.
fn ignored_restart<'a>(
    stored: &'a StoredTemplates,
    restart: &RestartRequests,
    rollout: Option<&Rollout>,
) -> Option<&'a str> {
    let asked = stored.kubectl_restart().filter(|_| rollout.is_some())?;
    (restart.by_kubectl.as_deref() != Some(asked)).then_some(asked)
}

/// The version of etcd that a pod template names. `None` without one that can be parsed.
fn template_version(stored: Option<&StoredTemplates>) -> Option<Version> {
    stored?.version()?.parse().ok()
}

/// Whether each pod of the StatefulSet has a claim, whatever the spec asks for by now.
fn has_claim_templates(set: &StatefulSet) -> bool {
    let templates = set.spec.volume_claim_templates.as_ref();
    templates.is_some_and(|templates| !templates.is_empty())
}

/// Whether the `EtcdCluster` of this UID, or the StatefulSet of this UID, controls an object.
pub fn is_owned(object: &impl Resource, uid: &str) -> bool {
    let owners = object.meta().owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// Whether a StatefulSet is the one of the `EtcdCluster` of this UID. It need not have it as owner: without any
/// controller, the UID in its pods' command decides.
pub fn is_own_set(set: &StatefulSet, uid: &str) -> bool {
    let pod = set.spec.template.spec.as_ref();
    is_owned(set, uid) || (!has_controller(set) && is_member_of(pod, uid))
}

/// Whether a pod runs a member: the StatefulSet controls it, or nothing does and its command has the UID. A StatefulSet
/// that is deleted with `--cascade=orphan` leaves such pods, and the next StatefulSet adopts them.
fn is_own_pod(pod: &Pod, set: Option<&StatefulSet>, uid: &str) -> bool {
    let set_uid = set.and_then(|set| set.metadata.uid.as_deref());
    set_uid.is_some_and(|set_uid| is_owned(pod, set_uid))
        || (!has_controller(pod) && is_member_of(pod.spec.as_ref(), uid))
}

/// Whether any object controls this one.
pub fn has_controller(object: &impl Resource) -> bool {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true))
}

/// Whether the command of such pods names the `EtcdCluster` of this UID.
fn is_member_of(pod: Option<&PodSpec>, uid: &str) -> bool {
    !uid.is_empty() && pod.and_then(cluster_uid_in_command) == Some(uid)
}

/// The UID of the `EtcdCluster` in the command of a pod, which is the guard's.
fn cluster_uid_in_command(pod: &PodSpec) -> Option<&str> {
    let mut words = pod
        .containers
        .iter()
        .flat_map(|container| container.command.iter().flatten());
    words.find_map(|word| word.strip_prefix(CLUSTER_UID))
}

/// The UIDs of claims that an annotation names, separated by commas or spaces.
pub(crate) fn annotated_uids(cluster: &EtcdCluster, annotation: &str) -> BTreeSet<String> {
    let text = cluster.annotations().get(annotation).map(String::as_str);
    let uids = text.unwrap_or_default().split([',', ' ']);
    uids.filter(|uid| !uid.is_empty()).map(str::to_owned).collect()
}

/// The member ID in the annotation that asks for a replacement, as the user wrote it: it may name no member.
pub(crate) fn requested_replacement(cluster: &EtcdCluster) -> Option<String> {
    let text = cluster.annotations().get(ANNOTATION_REPLACE)?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The restore that the annotation asks for. An error if it cannot be parsed.
pub(crate) fn requested_restore(cluster: &EtcdCluster) -> Result<Option<RestoreIntent>, String> {
    let text = cluster.annotations().get(ANNOTATION_RESTORE);
    text.map(|text| contract::read(text.as_bytes()).map_err(|error| error.to_string()))
        .transpose()
}

/// The voters that the status records. If it records no members, those that the StatefulSet records.
fn recorded_voters(persisted: &PersistedState, set: Option<&ObservedStatefulSet>) -> BTreeSet<Ordinal> {
    let known = persisted.members.iter().filter(|(_, member)| member.is_voter);
    let known: BTreeSet<_> = known.map(|(ordinal, _)| *ordinal).collect();
    match set.filter(|_| persisted.members.is_empty()) {
        Some(set) => set.voters.clone(),
        None => known,
    }
}

/// The generation of a StatefulSet that its controller has not seen yet, so that it may still create pods as before.
/// `None` once it has.
fn unseen_generation(set: &StatefulSet) -> Option<i64> {
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    let generation = set.metadata.generation.unwrap_or_default();
    observed
        .is_none_or(|observed| observed < generation)
        .then_some(generation)
}

/// What plans need of the StatefulSet.
fn summarize_set(
    desired: &Desired,
    set: &StatefulSet,
    stored: &StoredTemplates,
    state_annotations: &StateAnnotations,
) -> ObservedStatefulSet {
    let voters = state_annotations.voters.iter();
    ObservedStatefulSet {
        replicas: u16::try_from(set.spec.replicas.unwrap_or_default()).unwrap_or_default(),
        incarnation: state_annotations.incarnation,
        cluster: state_annotations.cluster_id,
        voters: voters
            .filter_map(|name| Ordinal::from_name(&desired.name, name))
            .collect(),
        spec_hash: stored.spec_hash().map(str::to_owned),
        version: template_version(Some(stored)),
        image: stored.etcd_image().map(str::to_owned),
        quota: stored.quota(),
        snapshot_count: stored.snapshot_count(),
        unseen_generation: unseen_generation(set),
        secure_peers: stored.has_secure_peers(),
        secure_clients: stored.has_secure_clients(),
        has_single_success_probe: stored.has_single_success_probe(),
    }
}

/// Pods and claims by ordinal, from the informers' copies. Pods of another controller are left out.
fn read_objects(
    desired: &Desired,
    key: &ObjectKey,
    (uid, set): (&str, Option<&StatefulSet>),
    deps: &Deps,
) -> BTreeMap<Ordinal, ObservedMember> {
    let mut members: BTreeMap<Ordinal, ObservedMember> = BTreeMap::new();
    let belongs_to_cluster = |labels: &BTreeMap<String, String>| {
        labels.get(LABEL_CLUSTER).map(String::as_str) == Some(desired.name.as_str())
    };
    // One text for all their names, as they are looked up in every pass: by name, as the namespace may hold thousands of pods.
    let claim_prefix = Ordinal::claim_prefix(&desired.name);
    let pod_prefix = format!("{}-", desired.name);
    let (mut claim_key, mut pod_key) = (key.beside(&claim_prefix), key.beside(&pod_prefix));
    for ordinal in Ordinal::all() {
        let digits = ordinal.to_string();
        claim_key.name.truncate(claim_prefix.len());
        claim_key.name.push_str(&digits);
        let claim = deps.claims.get(&claim_key);
        let claim = claim.and_then(|claim| kube_objects::read_claim(&claim));
        pod_key.name.truncate(pod_prefix.len());
        pod_key.name.push_str(&digits);
        let pod = deps.pods.get(&pod_key);
        let pod = pod.filter(|pod| belongs_to_cluster(pod.labels()) && is_own_pod(pod, set, uid));
        if claim.is_none() && pod.is_none() {
            continue;
        }
        let member = members.entry(ordinal).or_insert(ObservedMember::ABSENT);
        member.claim = claim;
        member.pod = pod.and_then(|pod| {
            let lost = lost_since(&pod, member.claim.as_ref(), deps);
            kube_objects::read_pod(&pod, lost)
        });
    }
    members
}

/// Since when the node of a pod is lost. Without access to nodes, a pod that is still there after its deletion was due
/// tells the same.
fn lost_since(pod: &Pod, claim: Option<&Claim>, deps: &Deps) -> Option<Timestamp> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let overdue = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    // A store that has not synced lacks nodes that exist.
    let synced = deps
        .nodes
        .as_ref()
        .filter(|nodes| nodes.synced().state() == State::Ready);
    let Some(nodes) = synced else {
        return overdue.filter(|since| node.is_some() && *since <= deps.clock.now());
    };
    let node_now = |name: &str| nodes.get(&ObjectKey::new("", name));
    kube_objects::node_lost_since(pod, claim, node_now)
}

/// A connection to a member.
pub type Connection = Arc<dyn Port>;

/// The result of a query that failed, which is not the same as one that was not made.
pub(crate) fn no_answer<T>(error: &etcd_operator_etcd::error::Error) -> QueryResult<T> {
    QueryResult::NoAnswer(error.into())
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::names::ANNOTATION_KUBECTL_RESTART;

    use super::*;

    #[test]
    fn kubectl_rollout_restart_counts_once_and_its_undo_does_not() {
        let time = |second: i64| Timestamp::from_second(second).unwrap().to_string();
        let stored = |asked: Option<i64>| {
            let mut set = StatefulSet::default();
            let annotations = asked.map(|asked| (ANNOTATION_KUBECTL_RESTART.to_owned(), time(asked)));
            set.spec.template.metadata.get_or_insert_default().annotations =
                Some(annotations.into_iter().collect());
            StoredTemplates::read(&set)
        };
        let rollout = |followed: Option<i64>| Rollout {
            restarted_at: followed.map(time),
            ..Rollout::begin("hash", "3.6.16", Timestamp::from_second(100).unwrap())
        };
        let requested = |asked: Option<i64>, rollout: Option<&Rollout>| {
            restart_requests(&EtcdCluster::default(), Some(&stored(asked)), rollout).by_kubectl
        };
        assert_eq!(requested(Some(150), None), None, "no rollout began yet");
        assert_eq!(
            requested(Some(50), Some(&rollout(None))),
            None,
            "it is older than that"
        );
        assert_eq!(requested(Some(150), Some(&rollout(None))), Some(time(150)));
        assert_eq!(requested(Some(200), Some(&rollout(Some(150)))), Some(time(200)));
        for asked in [Some(120), None] {
            assert_eq!(
                requested(asked, Some(&rollout(Some(150)))),
                Some(time(150)),
                "{asked:?}"
            );
        }
    }

    #[test]
    fn a_restart_that_kubectl_requests_by_a_slow_clock_is_told_to_be_ignored() {
        let time = |second: i64| Timestamp::from_second(second).unwrap().to_string();
        let ignored = |asked: Option<i64>, followed: Option<i64>, has_rollout: bool| {
            let mut set = StatefulSet::default();
            let annotations = asked.map(|asked| (ANNOTATION_KUBECTL_RESTART.to_owned(), time(asked)));
            set.spec.template.metadata.get_or_insert_default().annotations =
                Some(annotations.into_iter().collect());
            let stored = StoredTemplates::read(&set);
            let rollout = has_rollout.then(|| Rollout {
                restarted_at: followed.map(time),
                ..Rollout::begin("hash", "3.6.16", Timestamp::from_second(100).unwrap())
            });
            let restart = restart_requests(&EtcdCluster::default(), Some(&stored), rollout.as_ref());
            ignored_restart(&stored, &restart, rollout.as_ref()).map(str::to_owned)
        };
        assert_eq!(
            ignored(Some(50), None, true),
            Some(time(50)),
            "before the rollout"
        );
        assert_eq!(
            ignored(Some(120), Some(150), true),
            Some(time(120)),
            "before another request"
        );
        for (asked, followed) in [(Some(150), None), (Some(150), Some(150)), (None, Some(150))] {
            assert_eq!(ignored(asked, followed, true), None, "{asked:?} {followed:?}");
        }
        assert_eq!(ignored(Some(150), None, false), None, "no rollout began yet");
    }
}
