//! Executes the one step of a plan. The pending operation is persisted in the status before this is called.
//!
//! Before the step, the `EtcdCluster` and the objects of the step are read from the API server, and the membership from
//! etcd. If anything differs from what was observed, the step is stale: nothing is changed, and the next reconcile observes
//! again. Every change needs a permit of the leader, those of etcd included.

mod cancel_downgrade;
mod confirm_silence;
mod request_backup;
mod restart;

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::contract::{Mode, Permit};
use etcd_operator_api::names::{
    ANNOTATION_ADOPT, ANNOTATION_DISCARD, ANNOTATION_PERMIT, ANNOTATION_PERMIT_LAID, ANNOTATION_TAKEN_OVER,
};
use etcd_operator_cluster_core::observed_state::{Ordinal, PermitDelivery, kube_objects};
use etcd_operator_cluster_core::persisted_state::PersistedState;
use etcd_operator_cluster_core::plan::{GracePeriod, Plan, PodRef, Step};
use etcd_operator_etcd as etcd;
use etcd_operator_etcd::error::Class as EtcdClass;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member, Membership as MembershipRead};
use etcd_operator_etcd::port::Port;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::status::Alarm;
use etcd_operator_etcd::url::PeerUrl;
use etcd_operator_etcd::version::Version;
use etcd_operator_runtime::apply;
use etcd_operator_runtime::error::{Class, Classified};
use etcd_operator_runtime::fence::{NotLeading, WritePermit};
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::observe::{Connection, Observation, annotated_uids, requested_replacement, requested_restore};
use crate::reconcile::Deps;
use cancel_downgrade::{cancel_hidden_downgrade, may_hide_downgrade};
use confirm_silence::why_not_silent;

pub use cancel_downgrade::cancel_before_template;

/// How many entries of the raft log are written in one step: it lasts seconds, and the next reconcile observes how far that came.
const MAX_LOG_ENTRIES: u64 = 5_000;

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The step is done. The text goes into an Event.
    Done(String),
    /// etcd added a member under this ID. The text goes into an Event.
    Added(MemberId, String),
    /// Something has changed since it was observed, so nothing was done.
    Stale(String),
    /// The API server does not evict the pod now. Its message.
    EvictionRefused(String),
    /// etcd refuses the change for now, or it is unknown whether the change was made. The next reconcile finds out.
    Waits(String),
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the API server failed, or this process is not the leader.
    #[error(transparent)]
    Api(#[from] apply::Error),
    /// A call of etcd failed.
    #[error(transparent)]
    Etcd(#[from] etcd::error::Error),
}

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::Api(error) => error.class(),
            // The next reconcile observes the members again, so no error of theirs needs a person.
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

/// Executes the step of a plan, unless the `EtcdCluster` has changed since it was observed: then it is stale.
pub async fn act(
    step: &Step,
    plan: &Plan,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let pending = plan.persisted.pending.as_ref().map(|pending| &pending.operation);
    let reports = deps.member_clients.reports.as_ref();
    if let Some(why) = why_not_silent(step, pending, &observation.observed, reports).await {
        return Ok(Outcome::Waits(why));
    }
    if let Some(why) = why_stale(plan, observation, key, deps).await? {
        return Ok(Outcome::Stale(why));
    }
    match step {
        Step::FencePods(pods) => fence_pods(pods, observation, key, deps).await,
        Step::Permit(permits) => deliver_permits(permits, observation, key, deps).await,
        Step::DeletePod { pod, grace_period } => delete_pod(pod, *grace_period, observation, key, deps).await,
        Step::RestartPod {
            pod,
            others,
            departure,
            lowered_to,
        } => {
            let restart = restart::Restart {
                pod,
                others,
                departure: *departure,
                lowered_to: *lowered_to,
            };
            restart::restart_pod(restart, observation, key, deps).await
        }
        Step::DeleteStoppedPod {
            pod,
            resource_version,
        } => restart::delete_stopped_pod(pod, resource_version, observation, key, deps).await,
        Step::DeleteClaim { ordinal, uid } => delete_claim(*ordinal, uid, observation, key, deps).await,
        Step::RequestBackup(request) => request_backup::request_backup(request, key, &deps.applier).await,
        Step::Add { .. }
        | Step::Promote { .. }
        | Step::MoveLeader { .. }
        | Step::Remove { .. }
        | Step::Disarm(_)
        | Step::WriteLogEntries(_)
        | Step::EnableDowngrade { .. }
        | Step::CancelDowngrade { .. } => change_membership(step, observation, deps).await,
    }
}

/// Why the step is stale; `None` if the `EtcdCluster` and what its status records are as observed. It is stale if the
/// cluster is paused or being deleted, too.
async fn why_stale(
    plan: &Plan,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Option<String>, Error> {
    let Some(now) = deps.applier.read::<EtcdCluster>(key).await? else {
        return Ok(Some("the EtcdCluster does not exist any more".to_owned()));
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
        && (!is_rollout_step(plan) || written.rollout == plan.persisted.rollout)
        && written.restore == plan.persisted.restore
        && written.incarnation == plan.persisted.incarnation;
    Ok((!is_same).then(|| "the EtcdCluster has changed since it was observed".to_owned()))
}

/// Whether the step is one of a rollout, which the status names before it is taken.
fn is_rollout_step(plan: &Plan) -> bool {
    matches!(
        plan.step,
        Some(
            Step::RestartPod { .. }
                | Step::DeleteStoppedPod { .. }
                | Step::RequestBackup(_)
                | Step::WriteLogEntries(_)
                | Step::EnableDowngrade { .. }
                | Step::CancelDowngrade { .. }
        )
    )
}

/// Reads a pod from the API server; `None` if no pod of this UID exists.
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

/// Changes each of these pods: the API server then rejects a permit that a previous leader sends for the pod as it was.
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
        "Fenced the waiting pods: permits of the previous leader no longer apply.".to_owned(),
    ))
}

