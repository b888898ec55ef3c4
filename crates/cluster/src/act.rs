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
use etcd_operator_etcd::membership::{Known, Member, Membership as MembershipRead};
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_runtime::apply;
use etcd_operator_runtime::error::{Class, Classified};
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::observe::{Connection, Observation, annotated_uids, requested_replacement, requested_restore};
use crate::observed_state::{Ordinal, PermitDelivery, kube_objects};
use crate::persisted_state::PersistedState;
use crate::plan::{GracePeriod, Plan, PodRef, Step};
use crate::reconcile::Deps;

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
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    if let Some(why) = why_stale(plan, observation, key, deps).await? {
        return Ok(Outcome::Stale(why));
    }
    match step {
        Step::FencePods(pods) => fence_pods(pods, observation, key, deps).await,
        Step::Permit(permits) => deliver_permits(permits, observation, key, deps).await,
        Step::DeletePod { pod, grace_period } => delete_pod(pod, *grace_period, observation, key, deps).await,
        Step::DeleteClaim { ordinal, uid } => delete_claim(*ordinal, uid, observation, key, deps).await,
        Step::Add { .. }
        | Step::Promote { .. }
        | Step::MoveLeader { .. }
        | Step::Remove { .. }
        | Step::Disarm(_) => change_membership(step, observation).await,
    }
}

