//! What a member asks of the network before its first start: whether its own name resolves, and what others know of it.

use std::time::Duration;

use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::id::{ClusterId, MemberId};
use etcd_operator_etcd::membership::{Member, Membership};
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::port::Dial as _;
use etcd_operator_etcd::url::PeerUrl;
use etcd_operator_member::permit::{Grant, address_of};

use super::Machine;
use super::guard::Place;
use crate::etcd::Caller;

/// What must hold outside before a first start.
pub(crate) async fn are_ready(machine: &Machine, place: &Place, grant: &Grant) -> Result<(), String> {
    let Some(first) = &grant.first else {
        return Ok(());
    };
    if !machine.resolves(&place.service) {
        return Err("its own name does not resolve".to_owned());
    }
    let Some(who) = grant.unstarted else {
        return Ok(());
    };
    let own = address_of(first, &place.expected.member);
    let mut reasons = Vec::new();
    for (_, peer) in first
        .members
        .iter()
        .filter(|(name, _)| *name != place.expected.member)
    {
        match ask_one(machine, place, peer, who, own).await {
            Answer::Unstarted => return Ok(()),
            Answer::No(why) => return Err(why),
            Answer::Unknown(why) => reasons.push(why),
        }
    }
    Err(reasons.join("; "))
}

/// What another member says of one that is about to join.
enum Answer {
    Unstarted,
    No(String),
    Unknown(String),
}

async fn ask_one(
    machine: &Machine,
    place: &Place,
    peer: &PeerUrl,
    who: (ClusterId, MemberId),
    own: Option<&PeerUrl>,
) -> Answer {
    let caller = Caller {
        labels: place.labels.clone(),
        ..Caller::free(&place.expected.member)
    };
    let url = format!("http://{}:2379", peer.host())
        .parse()
        .expect("a host is part of a URL");
    let endpoint = Endpoint {
        url,
        tls: None,
        limits: Limits::default(),
    };
    let dialer = machine.etcds().dialer(caller);
    let why = match dialer.dial(&endpoint).await {
        Ok(port) => match port.membership().await {
            Membership::Known(known) if known.cluster != who.0 => {
                return Answer::No(format!(
                    "{peer} is of cluster {}, not of {}",
                    known.cluster, who.0
                ));
            }
            Membership::Known(known) => return known_as(known.members.get(&who.1), who.1, own),
            Membership::Unknown(why) => why.to_string(),
        },
        Err(error) => error.to_string(),
    };
    // Before there were learners a member joined with a vote, and without it there may be no quorum to ask.
    match dialer.query_as_peer(peer, Duration::from_secs(2)).await {
        Ok(told) if told.cluster == who.0 && !Feature::Learners.is_in(&told.version) => {
            known_as(told.members.get(&who.1), who.1, own)
        }
        _ => Answer::Unknown(why),
    }
}

fn known_as(member: Option<&Member>, id: MemberId, own: Option<&PeerUrl>) -> Answer {
    match (member, own) {
        (None, _) => Answer::No(format!("member {id} is not among the members")),
        (Some(member), _) if member.has_started() => Answer::No(format!("member {id} has started before")),
        (Some(member), Some(own)) if !member.is_at(own) => {
            Answer::No(format!("member {id} is not expected at {own}"))
        }
        (Some(_), _) => Answer::Unstarted,
    }
}