/// Writes permits into annotations of their pods. If all of them were written before and are only repeated, the step
/// waits.
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
            return Ok(Outcome::Stale(format!("pod {name} was replaced")));
        };
        if permit.mode == Mode::Resume && !has_recorded_volume(pod.ordinal, observation, key, deps).await? {
            return Ok(Outcome::Stale(format!("{name} has another volume")));
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
            "delivered a permit again that its pod has not used".to_owned(),
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

/// Whether the claim of an ordinal, as the API server has it now, is bound to the volume recorded for the member.
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

/// Deletes the pod of this UID. One that no longer exists counts as deleted; another one of that name is a conflict.
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
    Ok(Outcome::Done(format!("Deleted pod {name}{how}.")))
}

/// Deletes the claim of an ordinal, unless the membership, read from etcd now, has a member there.
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
            return Ok(Outcome::Waits(MEMBERSHIP_UNKNOWN.to_owned()));
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
    Ok(Outcome::Done(format!("Deleted PersistentVolumeClaim {name}.")))
}

/// The connections for a change of the membership, in the order in which they are tried: the leader, or else the member
/// that returned the membership; then the other voters.
///
/// A member judges the health of the others by its own connections, and may refuse a change forever because of one that
/// is broken.
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

/// The connection that is tried first; `None` while the membership is unknown or neither leader nor reader is
/// connected.
fn preferred_connection(observation: &Observation) -> Option<&Connection> {
    connections_by_preference(observation, observation.observed.known()?)
        .first()
        .copied()
}

/// Asks a learner itself whether it is one. The leader remembers its progress, and would promote a learner that has lost
/// its disk since.
async fn is_still_learner(observation: &Observation, ordinal: Ordinal, id: MemberId) -> bool {
    let Some(connection) = observation.probes.connections.get(&ordinal) else {
        return false;
    };
    let status = connection.status().await;
    status.is_ok_and(|status| status.position.member == id && status.is_learner)
}

