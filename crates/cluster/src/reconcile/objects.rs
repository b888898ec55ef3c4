//! Keeping the objects of a cluster as they should be. An object of a needed name that is somebody else's is never
//! touched; it is reported instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use etcd_operator_api::EtcdBackup;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::drift::APPLIED;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;

use crate::build::{self, Frame, Latch, Objects, OperatorImage};
use crate::desired::Desired;
use crate::observe::{Observed, is_own_set, is_owned};
use crate::plan::Plan;
use crate::reconcile::Deps;
use crate::reconcile::keeper::{Halt, Keeper, foreign};
use crate::status::Freshness;

/// What is said of a volume that does not become what is asked for.
const TOO_LARGE: &str = "spec.storage.size or spec.pod.labels (a StorageClass without allowVolumeExpansion grows no volume; to take a size back, remove spec.storage.size and set the former one again)";

/// The objects as they should be, and what they were made of beside what the spec asks for.
#[derive(Debug)]
pub struct Wanted {
    frame: Frame,
    /// The objects.
    pub objects: Objects,
}

impl Wanted {
    /// What follows from what is asked for and this.
    pub fn of(desired: &Desired, frame: Frame) -> Result<Self, Vec<Refusal>> {
        let objects = build::build(desired, &frame)?;
        Ok(Self { frame, objects })
    }

    /// Whether the same follows from this.
    pub fn follows_from(&self, frame: &Frame) -> bool {
        self.frame == *frame
    }
}

/// What the objects are made of beside what the spec asks for; none if they are to be left as they are.
pub fn frame(plan: &Plan, observed: &Observed, image: &OperatorImage) -> Option<Frame> {
    let shape = plan.shape.as_ref()?;
    let world = &observed.world;
    let stored = observed.stored.clone();
    let voters = plan.memory.members.iter().filter(|(_, member)| member.votes);
    Some(Frame {
        namespace: world.namespace.clone(),
        cluster_uid: world.uid.clone(),
        latch: Latch {
            incarnation: shape.incarnation,
            cluster_id: plan.memory.cluster,
            voters: shape.places.iter().map(|place| world.name(*place)).collect(),
            // How far each has come changes all the time, and no object says it.
            members: voters
                .map(|(place, member)| (world.name(*place), member.noted()))
                .collect(),
            restore: plan.memory.restore.clone(),
            restored_revision: plan.memory.restored_revision,
            earlier_restores: plan.memory.earlier_restores.clone(),
        },
        replicas: u8::try_from(shape.replicas).unwrap_or(u8::MAX),
        formed: shape.serves,
        version: world.desired.version(
            stored
                .as_ref()
                .and_then(|stored| stored.version()?.parse().ok())
                .as_ref(),
        ),
        operator_image: image.clone(),
        live_voters: shape.voters,
        // While a restore stands the template changes by what the restore needs, and by nothing else.
        may_move: shape.may_move && !shape.is_held,
        stored,
        fetching: shape.fetching.clone(),
        is_held: shape.is_held,
    })
}

/// What is said of the backups of this cluster.
pub fn backups(key: &ObjectKey, deps: &Deps) -> Vec<Freshness> {
    let names_it = |backup: &EtcdBackup| {
        let cluster = backup.spec.etcd_cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.name == key.name)
    };
    let all = deps.backups.filter(&key.namespace, names_it);
    all.iter().map(|backup| Freshness::of(backup)).collect()
}

