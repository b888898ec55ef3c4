//! Alarms of etcd, which refuses writes while one is raised:
//!
//! 1. CORRUPT of a member that has left the membership is disarmed. A wrong member that the data show is replaced before
//!    (`corrupt`).
//! 2. NOSPACE is disarmed once every voter runs the current pod template and its quota leaves room for its database.
//! 3. Any other alarm blocks, and the message says what the user has to do: free space, raise the quota, or find the wrong member.
//!
//! While an alarm is raised, each decision reports it as a blocker, whatever else the operator does, except during a restore.

use std::collections::BTreeSet;

use etcd_operator_api::names::ANNOTATION_REPLACE;
use etcd_operator_etcd_types::membership::{Known, Member};
use etcd_operator_etcd_types::status::{Alarm, AlarmKind};

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::step::Step;
use crate::blocker::Blocker;
use crate::desired::DEFAULT_QUOTA;
use crate::observed_state::ObservedCluster;

/// Disarms an alarm that is obsolete or cured; for any other raised alarm it is `Blocked` with what the user must do.
/// `None` only if no alarm is raised.
pub fn decide(view: &ClusterView<'_>, known: &Known) -> Option<FlowDecision> {
    let all = &view.observed.alarms;
    let is_gone = |alarm: &&Alarm| {
        let is_member = alarm.member.is_none_or(|id| known.members.contains_key(&id));
        alarm.kind == AlarmKind::Corrupt && !is_member
    };
    if let Some(alarm) = all.iter().find(is_gone) {
        let text = "A member was replaced that had raised the alarm CORRUPT: the alarm is taken back.";
        return Some(
            FlowDecision::without_operation(Reason::Recovering, text).with_step(Step::Disarm(*alarm)),
        );
    }
    if let Some(disarmed) = disarm_cured(view, known) {
        return Some(disarmed);
    }
    let alarm = all.first()?;
    let by = alarm.member.and_then(|id| known.members.get(&id));
    let by = by.map_or_else(|| "A member".to_owned(), |member| view.display_name(member));
    let text = match alarm.kind {
        AlarmKind::NoSpace => format!(
            "{by} has reached the size its database may have, and etcd refuses writes: delete keys or compact, run etcdctl --command-timeout=10m defrag on one member after the other and then etcdctl alarm disarm. Or raise spec.etcd.quotaBackendBytes, which restarts the members one by one, and run etcdctl alarm disarm after that."
        ),
        AlarmKind::Corrupt => format!(
            "etcd has raised the alarm CORRUPT without a member that could be replaced, and refuses writes: find out with etcdctl endpoint hashkv whose data are wrong, annotate this EtcdCluster with {ANNOTATION_REPLACE} and its ID, and take the alarm back with etcdctl alarm disarm."
        ),
        kind @ AlarmKind::Other(_) => format!(
            "{by} has raised the alarm {kind}, which this operator does not know: find out what it means, and take it back with etcdctl alarm disarm."
        ),
    };
    Some(FlowDecision::without_operation(Reason::Blocked, text))
}

/// The room in bytes that a database needs at least before the alarm NOSPACE is taken back: more than one large write.
const MIN_ROOM: u64 = 4 << 20;

/// Disarms NOSPACE once every voter answers, runs the StatefulSet's pod template, and that template's quota exceeds its
/// database by a tenth, and by at least `MIN_ROOM`. `None` before that.
fn disarm_cured(view: &ClusterView<'_>, known: &Known) -> Option<FlowDecision> {
    let observed = view.observed;
    let mut alarms = observed.alarms.iter();
    let alarm = alarms.find(|alarm| alarm.kind == AlarmKind::NoSpace)?;
    let set = observed.set.as_ref()?;
    let quota = set.quota.unwrap_or(DEFAULT_QUOTA);
    let has_room = |voter: &Member| {
        let member = observed.member(view.ordinal(voter)?);
        let is_current = member.pod.as_ref()?.spec_hash == set.spec_hash;
        let size = member.status()?.db_size;
        (is_current && size.saturating_add((size / 10).max(MIN_ROOM)) <= quota).then_some(())
    };
    let is_cured = known.voters().all(|voter| has_room(voter).is_some());
    let text = format!(
        "Every member has room again, with {quota} bytes that its database may have: the alarm NOSPACE is taken back."
    );
    is_cured
        .then(|| FlowDecision::without_operation(Reason::Recovering, text).with_step(Step::Disarm(*alarm)))
}

/// Adds a blocker for each kind of raised alarm to any decision, as clients cannot write meanwhile. Step and reason
/// stay as they are. During a restore it is not called.
pub fn add_alarm_blockers(observed: &ObservedCluster, mut decision: FlowDecision) -> FlowDecision {
    let kinds: BTreeSet<_> = observed.alarms.iter().map(|alarm| alarm.kind).collect();
    let blockers = kinds.into_iter().map(Blocker::Alarm);
    decision.explanation.blockers.extend(blockers);
    decision
}