/// Why the intent is no longer this process's to act upon; none while it is.
async fn why_stale(
    plan: &Plan,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Option<String>, Error> {
    let Some(now) = deps.applier.read::<EtcdCluster>(key).await? else {
        return Ok(Some("the EtcdCluster is gone".to_owned()));
    };
    let observed = &observation.observed;
    let ordinal = |name: &str| Ordinal::from_name(&observed.desired.name, name);
    let written = PersistedState::read(now.status.as_ref(), ordinal);
    let is_same = now.metadata.uid.as_deref() == Some(observed.uid.as_str())
        && now.metadata.deletion_timestamp.is_none()
        && !now.spec.paused
        && now.metadata.generation.unwrap_or_default() == observed.generation
        && annotated_uids(&now, ANNOTATION_DISCARD) == observed.discard
        && annotated_uids(&now, ANNOTATION_ADOPT) == observed.adopt
        && requested_replacement(&now) == observed.replace
        && requested_restore(&now) == observed.restore
        && written.pending == plan.persisted.pending
        && written.restore == plan.persisted.restore
        && written.incarnation == plan.persisted.incarnation;
    Ok((!is_same).then(|| "the EtcdCluster has changed since it was looked at".to_owned()))
}

/// The pod of this UID as it is now.
async fn read_pod(
    pod: &PodRef,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Option<Pod>, Error> {
    let name = observation.observed.name(pod.ordinal);
    let now = deps.applier.read::<Pod>(&key.beside(&name)).await?;
    Ok(now.filter(|now| now.metadata.uid.as_deref() == Some(pod.uid.as_str())))
}

async fn fence_pods(
    pods: &[PodRef],
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let instance = observation.observed.instance.as_str();
    for pod in pods {
        if let Some(now) = read_pod(pod, observation, key, deps).await? {
            let touch = [(ANNOTATION_TAKEN_OVER, Some(instance))];
            deps.applier.annotate(&now, &touch).await?;
        }
    }
    Ok(Outcome::Done(
        "This process goes on with what another one began.".to_owned(),
    ))
}

async fn deliver_permits(
    permits: &[(PodRef, Permit)],
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let mut given = Vec::new();
    for (pod, permit) in permits {
        let name = observation.observed.name(pod.ordinal);
        let Some(now) = read_pod(pod, observation, key, deps).await? else {
            return Ok(Outcome::Stale(format!("the pod {name} is another one by now")));
        };
        if permit.mode == Mode::Resume && !has_recorded_volume(pod.ordinal, observation, key, deps).await? {
            return Ok(Outcome::Stale(format!("{name} has another volume by now")));
        }
        let text = serde_json::to_string(permit).expect("a permit is JSON");
        let before = observation.observed.member(pod.ordinal).pod.as_ref();
        let before = before.filter(|pod| pod.permit.as_ref() == Some(permit));
        let permit_delivery = before.and_then(|pod| pod.permit_delivery);
        let permit_delivery = match permit_delivery {
            Some(permit_delivery) => permit_delivery.repeat(observation.observed.now),
            None => PermitDelivery::first(observation.observed.now),
        };
        let (text, when) = (Some(text.as_str()), permit_delivery.to_string());
        deps.applier
            .annotate(
                &now,
                &[(ANNOTATION_PERMIT, text), (ANNOTATION_PERMIT_LAID, Some(&when))],
            )
            .await?;
        if permit_delivery.redeliveries == 0 {
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
async fn has_recorded_volume(
    ordinal: Ordinal,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<bool, Error> {
    let observed = &observation.observed;
    let claim = key.beside(&ordinal.claim(&observed.desired.name));
    let now = deps.applier.read::<PersistentVolumeClaim>(&claim).await?;
    let now = now.as_ref().and_then(kube_objects::read_claim);
    let recorded = observed.persisted.members.get(&ordinal);
    Ok(recorded
        .zip(now)
        .is_some_and(|(recorded, now)| recorded.is_same_volume(&now)))
}

async fn delete_pod(
    pod: &PodRef,
    grace_period: GracePeriod,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let name = observation.observed.name(pod.ordinal);
    deps.applier
        .delete_uid::<Pod>(&key.beside(&name), &pod.uid, grace_period.seconds())
        .await?;
    let how = match grace_period {
        GracePeriod::Zero => ", without waiting for its node, which is gone",
        GracePeriod::PodDefault | GracePeriod::OneSecond => "",
    };
    Ok(Outcome::Done(format!("Deleted the pod {name}{how}.")))
}

/// Data goes only when nobody is a member there, as a voter says in this very moment.
async fn delete_claim(
    ordinal: Ordinal,
    uid: &str,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let observed = &observation.observed;
    if observed.persisted.has_formed() {
        let Some(connection) = preferred_connection(observation) else {
            return Ok(Outcome::Waits("nobody can tell who the members are".to_owned()));
        };
        let is_unused = match connection.membership().await {
            MembershipRead::Known(known) => {
                let recorded = observed.persisted.members.get(&ordinal);
                let is_recorded_member =
                    recorded.is_some_and(|recorded| known.members.contains_key(&recorded.id));
                observed.etcd_member_in(&known, ordinal).is_none() && !is_recorded_member
            }
            MembershipRead::Unknown(_) => false,
        };
        if !is_unused {
            return Ok(Outcome::Stale(format!(
                "{} may be a member",
                observed.name(ordinal)
            )));
        }
    }
    let name = ordinal.claim(&observed.desired.name);
    deps.applier
        .delete_uid::<PersistentVolumeClaim>(&key.beside(&name), uid, None)
        .await?;
    Ok(Outcome::Done(format!(
        "Deleted the PersistentVolumeClaim {name}."
    )))
}

/// Whom to ask for a change of members: the leader if it was reached, else whoever told who the members are, and then the
/// other voters. Each judges by its own connections to others, and one may take them for broken that are not, for ever.
fn connections_by_preference<'a>(observation: &'a Observation, known: &Known) -> Vec<&'a Connection> {
    let probes = &observation.probes;
    let ordinal_at = |member: &Member| observation.observed.ordinal_at(&member.peer_urls);
    let leader = known.leader.and_then(|id| known.members.get(&id));
    let leader = leader
        .and_then(ordinal_at)
        .filter(|ordinal| probes.connections.contains_key(ordinal));
    let first = leader.or(probes.reader);
    let voters = known.voters().filter_map(ordinal_at);
    let others = voters.filter(|ordinal| first.is_some_and(|first| first != *ordinal));
    let all = first.into_iter().chain(others);
    all.filter_map(|ordinal| probes.connections.get(&ordinal))
        .collect()
}

/// Whom to ask first.
fn preferred_connection(observation: &Observation) -> Option<&Connection> {
    connections_by_preference(observation, observation.observed.known()?)
        .first()
        .copied()
}

/// Whether a learner answers for itself at this very moment: the leader only remembers how far it was, and would give a
/// vote to one that has lost its disk since.
async fn is_still_learner(observation: &Observation, ordinal: Ordinal, id: MemberId) -> bool {
    let Some(connection) = observation.probes.connections.get(&ordinal) else {
        return false;
    };
    let status = connection.status().await;
    status.is_ok_and(|status| status.position.member == id && status.is_learner)
}

async fn change_membership(step: &Step, observation: &Observation) -> Result<Outcome, Error> {
    let Some(known) = observation.observed.known() else {
        return Ok(Outcome::Waits("nobody can tell who the members are".to_owned()));
    };
    let mut outcome = Ok(Outcome::Waits("nobody who could be asked answers".to_owned()));
    for connection in connections_by_preference(observation, known) {
        match change_membership_through(connection, step, observation, known).await {
            ChangeReply::Rejected(error) if error.rejection() == Some(&Rejection::Unhealthy) => {
                outcome = Ok(Outcome::Waits(error.to_string()));
            }
            // Looking tells whether it was done, and a refusal for now is a normal wait.
            ChangeReply::Rejected(error)
                if error.may_have_been_done() || error.class() == EtcdClass::Waiting =>
            {
                return Ok(Outcome::Waits(error.to_string()));
            }
            ChangeReply::Rejected(error) => return Err(error.into()),
            ChangeReply::Done(done) => return Ok(done),
        }
    }
    outcome
}

/// What one member says to a change.
enum ChangeReply {
    Done(Outcome),
    Rejected(etcd::error::Error),
}

impl ChangeReply {
    fn from_result(answer: Result<(), etcd::error::Error>, text: String) -> Self {
        match answer {
            Ok(()) => Self::Done(Outcome::Done(text)),
            Err(error) => Self::Rejected(error),
        }
    }
}

async fn change_membership_through(
    connection: &Connection,
    step: &Step,
    observation: &Observation,
    known: &Known,
) -> ChangeReply {
    let observed = &observation.observed;
    match connection.membership().await {
        MembershipRead::Known(now) if now.members == known.members && now.cluster == known.cluster => {}
        MembershipRead::Known(_) => {
            return ChangeReply::Done(Outcome::Stale("the members have changed".to_owned()));
        }
        MembershipRead::Unknown(why) => return ChangeReply::Done(Outcome::Waits(why.to_string())),
    }
    match step {
        Step::Add { ordinal, learner } => {
            let urls = [observed.peer_url(*ordinal)];
            let answer = if *learner {
                connection.add_learner(&urls).await
            } else {
                connection.add_voter(&urls).await
            };
            let text = format!("Added {} to the members.", observed.name(*ordinal));
            match answer {
                Ok(answer) => ChangeReply::Done(Outcome::Added(answer.member.id, text)),
                Err(error) => ChangeReply::Rejected(error),
            }
        }
        Step::Promote { ordinal, id } => {
            if !is_still_learner(observation, *ordinal, *id).await {
                let text = format!(
                    "{} does not answer as the learner any more",
                    observed.name(*ordinal)
                );
                return ChangeReply::Done(Outcome::Stale(text));
            }
            let text = format!("Gave {} a vote.", observed.name(*ordinal));
            ChangeReply::from_result(connection.promote(*id).await.map(drop), text)
        }
        Step::MoveLeader { from, to } => {
            let Some(leader) = observation.probes.connections.get(from) else {
                let text = format!("{} does not answer", observed.name(*from));
                return ChangeReply::Done(Outcome::Waits(text));
            };
            let text = format!("Moved leadership away from {}.", observed.name(*from));
            ChangeReply::from_result(leader.move_leader(*to).await, text)
        }
        Step::Remove { ordinal, id } => {
            let who = ordinal.map_or_else(|| format!("member {id}"), |ordinal| observed.name(ordinal));
            let text = format!("Took {who} out of the members.");
            ChangeReply::from_result(connection.remove(*id).await.map(drop), text)
        }
        Step::Disarm(alarm) => {
            let text = format!("Took back the alarm {} of a member that is no more.", alarm.kind);
            ChangeReply::from_result(connection.disarm(*alarm).await, text)
        }
        Step::FencePods(_) | Step::Permit(_) | Step::DeletePod { .. } | Step::DeleteClaim { .. } => {
            ChangeReply::Done(Outcome::Stale("this step is not about members".to_owned()))
        }
    }
}

/// A step as the reason of an Event.
pub fn event_reason(step: &Step) -> &'static str {
    match step {
        Step::FencePods(_) => "TakenOver",
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