/// The membership as observed is unknown.
const MEMBERSHIP_UNKNOWN: &str = "the membership is unknown";

/// Makes a change through etcd. While a voter refuses it as unhealthy, the next one is tried.
async fn change_membership(step: &Step, observation: &Observation, deps: &Deps) -> Result<Outcome, Error> {
    let Some(known) = observation.observed.known() else {
        return Ok(Outcome::Waits(MEMBERSHIP_UNKNOWN.to_owned()));
    };
    let mut outcome = Ok(Outcome::Waits("no voter answers".to_owned()));
    for connection in connections_by_preference(observation, known) {
        match change_membership_through(connection, step, observation, known, deps).await? {
            ChangeReply::Rejected(error) if error.rejection() == Some(&Rejection::Unhealthy) => {
                outcome = Ok(Outcome::Waits(error.to_string()));
            }
            // The next reconcile finds out whether the change was made. A temporary refusal is a normal wait.
            ChangeReply::Rejected(error)
                if error.may_have_been_done() || error.class() == EtcdClass::Waiting =>
            {
                return Ok(Outcome::Waits(error.to_string()));
            }
            // Another call has done it, or etcd itself has.
            ChangeReply::Rejected(error)
                if matches!(
                    error.rejection(),
                    Some(Rejection::DowngradeEnabled | Rejection::NoDowngrade)
                ) =>
            {
                return Ok(Outcome::Stale(error.to_string()));
            }
            ChangeReply::Rejected(error) => return Err(error.into()),
            ChangeReply::Done(done) => return Ok(done),
        }
    }
    outcome
}

/// The reply of one member to a change.
enum ChangeReply {
    Done(Outcome),
    Rejected(etcd::error::Error),
}

/// A change that one call of etcd makes.
#[derive(Clone, Debug)]
enum Change {
    AddLearner(PeerUrl),
    AddVoter(PeerUrl),
    Promote(MemberId),
    MoveLeader(MemberId),
    Remove(MemberId),
    Disarm(Alarm),
    WriteLogEntries(u64),
    EnableDowngrade(Version),
    CancelDowngrade,
}

/// Sends a change to a member. Returns the ID of an added member.
///
/// The call needs a permit like a write to the API server: a process that was stopped between its observation and the
/// call must not change a membership for which another leader is responsible now.
async fn send_change(
    member: &dyn Port,
    change: Change,
    permit: WritePermit,
) -> Result<Result<Option<MemberId>, etcd::error::Error>, NotLeading> {
    let call = async {
        match change {
            Change::AddLearner(url) => {
                let added = member.add_learner(&[url]).await?;
                return Ok(Some(added.member.id));
            }
            Change::AddVoter(url) => {
                let added = member.add_voter(&[url]).await?;
                return Ok(Some(added.member.id));
            }
            Change::Promote(id) => drop(member.promote(id).await?),
            Change::MoveLeader(to) => member.move_leader(to).await?,
            Change::Remove(id) => drop(member.remove(id).await?),
            Change::Disarm(alarm) => member.disarm(alarm).await?,
            Change::WriteLogEntries(count) => member.write_log_entries(count).await?,
            Change::EnableDowngrade(target) => {
                member.validate_downgrade(&target).await?;
                member.enable_downgrade(&target).await?;
            }
            Change::CancelDowngrade => member.cancel_downgrade().await?,
        }
        Ok(None)
    };
    permit.spend(call).await
}

