//! Taking the one step of a plan. The intent stands in the status when this is called; it is read again, past every
//! copy, and so is what the step is about. Whatever is no longer as it was seen makes the step stale: nothing is done,
//! and all is looked at anew.

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::contract::{Mode, Permit};
use etcd_operator_api::names::{
    ANNOTATION_ADOPT, ANNOTATION_DISCARD, ANNOTATION_PERMIT, ANNOTATION_PERMIT_LAID, ANNOTATION_TAKEN_OVER,
};
use etcd_operator_etcd as etcd;
use etcd_operator_etcd::error::Class as EtcdClass;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member, Membership as Read};
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_runtime::apply;
use etcd_operator_runtime::error::{Class, Classified};
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::memory::Memory;
use crate::observe::{Connection, Observed, consent, given_up, restore};
use crate::plan::{Leave, Plan, PodRef, Step};
use crate::reconcile::Deps;
use crate::world::{Laid, Ordinal, reading};

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was taken; in words.
    Done(String),
    /// A member was added under this ID; in words.
    Added(MemberId, String),
    /// Something had changed, so nothing was done.
    Stale(String),
    /// etcd does not want it yet, or whether it was done must be looked up: a normal wait.
    Waits(String),
}

/// Why a step could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error(transparent)]
    Api(#[from] apply::Error),
    /// etcd.
    #[error(transparent)]
    Etcd(#[from] etcd::error::Error),
}

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::Api(error) => error.class(),
            // Members are looked at anew each time, so that there is nothing about them that a person must first mend.
            Self::Etcd(_) => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason(),
            Self::Etcd(_) => "EtcdRefuses",
        }
    }
}

/// Takes a step.
pub async fn act(
    step: &Step,
    plan: &Plan,
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    if let Some(why) = superseded(plan, observed, key, deps).await? {
        return Ok(Outcome::Stale(why));
    }
    match step {
        Step::TakeOver(pods) => take_over(pods, observed, key, deps).await,
        Step::Permit(permits) => permit(permits, observed, key, deps).await,
        Step::DeletePod { pod, leave } => delete_pod(pod, *leave, observed, key, deps).await,
        Step::DeleteClaim { place, uid } => delete_claim(*place, uid, observed, key, deps).await,
        Step::Add { .. }
        | Step::Promote { .. }
        | Step::MoveLeader { .. }
        | Step::Remove { .. }
        | Step::Disarm(_) => change_members(step, observed).await,
    }
}

