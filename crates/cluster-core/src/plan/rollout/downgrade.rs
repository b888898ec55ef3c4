//! Downgrades of one minor version by etcd's Downgrade API. Enabling one makes etcd lower the cluster version and the version of
//! each member's files; then the pod template changes, and the members restart one by one as in every rollout.
//!
//! How far a downgrade is, etcd says itself: nothing is remembered. While one is enabled no member can join, so that it is
//! canceled first. As soon as one member runs the lower minor version, etcd keeps to that without it.

use std::fmt;

use etcd_operator_api::contract::Mode;
use etcd_operator_etcd_types::membership::{Known, Role};
use etcd_operator_etcd_types::status::Status;
use etcd_operator_etcd_types::version::{Minor, Version};
use jiff::SignedDuration;

use super::downgrade_status::{answering, enabled, is_enabled, is_enabled_for};
use super::outdated::is_outdated;
use super::pending_cause::PendingCause;
use super::versions::{
    STORAGE_VERSION_SINCE, is_template_behind, is_template_below, template_version, told_version,
};
use super::{health, minor};
use crate::observed_state::{ObservedMember, Ordinal};
use crate::pending_operation::Operation;
use crate::persisted_state::PersistedState;
use crate::plan::cluster_view::ClusterView;
use crate::plan::decision::{FlowDecision, Reason};
use crate::plan::evidence::pod_awaiting_join;
use crate::plan::step::{GracePeriod, PodRef, Step};

/// For how long after its time a pod that is deleted may still be created again from an earlier pod template. Where no kubelet
/// ends it, it is for ever.
const RECREATED_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// What is not lowered yet, so that a member must not start with a lower minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLowered {
    /// The cluster version is higher, or unknown.
    ClusterVersion,
    /// The files of the member are of a higher version, or it does not say of which.
    StorageVersion,
}

impl fmt::Display for NotLowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterVersion => "the cluster version is not lowered",
            Self::StorageVersion => "the version of its files is not lowered",
        })
    }
}

/// Why a member must not start with this minor version yet; none if it may. A member that runs it, or a lower one, may; and so
/// may one from before 3.6, whose files have no version.
pub fn not_lowered(status: &Status, cluster_version: Option<&Version>, target: Minor) -> Option<NotLowered> {
    let running = Minor::of(&status.version);
    if running.is_some_and(|running| running <= target || running < STORAGE_VERSION_SINCE) {
        return None;
    }
    if let Some(why) = cluster_not_lowered(cluster_version, target) {
        return Some(why);
    }
    let stored = status
        .storage_version
        .as_ref()
        .and_then(|version| Minor::of(&version.parse().ok()?));
    (stored != Some(target)).then_some(NotLowered::StorageVersion)
}

/// `ClusterVersion` unless the cluster version is of exactly this minor version; an unknown one counts as not lowered.
/// The files of the members are not considered.
pub fn cluster_not_lowered(cluster_version: Option<&Version>, target: Minor) -> Option<NotLowered> {
    (cluster_version.and_then(Minor::of) != Some(target)).then_some(NotLowered::ClusterVersion)
}

/// How far a downgrade is that the spec asks for, before any member runs the lower minor version.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It cannot be enabled yet.
    Waiting(PendingCause),
    /// Nothing but the backup keeps it from being enabled.
    Ready,
    /// etcd lowers versions.
    Lowering(PendingCause),
    /// All versions are lowered.
    Lowered,
}

/// How far the downgrade to the wanted version is. Only meaningful if that is a lower minor version than every member
/// runs.
fn stage(view: &ClusterView<'_>, persisted: &PersistedState) -> Stage {
    if !is_enabled_for(view, Minor::of(&view.observed.wanted.version)) {
        return match minor::wait_before_next_minor(view, persisted) {
            Some(cause) => Stage::Waiting(cause),
            None => Stage::Ready,
        };
    }
    let is_settled = view.known().is_some_and(|known| {
        health::are_members_settled(view, persisted) && health::are_all_voters_healthy(view, known)
    });
    if !is_settled {
        return Stage::Waiting(PendingCause::Members);
    }
    match first_not_lowered(view) {
        Some((_, NotLowered::ClusterVersion)) => Stage::Lowering(PendingCause::LowerClusterVersion),
        Some((ordinal, NotLowered::StorageVersion)) => Stage::Lowering(PendingCause::LowerStorageVersion {
            member: view.observed.name(ordinal),
        }),
        None => Stage::Lowered,
    }
}

