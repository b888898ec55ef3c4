//! Looking at one cluster: the copies of its objects, and its members themselves. Reads only. Every question to a member
//! is bounded, all are asked at once, and one that is not answered is a fact like any other.

mod asker;
mod claims;
mod members;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::contract::{self, RestoreIntent};
use etcd_operator_api::names::{
    ANNOTATION_ADOPT, ANNOTATION_DISCARD, ANNOTATION_REPLACE, ANNOTATION_RESTORE, LABEL_CLUSTER,
};
use etcd_operator_etcd::port::Port;
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt as _};

use crate::build::{CLUSTER_UID, Latch, Stored, looks_once};
use crate::desired::Desired;
use crate::memory::Memory;
use crate::reconcile::Deps;
use crate::world::{Asked, Claim, Ordinal, Seen, Set, World, reading};

pub use members::Reached;

/// What was seen, and the members that were reached on the way.
#[derive(Debug)]
pub struct Observed {
    /// What was seen.
    pub world: World,
    /// Connections to the members that answered.
    pub reached: Reached,
    /// The StatefulSet as it was seen.
    pub set: Option<Arc<StatefulSet>>,
    /// What counts of it.
    pub stored: Option<Arc<Stored>>,
}

/// What counts of a StatefulSet, which whoever asks may have found out before.
pub type Read<'a> = &'a (dyn Fn(&StatefulSet) -> Arc<Stored> + Sync);

/// Looks at one cluster.
pub async fn observe(
    cluster: &EtcdCluster,
    desired: Desired,
    deps: &Deps,
    read: Read<'_>,
) -> Result<Observed, Error> {
    let key = ObjectKey::of(cluster);
    let uid = cluster.metadata.uid.clone().unwrap_or_default();
    let set = deps.sets.get(&key).filter(|set| is_own_set(set, &uid));
    let place = |name: &str| Ordinal::of_name(&desired.name, name);
    let mut memory = Memory::read(cluster.status.as_ref(), place);
    let latch = set.as_deref().and_then(Latch::of);
    if let Some(latch) = &latch {
        if let Some(cluster) = latch.cluster_id {
            let noted = latch.members.iter();
            let noted = noted.filter_map(|(name, member)| Some((place(name)?, member.clone())));
            memory.recall(cluster, noted);
        }
        memory.recall_restore(latch.restore.clone(), latch.incarnation, latch.cluster_id);
        // It only grows, and a copy is never ahead of what it was copied from.
        memory.restored_revision = memory.restored_revision.max(latch.restored_revision);
        if memory.earlier_restores.is_empty() {
            memory.earlier_restores.clone_from(&latch.earlier_restores);
        }
    }
    let mut seen = objects(&desired, &key, set.as_deref(), deps);
    let stored = match set.as_deref() {
        Some(set) => Some(read(set)),
        // Somebody deleted it: pods are made as they were, not as they are asked for by now.
        None => applied_before(cluster).map(Arc::new),
    };
    let tls = secrets::of_members(&desired, stored.as_deref(), &key, deps).await?;
    let set_now = set.as_deref().zip(stored.as_ref());
    let set_now = set_now
        .zip(latch)
        .map(|((set, stored), latch)| remembered(&desired, set, stored, &latch));
    let voters = voters(&memory, set_now.as_ref());
    let reached = members::ask(&desired, &key, &mut seen, (&memory, &voters), tls, deps).await;
    if set.as_deref().is_some_and(makes_claims) {
        claims::look_again(&desired, &key, &mut seen, &memory, deps).await?;
    }
    let created = cluster.metadata.creation_timestamp.as_ref();
    let asked = restore(cluster);
    let intent = asked.as_ref().ok().and_then(Option::as_ref);
    let is_stale = asker::is_stale(intent, &memory, &key, deps).await?;
    let is_asker_there = asker::is_there(intent, &memory, &key, deps).await?;
    let next_restore = asker::next(is_asker_there, &memory, &key, deps).await?;
    let world = World {
        now: deps.clock.now(),
        instance: deps.instance.clone(),
        uid,
        namespace: key.namespace.clone(),
        created: created.map_or(Timestamp::MIN, |time| time.0),
        generation: cluster.metadata.generation.unwrap_or_default(),
        memory,
        discard: consent(cluster, ANNOTATION_DISCARD),
        adopt: consent(cluster, ANNOTATION_ADOPT),
        restore: asked,
        is_stale,
        is_asker_there,
        next_restore,
        set: set_now,
        members: seen,
        membership: reached.membership.clone(),
        overheard: reached.overheard.clone(),
        alarms: reached.alarms.clone(),
        digests: reached.digests.clone(),
        replace: given_up(cluster),
        owed: BTreeSet::new(),
        desired,
    };
    Ok(Observed {
        world,
        reached,
        set,
        stored,
    })
}

/// The template that was applied before, where the status keeps it.
fn applied_before(cluster: &EtcdCluster) -> Option<Stored> {
    Stored::recalled(cluster.status.as_ref()?.applied_template.as_deref()?)
}

/// Whether each of its pods has a volume claim, whatever the spec asks for by now.
fn makes_claims(set: &StatefulSet) -> bool {
    let templates = set.spec.volume_claim_templates.as_ref();
    templates.is_some_and(|templates| !templates.is_empty())
}