/// Sends a change through one member, once that has returned the membership by a linearizable read, and as it was
/// observed.
async fn change_membership_through(
    connection: &Connection,
    step: &Step,
    observation: &Observation,
    known: &Known,
    deps: &Deps,
) -> Result<ChangeReply, Error> {
    let observed = &observation.observed;
    match connection.membership().await {
        MembershipRead::Known(now) if now.members == known.members && now.cluster == known.cluster => {}
        MembershipRead::Known(_) => {
            return Ok(ChangeReply::Done(Outcome::Stale(
                "the membership has changed".to_owned(),
            )));
        }
        MembershipRead::Unknown(why) => return Ok(ChangeReply::Done(Outcome::Waits(why.to_string()))),
    }
    let mut target = connection;
    let (change, text) = match step {
        Step::Add { ordinal, learner } => {
            let (url, name) = (observed.peer_url(*ordinal), observed.name(*ordinal));
            if *learner {
                (Change::AddLearner(url), format!("Added learner {name}."))
            } else {
                (Change::AddVoter(url), format!("Added voter {name}."))
            }
        }
        Step::Promote { ordinal, id } => {
            let name = observed.name(*ordinal);
            if !is_still_learner(observation, *ordinal, *id).await {
                let text = format!("{name} does not confirm that it is a learner");
                return Ok(ChangeReply::Done(Outcome::Stale(text)));
            }
            (Change::Promote(*id), format!("Promoted learner {name} to voter."))
        }
        Step::MoveLeader { from, to } => {
            let name = observed.name(*from);
            let Some(leader) = observation.probes.connections.get(from) else {
                let text = format!("{name} does not answer");
                return Ok(ChangeReply::Done(Outcome::Waits(text)));
            };
            target = leader;
            (
                Change::MoveLeader(*to),
                format!("Moved the leadership away from {name}."),
            )
        }
        Step::Remove { ordinal, id } => {
            let name = ordinal.map_or_else(|| id.to_string(), |ordinal| observed.name(ordinal));
            (Change::Remove(*id), format!("Removed member {name}."))
        }
        Step::Disarm(alarm) => {
            let text = format!("Disarmed the alarm {}.", alarm.kind);
            (Change::Disarm(*alarm), text)
        }
        Step::WriteLogEntries(snapshot) => {
            let text = format!(
                "Wrote entries without effect to the raft log, so that every member takes a snapshot of it before the upgrade. All have one from index {} on.",
                snapshot.until
            );
            let count = snapshot.missing.min(MAX_LOG_ENTRIES);
            (Change::WriteLogEntries(count), text)
        }
        Step::EnableDowngrade { target } => {
            let text = format!("Enabled the downgrade to etcd {target}.");
            (Change::EnableDowngrade(target.clone()), text)
        }
        Step::CancelDowngrade { ordinal } => {
            let name = observed.name(*ordinal);
            let Some(member) = observation.probes.connections.get(ordinal) else {
                let text = format!("{name} does not answer");
                return Ok(ChangeReply::Done(Outcome::Waits(text)));
            };
            // The call names no member and no cluster, and every process accepts it.
            let status = member.status().await;
            if !status.is_ok_and(|status| status.position.cluster == known.cluster) {
                let text = format!("{name} does not confirm that it is of this cluster");
                return Ok(ChangeReply::Done(Outcome::Stale(text)));
            }
            target = member;
            (
                Change::CancelDowngrade,
                "Canceled the downgrade of etcd.".to_owned(),
            )
        }
        Step::FencePods(_)
        | Step::Permit(_)
        | Step::RestartPod { .. }
        | Step::DeleteStoppedPod { .. }
        | Step::DeletePod { .. }
        | Step::DeleteClaim { .. }
        | Step::RequestBackup(_) => {
            let text = "this step does not change the membership".to_owned();
            return Ok(ChangeReply::Done(Outcome::Stale(text)));
        }
    };
    if matches!(step, Step::Add { .. }) && may_hide_downgrade(&known.version) {
        let permit = deps.applier.permit().map_err(apply::Error::from)?;
        let canceled = cancel_hidden_downgrade(&**connection, permit).await;
        if let Err(error) = canceled.map_err(apply::Error::from)? {
            return Ok(ChangeReply::Rejected(error));
        }
    }
    let permit = deps.applier.permit().map_err(apply::Error::from)?;
    let sent = send_change(&**target, change, permit).await;
    Ok(match sent.map_err(apply::Error::from)? {
        Ok(Some(id)) => ChangeReply::Done(Outcome::Added(id, text)),
        Ok(None) => ChangeReply::Done(Outcome::Done(text)),
        Err(error) => ChangeReply::Rejected(error),
    })
}