/// The first member that answers and must not start with the wanted minor version yet. Members that do not answer are
/// left out.
fn first_not_lowered(view: &ClusterView<'_>) -> Option<(Ordinal, NotLowered)> {
    let observed = view.observed;
    let target = Minor::of(&observed.wanted.version)?;
    answering(view).find_map(|(ordinal, status)| {
        let why = not_lowered(status, observed.cluster_version.as_ref(), target)?;
        Some((ordinal, why))
    })
}

/// Why the member at an ordinal must not restart with the current pod template yet; `None` if it may, also where that
/// is no lower. If it does not answer, only the cluster version counts: its files were lowered before the template
/// changed.
pub fn restart_wait(view: &ClusterView<'_>, ordinal: Ordinal) -> Option<NotLowered> {
    let observed = view.observed;
    let target = Minor::of(template_version(view)?)?;
    if let Some(status) = observed.member(ordinal).status() {
        return not_lowered(status, observed.cluster_version.as_ref(), target);
    }
    lowered_to(view, ordinal).and_then(|_| cluster_not_lowered(observed.cluster_version.as_ref(), target))
}

/// The minor version of the pod template, if that is lower than the one that the member at an ordinal ran last, and the version
/// of its files counts.
pub fn lowered_to(view: &ClusterView<'_>, ordinal: Ordinal) -> Option<Minor> {
    let template = Minor::of(template_version(view)?)?;
    let ran = Minor::of(told_version(view, ordinal)?)?;
    (ran > template && ran >= STORAGE_VERSION_SINCE).then_some(template)
}

