//! Starting what is on kept volumes, by a person's consent: the very volumes that were kept, of one life of one cluster
//! whose members are at this cluster's own addresses. A copy could take a living cluster's place, so nothing that is
//! not in full accord is started; the guard in the pod looks again for itself.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::{Mode, Report, Verdict};
use etcd_operator_etcd::id::{ClusterId, MemberId};
use etcd_operator_etcd::url::PeerUrl;

use super::grants::{self, Terms};
use super::{Leave, PodRef, Proposal, Reason, Situation, Step, bootstrap, majority};
use crate::intent::{Grant, What};
use crate::memory::{Admitted, Memory};
use crate::world::{Ordinal, Pod};

/// What a kept volume says of itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    cluster: String,
    incarnation: i64,
    members: BTreeSet<Ordinal>,
}

/// What to do about kept volumes; none unless a person wants them to be taken over.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory) -> Option<Proposal> {
    let world = situation.world;
    if world.adopt.is_empty() {
        return None;
    }
    let mut lives: BTreeMap<Life, Vec<Ordinal>> = BTreeMap::new();
    let mut against = Vec::new();
    // Whoever was started does not wait any more, and its volume is this cluster's own by now.
    let begun = match memory.intent.as_ref().map(|intent| &intent.what) {
        Some(What::Adopt(targets)) => targets.clone(),
        _ => BTreeMap::new(),
    };
    let mut started = 0;
    for place in world
        .members
        .keys()
        .filter(|place| situation.is_taken_over(**place))
    {
        let report = reported(situation, *place);
        let waits = report.is_some_and(|(_, report)| report.verdict == Verdict::Foreign);
        if begun.contains_key(place) && !waits {
            started += 1;
            continue;
        }
        let Some((_, report)) = report else {
            let why = super::silent::why(situation, *place);
            against.push(format!("{} {why}", world.name(*place)));
            continue;
        };
        match life(situation, *place, report) {
            Ok(life) => lives.entry(life).or_default().push(*place),
            Err(why) => against.push(format!("{} {why}", world.name(*place))),
        }
    }
    let blocked = |text: &str, by: Vec<String>| {
        Some(Proposal {
            intent: memory.intent.as_ref().map(|intent| intent.what.clone()),
            ..Proposal::idle(Reason::Blocked, text).blocked_by(by)
        })
    };
    if lives.len() > 1 {
        let found = lives.iter().map(|(life, places)| {
            let names: Vec<_> = places.iter().map(|place| world.name(*place)).collect();
            format!(
                "{} hold etcd cluster {}, incarnation {}",
                names.join(", "),
                life.cluster,
                life.incarnation
            )
        });
        return blocked(
            "The kept volumes are of different clusters or moments, so none is started.",
            found.collect(),
        );
    }
    let Some((life, places)) = lives.into_iter().next() else {
        if started > 0 {
            let text = "Waiting for the members that were started on their kept volumes.";
            return Some(
                Proposal::going(What::Adopt(begun), Reason::Bootstrapping, text).blocked_by(against),
            );
        }
        against.extend(bootstrap::misspelt(world));
        let text = "Waiting for the members to report what is on the kept volumes.";
        return blocked(text, against);
    };
    if started + places.len() < majority(life.members.len()) {
        let text = format!(
            "Only {} of {} kept volumes are taken over with a size of {}, which is no quorum: none is started. Name all that were kept in the annotation, and set a size that is large enough for {}.",
            started + places.len(),
            life.members.len(),
            world.desired.size.get(),
            life.members
                .iter()
                .map(|place| world.name(*place))
                .collect::<Vec<_>>()
                .join(", ")
        );
        return blocked(&text, against);
    }
    Some(start(situation, memory, &life, (&places, begun)))
}

/// Whether a member of this cluster, which works already, waits on the volume that was its own under an EtcdCluster of before,
/// and a person wants that to be taken over: it came late, or missed its permit. Not if it has been seen with more in this
/// life: then what lies there was put back.
pub fn is_kept(situation: &Situation<'_>, cluster: ClusterId, place: Ordinal, member: MemberId) -> bool {
    kept(situation, cluster, place, member).is_some()
}

/// What waits there, and of whose life it is.
fn kept<'a>(
    situation: &Situation<'a>,
    cluster: ClusterId,
    place: Ordinal,
    member: MemberId,
) -> Option<(&'a Pod, &'a Report, Life)> {
    let world = situation.world;
    let (pod, report) = situation.report(place, world.memory.incarnation)?;
    let is = |id: &Option<String>, of: &str| id.as_deref() == Some(of);
    let has_gone_back = |before: &Admitted| before.has_gone_back(pod);
    let is_its_own = situation.is_taken_over(place)
        && is(&report.wal_cluster_id, &cluster.to_string())
        && is(&report.wal_member_id, &member.to_string())
        && !world.memory.members.get(&place).is_some_and(has_gone_back);
    let life = is_its_own.then(|| life(situation, place, report).ok())??;
    (life.incarnation == world.memory.incarnation).then_some((pod, report, life))
}