/// The reason of the Event about a step.
pub fn event_reason(step: &Step) -> &'static str {
    match step {
        Step::FencePods(_) => "TakenOver",
        Step::Permit(_) => "StartPermitted",
        Step::Add { .. } => "MemberAdded",
        Step::Promote { .. } => "MemberPromoted",
        Step::MoveLeader { .. } => "LeaderMoved",
        Step::Remove { .. } => "MemberRemoved",
        Step::RestartPod { .. } => "MemberRestarted",
        Step::DeletePod { .. } | Step::DeleteStoppedPod { .. } => "PodDeleted",
        Step::DeleteClaim { .. } => "VolumeDeleted",
        Step::RequestBackup(_) => "BackupRequested",
        Step::Disarm(_) => "AlarmDisarmed",
        Step::WriteLogEntries(_) => "LogEntriesWritten",
        Step::EnableDowngrade { .. } => "DowngradeEnabled",
        Step::CancelDowngrade { .. } => "DowngradeCanceled",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use etcd_operator_etcd::client::Added;
    use etcd_operator_etcd::id::Revision;
    use etcd_operator_etcd::membership::Listed;
    use etcd_operator_etcd::port::{Answer, Members};
    use etcd_operator_etcd::status::{AlarmKind, KeysHash, Position, Status};
    use etcd_operator_etcd::url::ClientUrl;
    use etcd_operator_runtime::clock::TestClock;
    use etcd_operator_runtime::fence::Leadership;

    use super::*;

    /// A member whose connection takes ten seconds; then it refuses the change, for this cause if there is one, and counts it.
    #[derive(Debug, Default)]
    struct SlowMember {
        changes: AtomicUsize,
        cause: Option<etcd::error::Cause>,
    }

    impl SlowMember {
        fn change<T: Send>(&self) -> Answer<'_, Result<T, etcd::error::Error>> {
            let cause = self.cause.clone();
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(10)).await;
                self.changes.fetch_add(1, Ordering::SeqCst);
                Err(etcd::error::Error {
                    endpoint: "http://orders-0:2379".parse().unwrap(),
                    call: "change",
                    cause: cause.unwrap_or_else(|| etcd::error::Cause::Unreachable("counted".to_owned())),
                })
            })
        }
    }

    impl Port for SlowMember {
        fn url(&self) -> &ClientUrl {
            unreachable!("not a change")
        }
        fn listed(&self) -> Answer<'_, Result<Listed, etcd::error::Error>> {
            unreachable!("not a change")
        }
        fn add_voter<'a>(&'a self, _: &'a [PeerUrl]) -> Answer<'a, Result<Added, etcd::error::Error>> {
            self.change()
        }
        fn add_learner<'a>(&'a self, _: &'a [PeerUrl]) -> Answer<'a, Result<Added, etcd::error::Error>> {
            self.change()
        }
        fn promote(&self, _: MemberId) -> Answer<'_, Result<Members, etcd::error::Error>> {
            self.change()
        }
        fn remove(&self, _: MemberId) -> Answer<'_, Result<Members, etcd::error::Error>> {
            self.change()
        }
        fn update<'a>(
            &'a self,
            _: &'a Member,
            _: &'a [PeerUrl],
        ) -> Answer<'a, Result<Members, etcd::error::Error>> {
            unreachable!("no step updates a member")
        }
        fn position(&self) -> Answer<'_, Result<Position, etcd::error::Error>> {
            unreachable!("not a change")
        }
        fn local_position(&self) -> Answer<'_, Result<Position, etcd::error::Error>> {
            unreachable!("not a change")
        }
        fn status(&self) -> Answer<'_, Result<Status, etcd::error::Error>> {
            unreachable!("not a change")
        }
        fn cluster_version(&self) -> Answer<'_, Result<Option<Version>, etcd::error::Error>> {
            unreachable!("not a change")
        }
        fn is_auth_enabled(&self) -> Answer<'_, Result<bool, etcd::error::Error>> {
            unreachable!("not a change")
        }
        fn alarms(&self) -> Answer<'_, Result<std::collections::BTreeSet<Alarm>, etcd::error::Error>> {
            unreachable!("not a change")
        }
        fn write_log_entries(&self, _: u64) -> Answer<'_, Result<(), etcd::error::Error>> {
            self.change()
        }
        fn disarm(&self, _: Alarm) -> Answer<'_, Result<(), etcd::error::Error>> {
            self.change()
        }
        fn move_leader(&self, _: MemberId) -> Answer<'_, Result<(), etcd::error::Error>> {
            self.change()
        }
        fn validate_downgrade<'a>(&'a self, _: &'a Version) -> Answer<'a, Result<(), etcd::error::Error>> {
            Box::pin(async { Ok(()) })
        }
        fn enable_downgrade<'a>(&'a self, _: &'a Version) -> Answer<'a, Result<(), etcd::error::Error>> {
            self.change()
        }
        fn cancel_downgrade(&self) -> Answer<'_, Result<(), etcd::error::Error>> {
            self.change()
        }
        fn defragment(&self, _: Duration) -> Answer<'_, Result<(), etcd::error::Error>> {
            unreachable!("no step defragments")
        }
        fn hash_keys(
            &self,
            _: Option<Revision>,
            _: Duration,
        ) -> Answer<'_, Result<KeysHash, etcd::error::Error>> {
            unreachable!("not a change")
        }
    }

    #[test]
    fn members_of_3_5_are_told_to_cancel_a_downgrade_before_another_one_is_added() {
        let versions = ["3.4.44", "3.5.21", "3.5.35", "3.6.16", "3.7.3"];
        let told = versions.map(|version| may_hide_downgrade(&version.parse().expect(version)));
        assert_eq!(told, [false, true, true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_change_is_sent_to_etcd_after_leadership_has_ended() {
        let id = MemberId::new(7).unwrap();
        let url: PeerUrl = "http://orders-0.orders.shop.svc:2380".parse().unwrap();
        let alarm = Alarm {
            member: Some(id),
            kind: AlarmKind::NoSpace,
        };
        for change in [
            Change::AddLearner(url.clone()),
            Change::AddVoter(url),
            Change::Promote(id),
            Change::MoveLeader(id),
            Change::Remove(id),
            Change::Disarm(alarm),
            Change::WriteLogEntries(10),
            Change::EnableDowngrade("3.6.16".parse().unwrap()),
            Change::CancelDowngrade,
        ] {
            for (seconds, expected) in [(5, 0), (60, 1)] {
                let clock = TestClock::shared();
                let (leadership, control) = Leadership::standby(clock.clone());
                control.lead_until(clock.elapsed() + Duration::from_secs(seconds));
                let member = SlowMember::default();
                let sent = send_change(&member, change.clone(), leadership.permit().unwrap()).await;
                assert_eq!(sent.is_ok(), expected == 1, "{change:?}");
                assert_eq!(member.changes.load(Ordering::SeqCst), expected, "{change:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_downgrade_that_is_not_enabled_counts_as_canceled_and_a_call_without_an_answer_does_not() {
        let canceled = async |cause| {
            let member = SlowMember {
                cause,
                ..SlowMember::default()
            };
            let leadership = Leadership::always(TestClock::shared());
            let canceled = cancel_hidden_downgrade(&member, leadership.permit().unwrap()).await;
            canceled.expect("it leads").is_ok()
        };
        assert!(canceled(Some(etcd::error::Cause::Rejected(Rejection::NoDowngrade))).await);
        assert!(!canceled(None).await);
        let late = etcd::error::Cause::NoAnswer(Duration::from_secs(5));
        assert!(
            !canceled(Some(late)).await,
            "etcd 3.5.35 does it and does not say so"
        );
    }
}