/// Why the intent is no longer this process's to act upon; none while it is.
async fn superseded(
    plan: &Plan,
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Option<String>, Error> {
    let Some(now) = deps.applier.read::<EtcdCluster>(key).await? else {
        return Ok(Some("the EtcdCluster is gone".to_owned()));
    };
    let world = &observed.world;
    let place = |name: &str| Ordinal::of_name(&world.desired.name, name);
    let written = Memory::read(now.status.as_ref(), place);
    let is_same = now.metadata.uid.as_deref() == Some(world.uid.as_str())
        && now.metadata.deletion_timestamp.is_none()
        && !now.spec.paused
        && now.metadata.generation.unwrap_or_default() == world.generation
        && consent(&now, ANNOTATION_DISCARD) == world.discard
        && consent(&now, ANNOTATION_ADOPT) == world.adopt
        && given_up(&now) == world.replace
        && restore(&now) == world.restore
        && written.intent == plan.memory.intent
        && written.restore == plan.memory.restore
        && written.incarnation == plan.memory.incarnation;
    Ok((!is_same).then(|| "the EtcdCluster has changed since it was looked at".to_owned()))
}

/// The pod of this UID as it is now.
async fn pod_now(
    pod: &PodRef,
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Option<Pod>, Error> {
    let name = observed.world.name(pod.place);
    let now = deps.applier.read::<Pod>(&key.beside(&name)).await?;
    Ok(now.filter(|now| now.metadata.uid.as_deref() == Some(pod.uid.as_str())))
}

async fn take_over(
    pods: &[PodRef],
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let instance = observed.world.instance.as_str();
    for pod in pods {
        if let Some(now) = pod_now(pod, observed, key, deps).await? {
            let touch = [(ANNOTATION_TAKEN_OVER, Some(instance))];
            deps.applier.annotate(&now, &touch).await?;
        }
    }
    Ok(Outcome::Done(
        "This process goes on with what another one began.".to_owned(),
    ))
}

async fn permit(
    permits: &[(PodRef, Permit)],
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let mut given = Vec::new();
    for (pod, permit) in permits {
        let name = observed.world.name(pod.place);
        let Some(now) = pod_now(pod, observed, key, deps).await? else {
            return Ok(Outcome::Stale(format!("the pod {name} is another one by now")));
        };
        if permit.mode == Mode::Resume && !is_on_its_own(pod.place, observed, key, deps).await? {
            return Ok(Outcome::Stale(format!("{name} has another volume by now")));
        }
        let text = serde_json::to_string(permit).expect("a permit is JSON");
        let before = observed.world.seen(pod.place).pod.as_ref();
        let before = before.filter(|pod| pod.permit.as_ref() == Some(permit));
        let laid = before.and_then(|pod| pod.laid);
        let laid = match laid {
            Some(laid) => laid.anew(observed.world.now),
            None => Laid::first(observed.world.now),
        };
        let (text, when) = (Some(text.as_str()), laid.to_string());
        deps.applier
            .annotate(
                &now,
                &[(ANNOTATION_PERMIT, text), (ANNOTATION_PERMIT_LAID, Some(&when))],
            )
            .await?;
        if laid.again == 0 {
            given.push(name);
        }
    }
    if given.is_empty() {
        return Ok(Outcome::Waits(
            "A permit that was not taken is laid there again.".to_owned(),
        ));
    }
    let mode = permits
        .first()
        .map(|(_, permit)| format!("{:?}", permit.mode).to_lowercase());
    Ok(Outcome::Done(format!(
        "Permitted {} to start ({}).",
        given.join(", "),
        mode.unwrap_or_default()
    )))
}

/// Whether the volume at a place is, in this very moment, the one that is noted as its member's own.
async fn is_on_its_own(
    place: Ordinal,
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<bool, Error> {
    let world = &observed.world;
    let claim = key.beside(&place.claim(&world.desired.name));
    let now = deps.applier.read::<PersistentVolumeClaim>(&claim).await?;
    let now = now.as_ref().and_then(reading::claim);
    let noted = world.memory.members.get(&place);
    Ok(noted.zip(now).is_some_and(|(noted, now)| noted.is_on(&now)))
}

async fn delete_pod(
    pod: &PodRef,
    leave: Leave,
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let name = observed.world.name(pod.place);
    deps.applier
        .delete_uid::<Pod>(&key.beside(&name), &pod.uid, leave.seconds())
        .await?;
    let how = match leave {
        Leave::None => ", without waiting for its node, which is gone",
        Leave::Usual | Leave::Short => "",
    };
    Ok(Outcome::Done(format!("Deleted the pod {name}{how}.")))
}

/// Data goes only when nobody is a member there, as a voter says in this very moment.
async fn delete_claim(
    place: Ordinal,
    uid: &str,
    observed: &Observed,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let world = &observed.world;
    if world.memory.has_formed() {
        let Some(connection) = speaker(observed) else {
            return Ok(Outcome::Waits("nobody can tell who the members are".to_owned()));
        };
        let is_nobodys = match connection.membership().await {
            Read::Known(known) => {
                let noted = world.memory.members.get(&place);
                let is_noted_one = noted.is_some_and(|noted| known.members.contains_key(&noted.id));
                world.member_among(&known, place).is_none() && !is_noted_one
            }
            Read::Unknown(_) => false,
        };
        if !is_nobodys {
            return Ok(Outcome::Stale(format!("{} may be a member", world.name(place))));
        }
    }
    let name = place.claim(&world.desired.name);
    deps.applier
        .delete_uid::<PersistentVolumeClaim>(&key.beside(&name), uid, None)
        .await?;
    Ok(Outcome::Done(format!(
        "Deleted the PersistentVolumeClaim {name}."
    )))
}

/// Whom to ask for a change of members: the leader if it was reached, else whoever told who the members are, and then the
/// other voters. Each judges by its own connections to others, and one may take them for broken that are not, for ever.
fn speakers<'a>(observed: &'a Observed, known: &Known) -> Vec<&'a Connection> {
    let reached = &observed.reached;
    let place_of = |member: &Member| observed.world.place_of(&member.peer_urls);
    let leader = known.leader.and_then(|id| known.members.get(&id));
    let leader = leader
        .and_then(place_of)
        .filter(|place| reached.connections.contains_key(place));
    let first = leader.or(reached.reader);
    let voters = known.voters().filter_map(place_of);
    let others = voters.filter(|place| first.is_some_and(|first| first != *place));
    let all = first.into_iter().chain(others);
    all.filter_map(|place| reached.connections.get(&place)).collect()
}

/// Whom to ask first.
fn speaker(observed: &Observed) -> Option<&Connection> {
    speakers(observed, observed.world.known()?).first().copied()
}

/// Whether a learner answers for itself at this very moment: the leader only remembers how far it was, and would give a
/// vote to one that has lost its disk since.
async fn still_learns(observed: &Observed, place: Ordinal, id: MemberId) -> bool {
    let Some(connection) = observed.reached.connections.get(&place) else {
        return false;
    };
    let status = connection.status().await;
    status.is_ok_and(|status| status.position.member == id && status.is_learner)
}

async fn change_members(step: &Step, observed: &Observed) -> Result<Outcome, Error> {
    let Some(known) = observed.world.known() else {
        return Ok(Outcome::Waits("nobody can tell who the members are".to_owned()));
    };
    let mut outcome = Ok(Outcome::Waits("nobody who could be asked answers".to_owned()));
    for connection in speakers(observed, known) {
        match change_through(connection, step, observed, known).await {
            Said::No(error) if error.rejection() == Some(&Rejection::Unhealthy) => {
                outcome = Ok(Outcome::Waits(error.to_string()));
            }
            // Looking tells whether it was done, and a refusal for now is a normal wait.
            Said::No(error) if error.may_have_been_done() || error.class() == EtcdClass::Waiting => {
                return Ok(Outcome::Waits(error.to_string()));
            }
            Said::No(error) => return Err(error.into()),
            Said::Done(done) => return Ok(done),
        }
    }
    outcome
}

/// What one member says to a change.
enum Said {
    Done(Outcome),
    No(etcd::error::Error),
}

impl Said {
    fn of(answer: Result<(), etcd::error::Error>, text: String) -> Self {
        match answer {
            Ok(()) => Self::Done(Outcome::Done(text)),
            Err(error) => Self::No(error),
        }
    }
}

async fn change_through(connection: &Connection, step: &Step, observed: &Observed, known: &Known) -> Said {
    let world = &observed.world;
    match connection.membership().await {
        Read::Known(now) if now.members == known.members && now.cluster == known.cluster => {}
        Read::Known(_) => return Said::Done(Outcome::Stale("the members have changed".to_owned())),
        Read::Unknown(why) => return Said::Done(Outcome::Waits(why.to_string())),
    }
    match step {
        Step::Add { place, learner } => {
            let urls = [world.peer_url(*place)];
            let answer = if *learner {
                connection.add_learner(&urls).await
            } else {
                connection.add_voter(&urls).await
            };
            let text = format!("Added {} to the members.", world.name(*place));
            match answer {
                Ok(answer) => Said::Done(Outcome::Added(answer.member.id, text)),
                Err(error) => Said::No(error),
            }
        }
        Step::Promote { place, id } => {
            if !still_learns(observed, *place, *id).await {
                let text = format!("{} does not answer as the learner any more", world.name(*place));
                return Said::Done(Outcome::Stale(text));
            }
            let text = format!("Gave {} a vote.", world.name(*place));
            Said::of(connection.promote(*id).await.map(drop), text)
        }
        Step::MoveLeader { from, to } => {
            let Some(leader) = observed.reached.connections.get(from) else {
                let text = format!("{} does not answer", world.name(*from));
                return Said::Done(Outcome::Waits(text));
            };
            let text = format!("Moved leadership away from {}.", world.name(*from));
            Said::of(leader.move_leader(*to).await, text)
        }
        Step::Remove { place, id } => {
            let who = place.map_or_else(|| format!("member {id}"), |place| world.name(place));
            let text = format!("Took {who} out of the members.");
            Said::of(connection.remove(*id).await.map(drop), text)
        }
        Step::Disarm(alarm) => {
            let text = format!("Took back the alarm {} of a member that is no more.", alarm.kind);
            Said::of(connection.disarm(*alarm).await, text)
        }
        Step::TakeOver(_) | Step::Permit(_) | Step::DeletePod { .. } | Step::DeleteClaim { .. } => {
            Said::Done(Outcome::Stale("this step is not about members".to_owned()))
        }
    }
}

/// A step as the reason of an Event.
pub fn name(step: &Step) -> &'static str {
    match step {
        Step::TakeOver(_) => "TakenOver",
        Step::Permit(_) => "StartPermitted",
        Step::Add { .. } => "MemberAdded",
        Step::Promote { .. } => "MemberPromoted",
        Step::MoveLeader { .. } => "LeaderMoved",
        Step::Remove { .. } => "MemberRemoved",
        Step::DeletePod { .. } => "PodDeleted",
        Step::DeleteClaim { .. } => "VolumeDeleted",
        Step::Disarm(_) => "AlarmDisarmed",
    }
}