/// Lets it start there.
pub fn late(
    situation: &Situation<'_>,
    cluster: ClusterId,
    place: Ordinal,
    member: MemberId,
) -> Option<Proposal> {
    let world = situation.world;
    let (pod, report, life) = kept(situation, cluster, place, member)?;
    let grant = grants::grant(pod, report);
    let terms = Terms {
        mode: Mode::Adopt,
        incarnation: life.incarnation,
        cluster: Some(cluster),
        member: Some(member),
        first: grants::first(world, life.members.iter().copied()),
        restore: None,
    };
    let permit = grants::permit(world, place, pod, &grant, terms);
    let text = format!("{} starts on its kept volume.", world.name(place));
    let targets = BTreeMap::from([(place, grant)]);
    let proposal = Proposal::going(What::Adopt(targets), Reason::Recovering, text);
    Some(match permit {
        Some(permit) => proposal.step(Step::Permit(vec![permit])),
        None => proposal,
    })
}

/// The same where nobody can tell who the members are: those that are remembered.
pub fn anybody_late(situation: &Situation<'_>) -> Option<Proposal> {
    let memory = &situation.world.memory;
    let cluster = memory.cluster?;
    let mut late = memory
        .members
        .iter()
        .filter_map(|(place, member)| late(situation, cluster, *place, member.id));
    late.find(|proposal| proposal.step.is_some())
}

/// What waits at a place, for whatever incarnation its pod was made.
fn reported<'a>(situation: &Situation<'a>, place: Ordinal) -> Option<(&'a Pod, &'a Report)> {
    let incarnation = situation.world.members.get(&place)?.pod.as_ref()?.incarnation;
    situation.report(place, incarnation)
}

/// What a kept volume says of itself, or why it is not taken over.
fn life(situation: &Situation<'_>, place: Ordinal, report: &Report) -> Result<Life, String> {
    let world = situation.world;
    if report.verdict != Verdict::Foreign {
        return Err(format!(
            "found its disk to be {:?} and no kept volume",
            report.verdict
        ));
    }
    let identity = report
        .identity
        .as_ref()
        .ok_or("found no identity on the volume")?;
    if identity.member != world.name(place) {
        return Err(format!("found the volume of {}", identity.member));
    }
    if let Some(kind) = identity.fingerprint.difference(&report.fingerprint) {
        return Err(format!(
            "found a copy and not the volume that was kept: its {kind} differs"
        ));
    }
    let cluster = report
        .wal_cluster_id
        .clone()
        .ok_or("found no write-ahead log on the volume")?;
    let listed = report.members.iter().map(|member| {
        let urls: Result<Vec<PeerUrl>, _> = member.peer_urls.iter().map(|url| url.parse()).collect();
        let urls = urls.map_err(|error| error.to_string())?;
        world.place_of(&urls).ok_or_else(|| {
            format!(
                "holds a member at {}, which is no address of this cluster",
                member.peer_urls.join(", ")
            )
        })
    });
    let members: BTreeSet<_> = listed.collect::<Result<_, String>>()?;
    if !members.contains(&place) {
        return Err("is not among the members on its own volume".to_owned());
    }
    Ok(Life {
        cluster,
        incarnation: identity.incarnation,
        members,
    })
}

/// Pods first get the incarnation that is on the volumes; then all that are there start.
fn start(
    situation: &Situation<'_>,
    memory: &mut Memory,
    life: &Life,
    (places, mut targets): (&[Ordinal], BTreeMap<Ordinal, Grant>),
) -> Proposal {
    let world = situation.world;
    let text = format!(
        "Taking over {} kept volumes of etcd cluster {}, incarnation {}.",
        targets.keys().chain(places).collect::<BTreeSet<_>>().len(),
        life.cluster,
        life.incarnation
    );
    for place in places {
        if let Some((pod, report)) = reported(situation, *place) {
            targets.insert(*place, grants::grant(pod, report));
        }
    }
    let proposal = Proposal::going(What::Adopt(targets.clone()), Reason::Bootstrapping, text);
    memory.incarnation = life.incarnation;
    memory.last_incarnation = memory.last_incarnation.max(life.incarnation);
    if world
        .set
        .as_ref()
        .is_none_or(|set| set.incarnation != life.incarnation)
    {
        return proposal.blocked_by(vec![
            "the pods' template gets the incarnation of the volumes".to_owned(),
        ]);
    }
    let of_another = world.members.iter().find_map(|(place, seen)| {
        let pod = seen.pod.as_ref()?;
        (pod.incarnation != life.incarnation && pod.deleting.is_none()).then(|| PodRef {
            place: *place,
            uid: pod.uid.clone(),
        })
    });
    if let Some(pod) = of_another {
        return proposal.step(Step::DeletePod {
            pod,
            leave: Leave::Usual,
        });
    }
    let first = grants::first(world, life.members.iter().copied());
    let permits = places.iter().filter_map(|place| {
        let (grant, (pod, report)) = (targets.get(place)?, reported(situation, *place)?);
        let terms = Terms {
            mode: Mode::Adopt,
            incarnation: life.incarnation,
            cluster: life.cluster.parse().ok(),
            member: report.wal_member_id.as_deref()?.parse().ok(),
            first: first.clone(),
            restore: None,
        };
        grants::permit(world, *place, pod, grant, terms)
    });
    let permits: Vec<_> = permits.collect();
    if permits.is_empty() {
        proposal
    } else {
        proposal.step(Step::Permit(permits))
    }
}
