//! Whether a permit is good for this very process and disk, and what it leads to. Pure. What a permit leaves open is
//! refused: nothing is ever assumed in its favour.

mod grant;
mod refusal;
mod restore;
#[cfg(test)]
mod tests;

use etcd_operator_api::contract::{Mode, Permit, Verdict};
use etcd_operator_etcd::flags::{First, FirstState};
use etcd_operator_etcd::id::{ClusterId, MemberId};

pub use grant::{Grant, SetAside, address_of, restart};
pub use refusal::Refusal;
pub use restore::Preparation;

use crate::verdict::Expected;
use crate::view::{DiskView, LogHead};

/// Who asks: a waiting process with its present nonce and its disk.
#[derive(Clone, Copy, Debug)]
pub struct Applicant<'a> {
    /// The UID of its pod.
    pub pod_uid: &'a str,
    /// What it drew when it started.
    pub process: &'a str,
    /// The present nonce.
    pub nonce: &'a str,
    /// What its pod expects.
    pub expected: &'a Expected,
    /// Its disk.
    pub disk: &'a DiskView,
    /// What the disk was found to be.
    pub verdict: &'a Verdict,
}

/// What a permit to start leads to, or why it is refused. First it must be for this process, then its mode must be for
/// such a disk. One that only lets a member be prepared is refused: [`check_to_prepare`].
pub fn check(permit: &Permit, applicant: &Applicant<'_>) -> Result<Grant, Refusal> {
    addressed(permit, applicant)?;
    match permit.mode {
        Mode::Bootstrap => bootstrap(permit, applicant),
        Mode::Join => join(permit, applicant),
        Mode::Resume => resume(permit, applicant),
        Mode::Adopt => adopt(permit, applicant),
        Mode::Swap => restore::swap(permit, applicant),
        Mode::Prepare => Err(Refusal::NoStart(permit.mode)),
        Mode::Recover => Err(Refusal::NotBuilt(permit.mode)),
    }
}

/// What a permit to prepare lets the process restore beside the data, or why it is refused. etcd does not start by it.
pub fn check_to_prepare(permit: &Permit, applicant: &Applicant<'_>) -> Result<Preparation, Refusal> {
    addressed(permit, applicant)?;
    restore::prepare(permit, applicant)
}

/// Whether the permit is for this process, as it is now. The nonce comes last: it alone changes by itself.
fn addressed(permit: &Permit, applicant: &Applicant<'_>) -> Result<(), Refusal> {
    let expected = applicant.expected;
    if permit.pod_uid != applicant.pod_uid {
        return Err(Refusal::OtherPod(permit.pod_uid.clone()));
    }
    if permit.cluster_uid != expected.cluster_uid {
        return Err(Refusal::OtherCluster(permit.cluster_uid.clone()));
    }
    if permit.process != applicant.process {
        return Err(Refusal::OtherProcess);
    }
    if permit.incarnation != expected.incarnation {
        return Err(Refusal::OtherIncarnation {
            permitted: permit.incarnation,
            expected: expected.incarnation,
        });
    }
    if permit.nonce != applicant.nonce {
        return Err(Refusal::OtherNonce);
    }
    Ok(())
}

/// A start as a member of a new cluster, for a disk without data to lose: no client may have written to its log.
fn bootstrap(permit: &Permit, applicant: &Applicant<'_>) -> Result<Grant, Refusal> {
    startable_anew(permit, applicant)?;
    let first = first(permit, FirstState::New, applicant.expected)?;
    if first.token.is_empty() {
        return Err(Refusal::Missing("token"));
    }
    let has_client_entries = applicant.disk.store().is_some_and(|store| {
        // What was not looked at may be there.
        store.end.is_none_or(|end| end.has_client_entries)
    });
    if has_client_entries {
        return Err(Refusal::ClientEntries);
    }
    let cluster = optional(permit.cluster_id.as_deref(), "clusterID")?;
    let member = optional(permit.member_id.as_deref(), "memberID")?;
    Ok(Grant::anew(applicant, first, cluster, member))
}

/// A start as a member that was added to a running cluster. The grant has the IDs with which the other members are
/// asked whether it has ever started.
fn join(permit: &Permit, applicant: &Applicant<'_>) -> Result<Grant, Refusal> {
    startable_anew(permit, applicant)?;
    let first = first(permit, FirstState::Existing, applicant.expected)?;
    if first
        .members
        .iter()
        .all(|(name, _)| *name == applicant.expected.member)
    {
        return Err(Refusal::NoPeers);
    }
    let cluster = id(permit.cluster_id.as_deref(), "clusterID")?;
    let member = id(permit.member_id.as_deref(), "memberID")?;
    let mut grant = Grant::anew(applicant, first, Some(cluster), Some(member));
    grant.unstarted = Some((cluster, member));
    Ok(grant)
}

/// Whether a disk may start without data: it is empty, it has no log, or its data are of an earlier incarnation than
/// the permit's.
fn startable_anew(permit: &Permit, applicant: &Applicant<'_>) -> Result<(), Refusal> {
    match applicant.verdict {
        Verdict::Empty | Verdict::Unborn => Ok(()),
        Verdict::OtherIncarnation { found } if *found < permit.incarnation => Ok(()),
        verdict => Err(Refusal::forbidden(permit.mode, verdict)),
    }
}