/// Objects of needed names in the copies that are not this cluster's.
pub fn conflicts(key: &ObjectKey, uid: &str, deps: &Deps) -> Vec<String> {
    let client = key.beside(&format!("{}-client", key.name));
    let mut found = Vec::new();
    let mut add = |is_foreign: bool, kind: &str, name: &str| {
        if is_foreign {
            found.push(foreign(kind, name));
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

/// What became of the objects.
#[derive(Debug, Default)]
pub struct Kept {
    /// Objects of needed names that are somebody else's.
    pub conflicts: Vec<String>,
    /// What the API server refuses to have made or changed.
    pub refused: Vec<String>,
    /// The first refusal that is not about claims or pods that are there. Members that have formed a cluster are looked
    /// after all the same; before that, and while a restore shapes their pods, no step goes without its objects.
    pub lacking: Option<Error>,
}

/// Makes the objects what they should be.
pub async fn keep(
    keeper: &Keeper<'_>,
    wanted: &Wanted,
    plan: &Plan,
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Kept, Halt> {
    let mut kept = Kept::default();
    let Wanted {
        frame,
        objects: wanted,
    } = wanted;
    kept.note(keeper.one(&deps.services, &wanted.headless).await)?;
    let seen = observed.set.as_deref();
    kept.note(keeper.set(&deps.sets, seen, &wanted.members).await)?;
    kept.note(keeper.one(&deps.services, &wanted.client).await)?;
    match &wanted.disruption {
        Some(budget) => kept.note(keeper.one(&deps.budgets, budget).await)?,
        None => {
            if let Some(old) = deps.budgets.get(key).filter(|old| keeper.is_ours(&**old)) {
                kept.note(keeper.delete(&*old).await.map(|()| None))?;
            }
        }
    }
    kept.refused
        .extend(claims(keeper, plan, observed, frame, key, deps).await?);
    if kept.conflicts.is_empty() {
        kept.refused
            .extend(pods(keeper, wanted, observed, key, deps).await?);
    }
    Ok(kept)
}

impl Kept {
    /// What became of one object; whatever else than a refusal keeps it from being done ends the pass.
    fn note(&mut self, done: Result<Option<String>, Halt>) -> Result<(), Halt> {
        match done {
            Err(Halt::Failed(error)) if error.is_refusal() => {
                self.refused.push(error.to_string());
                self.lacking.get_or_insert(error);
            }
            other => self.conflicts.extend(other?),
        }
        Ok(())
    }
}

/// What to say of a write that was refused for what it says; whatever else keeps one from being done ends the pass.
fn refusal(done: Result<(), Halt>, what: &str) -> Result<Option<String>, Halt> {
    match done {
        Err(Halt::Failed(error)) if error.is_refusal() => Ok(Some(format!("{what}: {error}"))),
        other => other.map(|()| None),
    }
}

/// Labels and annotations of the user that reach running pods without a restart. A pod that wears them already, because
/// it was made with them, is not touched.
async fn pods(
    keeper: &Keeper<'_>,
    wanted: &Objects,
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Vec<String>, Halt> {
    let world = &observed.world;
    let mut refused = Vec::new();
    for (place, seen) in &world.members {
        let Some(seen) = seen.pod.as_ref().filter(|pod| pod.deleting.is_none()) else {
            continue;
        };
        let name = world.name(*place);
        let stored = deps.pods.get(&key.beside(&name));
        let Some(stored) = stored.filter(|stored| stored.metadata.uid.as_deref() == Some(&seen.uid)) else {
            continue;
        };
        let worn = wanted.worn_by(&name);
        let has_all = |wanted: &Option<BTreeMap<String, String>>, worn: &BTreeMap<String, String>| {
            wanted
                .iter()
                .flatten()
                .all(|(key, value)| worn.get(key) == Some(value))
        };
        let was_given = stored.annotations().contains_key(APPLIED);
        let is_dressed = has_all(&worn.metadata.labels, stored.labels())
            && has_all(&worn.metadata.annotations, stored.annotations());
        if was_given || !is_dressed {
            let done = keeper.ensure(&*stored, &worn).await;
            refused.extend(refusal(done, "spec.pod.labels or spec.pod.annotations")?);
        }
    }
    Ok(refused)
}

/// Claims that were made for this cluster and that no member has, where they are to go with it: whoever was scaled away before it
/// joined leaves one. One that is older than the cluster is somebody else's.
fn unused(plan: &Plan, observed: &Observed, key: &ObjectKey, deps: &Deps) -> Vec<Arc<PersistentVolumeClaim>> {
    let world = &observed.world;
    if !world.desired.storage.goes_with_the_cluster() {
        return Vec::new();
    }
    let places = world.members.iter();
    let places = places.filter(|(place, seen)| {
        let claim = seen.claim.as_ref().filter(|claim| claim.deleting.is_none());
        let is_made_for_it = claim
            .and_then(|claim| claim.created)
            .is_some_and(|created| created >= world.created);
        is_made_for_it && !plan.memory.members.contains_key(place)
    });
    let stored = places.filter_map(|(place, seen)| {
        let stored = deps.claims.get(&key.beside(&place.claim(&world.desired.name)))?;
        (stored.metadata.uid == seen.claim.as_ref().map(|claim| claim.uid.clone())).then_some(stored)
    });
    stored.collect()
}

/// Claims of members: labels, owner, size. A claim that no member was seen to run on may be somebody else's.
async fn claims(
    keeper: &Keeper<'_>,
    plan: &Plan,
    observed: &Observed,
    frame: &Frame,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Vec<String>, Halt> {
    let mut refused = Vec::new();
    let desired = &observed.world.desired;
    for stored in unused(plan, observed, key, deps) {
        if let Some(wanted) = build::claim(desired, frame, &stored) {
            let done = keeper.ensure(&*stored, &wanted).await;
            refused.extend(refusal(done, TOO_LARGE)?);
        }
    }
    for (place, member) in &plan.memory.members {
        let name = key.beside(&place.claim(&desired.name));
        let stored = match deps.claims.get(&name) {
            Some(stored) => stored,
            // Without labels it is in no copy, until it gets them here.
            None if member.claim.is_some() => match deps.applier.read(&name).await? {
                Some(stored) => std::sync::Arc::new(stored),
                None => continue,
            },
            None => continue,
        };
        let is_the_members = stored.metadata.uid.is_some() && stored.metadata.uid == member.claim;
        if !is_the_members || stored.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if let Some(wanted) = build::claim(desired, frame, &stored) {
            let done = keeper.ensure(&*stored, &wanted).await;
            refused.extend(refusal(done, TOO_LARGE)?);
        }
    }
    Ok(refused)
}
