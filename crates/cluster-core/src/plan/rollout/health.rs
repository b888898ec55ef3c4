//! Whether members serve so well that a rollout can do without one of them for a while.

use etcd_operator_etcd_types::membership::{Known, Member, Role};
use etcd_operator_etcd_types::status::AlarmKind;

use crate::blocker::MemberProblem;
use crate::desired::DEFAULT_QUOTA;
use crate::persisted_state::PersistedState;
use crate::plan::cluster_view::ClusterView;
use crate::plan::diagnose::describe_unhealthy;
use crate::plan::quorum::majority;

/// Why a voter does not count as serving in a rollout; `None` if it is healthy, and its pod is ready and not being
/// deleted. Under the alarm NOSPACE its pod need not be ready.
pub fn voter_problem(view: &ClusterView<'_>, known: &Known, voter: &Member) -> Option<MemberProblem> {
    let Some(ordinal) = view.ordinal(voter) else {
        return Some(MemberProblem::NotOfThisCluster { id: voter.id });
    };
    let pod = view.observed.member(ordinal).pod.as_ref();
    if pod.is_some_and(|pod| pod.deleting.is_some()) {
        return Some(MemberProblem::PodTerminating);
    }
    if !view.is_healthy(known, voter) {
        return Some(describe_unhealthy(view, ordinal));
    }
    // Under the alarm NOSPACE members that serve may not be ready, and a larger quota cures it.
    let alarms = &view.observed.alarms;
    let is_excused = alarms.iter().any(|alarm| alarm.kind == AlarmKind::NoSpace);
    let is_ready = pod.is_some_and(|pod| pod.ready);
    (!is_ready && !is_excused).then_some(MemberProblem::PodNotReady)
}

/// Whether `voter_problem` is `None` for each voter.
pub fn are_all_voters_healthy(view: &ClusterView<'_>, known: &Known) -> bool {
    known
        .voters()
        .all(|voter| voter_problem(view, known, voter).is_none())
}

/// Whether the members can take a change: nothing is pending, no member is joining, no alarm is raised except NOSPACE
/// that a larger quota cures, and at most one voter does not serve, without which the others have quorum. False while
/// the membership is unknown.
pub fn are_members_settled(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    let observed = view.observed;
    let Some(known) = view.known().filter(|_| persisted.pending.is_none()) else {
        return false;
    };
    let mut members = known.members.values();
    if members.any(|member| member.role == Role::Learner || !member.has_started()) {
        return false;
    }
    let is_cured = |kind: AlarmKind| {
        let quota = |quota: Option<u64>| quota.unwrap_or(DEFAULT_QUOTA);
        let now = observed.set.as_ref().and_then(|set| set.quota);
        kind == AlarmKind::NoSpace && quota(observed.desired.options.quota) > quota(now)
    };
    if observed.alarms_failure.is_some() || observed.alarms.iter().any(|alarm| !is_cured(alarm.kind)) {
        return false;
    }
    let voters = known.voters().count();
    let healthy = known
        .voters()
        .filter(|voter| voter_problem(view, known, voter).is_none())
        .count();
    healthy + 1 >= voters && healthy >= majority(voters)
}