/// A start with the data of the disk, on another volume than before. Its log must be of the permitted IDs.
fn resume(permit: &Permit, applicant: &Applicant<'_>) -> Result<Grant, Refusal> {
    if *applicant.verdict != Verdict::Moved {
        return Err(Refusal::forbidden(permit.mode, applicant.verdict));
    }
    let head = whole(applicant)?;
    matching_ids(permit, head)?;
    Ok(Grant::as_it_is(applicant, head))
}

/// A start on a foreign disk, with the user's consent. Its data must be intact and of the permitted IDs. If it has an
/// identity, that must be of this member, this incarnation and this volume: a copy is refused.
fn adopt(permit: &Permit, applicant: &Applicant<'_>) -> Result<Grant, Refusal> {
    if *applicant.verdict != Verdict::Foreign {
        return Err(Refusal::forbidden(permit.mode, applicant.verdict));
    }
    let head = whole(applicant)?;
    matching_ids(permit, head)?;
    let own = first(permit, FirstState::Existing, applicant.expected)?;
    let disk = applicant.disk;
    if let Some(identity) = disk.identity.found() {
        if identity.member != applicant.expected.member {
            return Err(Refusal::OtherMember(identity.member.clone()));
        }
        if identity.incarnation != permit.incarnation {
            return Err(Refusal::DiskIncarnation {
                permitted: permit.incarnation,
                found: identity.incarnation,
            });
        }
        if let Some(kind) = identity.fingerprint.difference(&disk.fingerprint) {
            return Err(Refusal::Copy(kind.to_owned()));
        }
    }
    own_members_only(&own, applicant, head)?;
    Ok(Grant::as_it_is(applicant, head))
}

/// The database must list exactly the peer URLs that the permit names for each member. Otherwise the member would dial,
/// and count for, another cluster.
fn own_members_only(own: &First, applicant: &Applicant<'_>, head: LogHead) -> Result<(), Refusal> {
    let listed = applicant.disk.store().map_or(&[][..], |store| &store.members);
    let this = listed
        .iter()
        .find(|member| member.id == head.member.to_string())
        .ok_or(Refusal::NotListed(head.member))?;
    for member in listed {
        for url in &member.peer_urls {
            let owner = own
                .members
                .iter()
                .find(|(_, known)| url.parse().as_ref() == Ok(known))
                .map(|(name, _)| name);
            let is_strange = match owner {
                None => true,
                Some(name) => (member.id == this.id) != (*name == applicant.expected.member),
            };
            if is_strange {
                return Err(Refusal::StrangePeer(url.clone()));
            }
        }
    }
    Ok(())
}

/// The head of the log, if the disk has data with which etcd can start.
fn whole(applicant: &Applicant<'_>) -> Result<LogHead, Refusal> {
    let store = applicant.disk.store().ok_or(Refusal::NoData)?;
    store.whole().map_err(Refusal::NotWhole)
}

/// The permit must name the cluster ID and the member ID of the log.
fn matching_ids(permit: &Permit, head: LogHead) -> Result<(), Refusal> {
    let cluster: ClusterId = id(permit.cluster_id.as_deref(), "clusterID")?;
    if cluster != head.cluster {
        return Err(Refusal::OtherIds {
            what: "cluster",
            permitted: cluster.to_string(),
            found: head.cluster.to_string(),
        });
    }
    let member: MemberId = id(permit.member_id.as_deref(), "memberID")?;
    if member != head.member {
        return Err(Refusal::OtherIds {
            what: "member",
            permitted: member.to_string(),
            found: head.member.to_string(),
        });
    }
    Ok(())
}

fn id<T: std::str::FromStr>(text: Option<&str>, field: &'static str) -> Result<T, Refusal> {
    let text = text.ok_or(Refusal::Missing(field))?;
    text.parse()
        .map_err(|_| Refusal::Malformed(field, text.to_owned()))
}

fn optional<T: std::str::FromStr>(text: Option<&str>, field: &'static str) -> Result<Option<T>, Refusal> {
    text.map(|text| id(Some(text), field)).transpose()
}

/// The initial cluster of the permit. An error if it is empty or malformed, or does not have this member.
fn first(permit: &Permit, state: FirstState, expected: &Expected) -> Result<First, Refusal> {
    if permit.initial_cluster.is_empty() {
        return Err(Refusal::Missing("initialCluster"));
    }
    let members = permit.initial_cluster.split(',').map(|entry| {
        let (name, url) = entry.split_once('=')?;
        Some((name.to_owned(), url.parse().ok()?))
    });
    let members: Option<Vec<_>> = members.collect();
    let members =
        members.ok_or_else(|| Refusal::Malformed("initialCluster", permit.initial_cluster.clone()))?;
    let first = First {
        state,
        token: permit.token.clone(),
        members,
    };
    if address_of(&first, &expected.member).is_none() {
        return Err(Refusal::NotInCluster(expected.member.clone()));
    }
    Ok(first)
}