/// Whether an object belongs to the `EtcdCluster` of this UID.
pub fn is_owned(object: &impl Resource, uid: &str) -> bool {
    let owners = object.meta().owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// Whether a StatefulSet is the one of the `EtcdCluster` of this UID: also one that somebody took the owner from, as its
/// members are told whose they are.
pub fn is_own_set(set: &StatefulSet, uid: &str) -> bool {
    let mut owners = set.metadata.owner_references.iter().flatten();
    let is_free = !owners.any(|owner| owner.controller == Some(true));
    is_owned(set, uid) || (is_free && !uid.is_empty() && members_of(set) == Some(uid))
}

/// The UID of the `EtcdCluster` whose members a StatefulSet makes.
fn members_of(set: &StatefulSet) -> Option<&str> {
    let pod = set.spec.template.spec.as_ref()?;
    let mut words = pod
        .containers
        .iter()
        .flat_map(|container| container.command.iter().flatten());
    words.find_map(|word| word.strip_prefix(CLUSTER_UID))
}

/// The UIDs of claims that an annotation names.
pub(crate) fn consent(cluster: &EtcdCluster, annotation: &str) -> BTreeSet<String> {
    let text = cluster.annotations().get(annotation).map(String::as_str);
    let uids = text.unwrap_or_default().split([',', ' ']);
    uids.filter(|uid| !uid.is_empty()).map(str::to_owned).collect()
}

/// The member that an annotation gives up.
pub(crate) fn given_up(cluster: &EtcdCluster) -> Option<String> {
    let text = cluster.annotations().get(ANNOTATION_REPLACE)?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The restore that is asked for.
pub(crate) fn restore(cluster: &EtcdCluster) -> Result<Option<RestoreIntent>, String> {
    let text = cluster.annotations().get(ANNOTATION_RESTORE);
    text.map(|text| contract::read(text.as_bytes()).map_err(|error| error.to_string()))
        .transpose()
}

/// The voters of before, from the status or, where that has been lost, from the StatefulSet.
fn voters(memory: &Memory, set: Option<&Set>) -> BTreeSet<Ordinal> {
    let known = memory.members.iter().filter(|(_, member)| member.votes);
    let known: BTreeSet<_> = known.map(|(place, _)| *place).collect();
    match set.filter(|_| memory.members.is_empty()) {
        Some(set) => set.voters.clone(),
        None => known,
    }
}

fn remembered(desired: &Desired, set: &StatefulSet, stored: &Stored, latch: &Latch) -> Set {
    let voters = latch.voters.iter();
    Set {
        replicas: u16::try_from(set.spec.replicas.unwrap_or_default()).unwrap_or_default(),
        incarnation: latch.incarnation,
        cluster: latch.cluster_id,
        voters: voters
            .filter_map(|name| Ordinal::of_name(&desired.name, name))
            .collect(),
        intent: stored.intent().map(str::to_owned),
        secure_peers: stored.has_secure_peers(),
        secure_clients: stored.has_secure_clients(),
        looks_once: stored.pod().is_some_and(looks_once),
    }
}

/// Pods and claims by place. Pods of anybody else's StatefulSet are not seen.
fn objects(
    desired: &Desired,
    key: &ObjectKey,
    set: Option<&StatefulSet>,
    deps: &Deps,
) -> BTreeMap<Ordinal, Seen> {
    let mut seen: BTreeMap<Ordinal, Seen> = BTreeMap::new();
    let of_cluster = |labels: &BTreeMap<String, String>| {
        labels.get(LABEL_CLUSTER).map(String::as_str) == Some(desired.name.as_str())
    };
    // One text for all their names, as they are looked up in every pass.
    let before = Ordinal::before_claims(&desired.name);
    let mut named = key.beside(&before);
    for place in Ordinal::all() {
        named.name.truncate(before.len());
        named.name.push_str(&place.to_string());
        let claim = deps.claims.get(&named);
        if let Some(claim) = claim.and_then(|claim| reading::claim(&claim)) {
            seen.entry(place).or_insert(Seen::NOTHING).claim = Some(claim);
        }
    }
    let set_uid = set.and_then(|set| set.metadata.uid.as_deref());
    let pods = deps
        .pods
        .filter(&key.namespace, |pod: &Pod| of_cluster(pod.labels()));
    for pod in pods {
        let is_ours = set_uid.is_some_and(|uid| is_owned(&*pod, uid));
        let place = Ordinal::of_name(&desired.name, &pod.name_any()).filter(|_| is_ours);
        if let Some(place) = place {
            let seen = seen.entry(place).or_insert(Seen::NOTHING);
            let lost = lost_since(&pod, seen.claim.as_ref(), deps);
            seen.pod = reading::pod(&pod, lost);
        }
    }
    seen
}

/// Since when the node of a pod is lost. Where nodes cannot be seen, a pod that is still there long after it should
/// have been gone tells the same.
fn lost_since(pod: &Pod, claim: Option<&Claim>, deps: &Deps) -> Option<Timestamp> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let overdue = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let Some(nodes) = &deps.nodes else {
        return overdue.filter(|since| node.is_some() && *since <= deps.clock.now());
    };
    let node_now = |name: &str| nodes.get(&ObjectKey::new("", name));
    match node {
        Some(node) => match node_now(node) {
            Some(node) => reading::lost_since(&node),
            None => overdue,
        },
        // Nothing but the node that is gone could ever take a pod whose volume is there.
        None => reading::stranded_since(pod, claim?, |name| node_now(name).is_none()),
    }
}

/// A connection to a member.
pub type Connection = Arc<dyn Port>;

/// Keeps what nobody answered apart from what nobody asked.
pub(crate) fn silent<T>(why: &impl std::fmt::Display) -> Asked<T> {
    Asked::Silent(why.to_string())
}