/// What keeps the pod template from changing to the minor version below that of every member; none if it may.
pub fn wait_before_template(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<PendingCause> {
    match stage(view, persisted) {
        Stage::Waiting(cause) | Stage::Lowering(cause) => Some(cause),
        Stage::Ready => Some(PendingCause::LowerClusterVersion),
        Stage::Lowered => None,
    }
}

/// Whether nothing but a backup keeps a downgrade from its next step: to be enabled, or the change of the pod template.
pub fn is_backup_due(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    matches!(stage(view, persisted), Stage::Ready | Stage::Lowered)
}

/// Whether every member that answers may start with the changed pod template. True if that is of no lower minor
/// version.
pub fn are_others_lowered(view: &ClusterView<'_>) -> bool {
    let wanted = Minor::of(&view.observed.wanted.version);
    let is_lower = template_version(view).is_some_and(|template| wanted < Minor::of(template));
    !is_lower || first_not_lowered(view).is_none()
}

/// Whether a member is to join that cannot start with the pod template: whatever keeps the template from what the spec asks for,
/// the last one that served lets it start.
pub fn must_return(view: &ClusterView<'_>) -> bool {
    is_template_below(view) && is_joining(view)
}

/// Whether the pod template keeps the minor version that all members run, although the spec asks for the one below: a
/// member is to join first, or etcd has ended the downgrade before any member restarted.
pub fn must_stay(view: &ClusterView<'_>) -> bool {
    let has_answer = || answering(view).next().is_some();
    let is_ended = || is_template_behind(view) || (has_answer() && enabled(view).is_none());
    is_joining(view) || (is_template_below(view) && is_ended())
}

/// Whether a member is joining or being replaced, or a pod waits on an empty volume to join. While the membership is
/// unknown, only the pending operation counts.
fn is_joining(view: &ClusterView<'_>) -> bool {
    let observed = view.observed;
    let pending = observed.persisted.pending.as_ref();
    let is_replacing = pending
        .is_some_and(|pending| matches!(pending.operation, Operation::Join(_) | Operation::Replace(_)));
    let Some(known) = view.known() else {
        return is_replacing;
    };
    let mut members = known.members.values();
    let wanted = u16::from(observed.desired.size.get());
    let can_join = |ordinal: Ordinal| {
        observed.etcd_member_in(known, ordinal).is_none() && pod_awaiting_join(view, ordinal).is_some()
    };
    is_replacing
        || members.any(|member| member.role == Role::Learner || !member.has_started())
        || Ordinal::first_n(wanted).any(can_join)
}

/// Enables a downgrade once the pod template waits for nothing else (`may_enable`), or cancels one that the spec does
/// not ask for. `None` if neither is due; none is canceled while the pod template still needs it.
pub fn decide(view: &ClusterView<'_>, persisted: &PersistedState, may_enable: bool) -> Option<FlowDecision> {
    let wanted = &view.observed.wanted.version;
    if is_enabled(view) && !is_enabled_for(view, Minor::of(wanted)) {
        return (!is_template_below(view)).then(|| {
            let text = "The downgrade that is enabled in etcd is canceled: the spec does not ask for it now.";
            cancel(view, FlowDecision::without_operation(Reason::RollingOut, text))
        });
    }
    if !may_enable || stage(view, persisted) != Stage::Ready {
        return None;
    }
    let text = format!(
        "A downgrade to etcd {wanted} is enabled: etcd lowers the cluster version and the version of each member's files."
    );
    let decision = FlowDecision::without_operation(Reason::RollingOut, text);
    Some(decision.with_step(Step::EnableDowngrade {
        target: wanted.clone(),
    }))
}

/// Adds the step that cancels the downgrade, at the member that says that one is enabled.
fn cancel(view: &ClusterView<'_>, decision: FlowDecision) -> FlowDecision {
    match enabled(view) {
        Some((ordinal, _)) => decision.with_step(Step::CancelDowngrade { ordinal }),
        None => decision,
    }
}

/// Holds back a decision that would let a member join during a downgrade, and cancels the downgrade first: no member
/// can join while one is enabled, nor start below the cluster version. Any other decision is returned unchanged.
pub fn before_join(view: &ClusterView<'_>, known: &Known, mut decision: FlowDecision) -> FlowDecision {
    let Some(ordinal) = joining(&decision) else {
        return decision;
    };
    let name = view.observed.name(ordinal);
    if is_template_below(view) {
        decision.step = None;
        decision.explanation.text = format!(
            "{name} joins once the pod template has returned to the minor version that the members run: no member joins during a downgrade. Where spec.image names an image of the lower minor version, set it back."
        );
        return decision;
    }
    if !is_enabled(view) {
        return decision;
    }
    if let Some(pod) = outdated_pod(view, known, ordinal) {
        decision.explanation.text =
            format!("{name} joins: its pod is made anew, as it has an earlier pod template.");
        return decision.with_step(Step::DeletePod {
            pod,
            grace_period: GracePeriod::PodDefault,
        });
    }
    // It would start with the lower minor version in a cluster that has risen again.
    let is_going = |member: &ObservedMember| {
        let due = member.pod.as_ref().and_then(|pod| pod.deleting);
        let is_recent = due.is_some_and(|due| view.observed.now.duration_since(due) < RECREATED_WITHIN);
        is_recent && member.status().is_some()
    };
    if view.observed.members.values().any(is_going) {
        decision.step = None;
        decision.explanation.text =
            format!("{name} joins once no pod is being deleted and the downgrade is canceled.");
        return decision;
    }
    decision.explanation.text =
        format!("The downgrade is canceled before {name} joins: no member joins during one.");
    cancel(view, decision)
}

/// The ordinal of the member that the step of a decision adds, or permits to join; `None` for any other step.
fn joining(decision: &FlowDecision) -> Option<Ordinal> {
    match &decision.step {
        Some(Step::Add { ordinal, .. }) => Some(*ordinal),
        Some(Step::Permit(permits)) => {
            let mut joins = permits.iter().filter(|(_, permit)| permit.mode == Mode::Join);
            joins.next().map(|(pod, _)| pod.ordinal)
        }
        _ => None,
    }
}

/// The pod of a member that is none yet, if it was made from another template than the current one.
fn outdated_pod(view: &ClusterView<'_>, known: &Known, ordinal: Ordinal) -> Option<PodRef> {
    let member = view.observed.etcd_member_in(known, ordinal);
    let is_new = member.is_none_or(|member| !member.has_started());
    let pod = view.observed.member(ordinal).pod.as_ref()?;
    (is_new && is_outdated(view, ordinal)).then(|| PodRef {
        ordinal,
        uid: pod.uid.clone(),
    })
}

#[cfg(test)]
mod tests {
    use etcd_operator_etcd_types::id::{ClusterId, MemberId, RaftIndex, RaftTerm, Revision};
    use etcd_operator_etcd_types::status::Position;

    use super::*;

    fn status(version: &str, storage_version: Option<&str>) -> Status {
        Status {
            position: Position {
                cluster: ClusterId::new(1).expect("an ID"),
                member: MemberId::new(2).expect("an ID"),
                revision: Revision(1),
                term: RaftTerm(1),
            },
            version: version.parse().expect(version),
            leader: None,
            raft_index: RaftIndex(1),
            applied: None,
            is_learner: false,
            db_size: 0,
            db_in_use: None,
            db_quota: None,
            storage_version: storage_version.map(str::to_owned),
            downgrade: None,
            errors: Vec::new(),
        }
    }

    #[test]
    fn a_member_starts_with_a_lower_minor_version_once_cluster_and_files_are_lowered() {
        use NotLowered::{ClusterVersion, StorageVersion};
        for (running, stored, cluster, target, why) in [
            (
                "3.7.3",
                Some("3.7.0"),
                Some("3.7.0"),
                Minor::V3_6,
                Some(ClusterVersion),
            ),
            (
                "3.7.3",
                Some("3.6.0"),
                Some("3.7.0"),
                Minor::V3_6,
                Some(ClusterVersion),
            ),
            ("3.7.3", Some("3.6.0"), None, Minor::V3_6, Some(ClusterVersion)),
            (
                "3.7.3",
                Some("3.7.0"),
                Some("3.6.0"),
                Minor::V3_6,
                Some(StorageVersion),
            ),
            ("3.7.3", None, Some("3.6.0"), Minor::V3_6, Some(StorageVersion)),
            (
                "3.7.3",
                Some("unknown"),
                Some("3.6.0"),
                Minor::V3_6,
                Some(StorageVersion),
            ),
            ("3.7.3", Some("3.6.0"), Some("3.6.0"), Minor::V3_6, None),
            (
                "3.6.16",
                Some("3.6.0"),
                Some("3.5.0"),
                Minor::V3_5,
                Some(StorageVersion),
            ),
            ("3.6.16", Some("3.5.0"), Some("3.5.0"), Minor::V3_5, None),
            // Lowered by one minor version is not lowered by two.
            (
                "3.7.3",
                Some("3.6.0"),
                Some("3.6.0"),
                Minor::V3_5,
                Some(ClusterVersion),
            ),
            // It runs that minor version, or a lower one.
            ("3.6.16", Some("3.6.0"), Some("3.6.0"), Minor::V3_6, None),
            ("3.6.15", Some("3.6.0"), None, Minor::V3_7, None),
            // Files of 3.5 and older have no version of their own.
            ("3.5.35", None, None, Minor::V3_4, None),
            (
                "3.8.0",
                Some("3.8.0"),
                Some("3.8.0"),
                Minor::V3_7,
                Some(ClusterVersion),
            ),
        ] {
            let cluster = cluster.map(|version| version.parse().expect("a version"));
            let found = not_lowered(&status(running, stored), cluster.as_ref(), target);
            assert_eq!(found, why, "{running} {stored:?} {cluster:?} {target}");
        }
    }

    #[test]
    fn what_is_not_lowered_is_told() {
        let texts = [NotLowered::ClusterVersion, NotLowered::StorageVersion].map(|why| why.to_string());
        assert_eq!(
            texts,
            [
                "the cluster version is not lowered",
                "the version of its files is not lowered"
            ]
        );
    }
}
