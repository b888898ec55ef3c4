//! Permits: made from what a waiting process says and from nothing else, each for one process and its present nonce.

use std::collections::BTreeMap;

use etcd_operator_api::contract::{self, Mode, Permit, Report, RestoreTerms};
use etcd_operator_etcd::id::{ClusterId, MemberId};

use super::PodRef;
use crate::intent::Grant;
use crate::world::{Ordinal, Pod, World};

/// To whom a permit would be given.
pub fn grant(pod: &Pod, report: &Report) -> Grant {
    Grant {
        pod: pod.uid.clone(),
        process: report.process.clone(),
        nonce: report.nonce.clone(),
    }
}

/// What a permit says beside to whom it is given.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What may be done.
    pub mode: Mode,
    /// The incarnation the disk will have.
    pub incarnation: i64,
    /// etcd's ID of the cluster, once known.
    pub cluster: Option<ClusterId>,
    /// etcd's ID of the member, once known.
    pub member: Option<MemberId>,
    /// The members to start with.
    pub first: String,
    /// What else a restore needs.
    pub restore: Option<RestoreTerms>,
}

/// A permit for this process, unless it lies with the pod already. One that nobody takes is laid there again, as it is.
pub fn permit(
    world: &World,
    place: Ordinal,
    pod: &Pod,
    grant: &Grant,
    terms: Terms,
) -> Option<(PodRef, Permit)> {
    let lies_there = pod.permit.as_ref().is_some_and(|permit| {
        permit.process == grant.process && permit.nonce == grant.nonce && permit.mode == terms.mode
    });
    let uid = pod.uid.clone();
    if lies_there && pod.laid.is_some_and(|laid| laid.is_missed(world.now)) {
        return Some((PodRef { place, uid }, pod.permit.clone()?));
    }
    if lies_there || pod.uid != grant.pod {
        return None;
    }
    let starts_anew = matches!(terms.mode, Mode::Bootstrap | Mode::Join | Mode::Prepare);
    let permit = Permit {
        version: contract::VERSION,
        pod_uid: grant.pod.clone(),
        process: grant.process.clone(),
        nonce: grant.nonce.clone(),
        mode: terms.mode,
        incarnation: terms.incarnation,
        cluster_uid: world.uid.clone(),
        cluster_id: terms.cluster.map(|id| id.to_string()),
        member_id: terms.member.map(|id| id.to_string()),
        token: if starts_anew {
            token(world, terms.incarnation)
        } else {
            String::new()
        },
        initial_cluster: terms.first,
        restore: terms.restore,
    };
    Some((PodRef { place, uid }, permit))
}

/// The members to start with, as etcd's flag takes them.
pub fn first(world: &World, places: impl Iterator<Item = Ordinal>) -> String {
    let by_name: BTreeMap<_, _> = places
        .map(|place| (world.name(place), world.peer_url(place)))
        .collect();
    let members: Vec<_> = by_name
        .into_iter()
        .map(|(name, url)| format!("{name}={url}"))
        .collect();
    members.join(",")
}

/// What keeps this life of this cluster apart from every other one, of any name, anywhere.
fn token(world: &World, incarnation: i64) -> String {
    let World {
        namespace,
        desired,
        uid,
        ..
    } = world;
    format!("{namespace}/{}/{uid}/{incarnation}", desired.name)
}
