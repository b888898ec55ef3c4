//! All members restore at once beside their old data; then the one field decides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use etcd_operator_api::contract::{Mode, Report};
use etcd_operator_etcd_types::id::ClusterId;
use jiff::Timestamp;

use super::member_progress::{MemberProgress, assess_member, fetched_bytes, previous_failure};
use super::old_pods::{cannot_have_quorum, delete_stale_pod, unconfirmed_stops};
use super::rollback::{self, RollbackCause};
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::{ObservedCluster, Ordinal, Pod};
use crate::pending_operation::Operation;
use crate::persisted_state::{PersistedState, Phase, Restore};
use crate::plan::cluster_view::ClusterView;
use crate::plan::corrected_restore;
use crate::plan::decision::{FlowDecision, Reason};
use crate::plan::grants::{self, PermitTerms};
use crate::plan::quorum::majority;
use crate::plan::restore_request::{is_withdrawn, matching_request, restore_terms};
use crate::plan::step::{GracePeriod, PodRef, Step};

/// How long members that are not prepared are waited for once a quorum is.
const STRAGGLER_TIMEOUT: Duration = Duration::from_mins(10);
/// How long the old cluster stays stopped while nobody comes any further.
const STALL_TIMEOUT: Duration = Duration::from_mins(30);

/// What the members have done, taken together.
#[derive(Debug, Default)]
struct Tally {
    prepared: usize,
    unknown: usize,
    progress: i64,
    is_working: bool,
    clusters: BTreeSet<ClusterId>,
    failures: Vec<Blocker>,
    waits: Vec<Blocker>,
}

/// Permits members to restore beside their old data, and commits once all are prepared, or a majority and
/// `STRAGGLER_TIMEOUT` has passed. Rolls back if the restore is withdrawn, fails or stalls; past the commit it is
/// `Blocked` instead.
pub fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState, mut restore: Restore) -> FlowDecision {
    let observed = view.observed;
    if is_withdrawn(observed, &restore) {
        return rollback::begin(view, persisted, restore, &RollbackCause::Withdrawn);
    }
    let ordinals: Vec<_> = Ordinal::first_n(restore.size.into()).collect();
    let initial_cluster = grants::initial_cluster(observed, ordinals.iter().copied());
    let mut tally = Tally::default();
    let mut unfit = None;
    let (mut targets, mut permits) = (BTreeMap::new(), Vec::new());
    for ordinal in &ordinals {
        let name = observed.name(*ordinal);
        let progress = assess_member(view, &restore, *ordinal);
        tally.progress = tally
            .progress
            .saturating_add(progress_rank(observed, *ordinal, &progress));
        tally.is_working |= matches!(progress, MemberProgress::Preparing(_));
        match progress {
            MemberProgress::Prepared { cluster, .. } => {
                tally.prepared += 1;
                tally.clusters.insert(cluster);
            }
            MemberProgress::Ready(pod, report) if cannot_fetch(observed, &restore, pod, report) => {
                let uid = pod.uid.clone();
                unfit.get_or_insert(PodRef {
                    ordinal: *ordinal,
                    uid,
                });
                let problem = MemberProblem::FetchContainerMissing;
                tally.waits.push(Blocker::member(name, problem));
            }
            MemberProgress::Ready(pod, report) => {
                let grant = grants::make_grant(pod, report);
                let terms = PermitTerms {
                    mode: Mode::Prepare,
                    incarnation: restore.incarnation,
                    cluster: None,
                    member: None,
                    initial_cluster: initial_cluster.clone(),
                    restore: Some(restore_terms(observed, &restore)),
                };
                let permit = grants::make_permit(observed, *ordinal, pod, &grant, terms);
                tally.is_working |= permit.is_some();
                permits.extend(permit);
                targets.insert(*ordinal, grant);
                let failure = previous_failure(&restore, report);
                let problem = MemberProblem::RestorePending { failure };
                tally.waits.push(Blocker::member(name, problem));
            }
            MemberProgress::Failed(problem) => tally.failures.push(Blocker::member(name, problem)),
            MemberProgress::Unknown(problem) => {
                tally.unknown += 1;
                tally.waits.push(Blocker::member(name, problem));
            }
            MemberProgress::Fetching(problem)
            | MemberProgress::Preparing(problem)
            | MemberProgress::Unusable(problem) => {
                tally.waits.push(Blocker::member(name, problem));
            }
        }
    }
    let since = restore.note_progress(tally.progress, observed.now);
    persisted.restore = Some(restore.clone());
    let mut reason = Reason::Restoring;
    match choose_outcome(view, persisted, &restore, &tally, since) {
        PrepareOutcome::Commit(cluster) => return commit(view, persisted, restore, cluster),
        PrepareOutcome::RollBack(cause) if !restore.committed => {
            return rollback::begin(view, persisted, restore, &cause);
        }
        PrepareOutcome::RollBack(cause) => {
            reason = Reason::Blocked;
            tally.waits.extend(cause.into_blocker());
        }
        PrepareOutcome::Wait => {}
    }
    let mut text = format!(
        "The EtcdRestore {}: {} of {} members have the restored data beside the old ones.",
        restore.name,
        tally.prepared,
        ordinals.len()
    );
    if restore.committed {
        text.push_str(&recovery_hint(observed, &restore));
    } else if restore.previous_incarnation == 0 && tally.unknown == ordinals.len() {
        // Nobody comes back here, so nothing ends it but a person.
        text.push_str(&stuck_pods_hint(&restore));
    }
    tally.waits.extend(tally.failures);
    tally
        .waits
        .extend(unconfirmed_stops(observed, persisted.incarnation));
    let decision = if targets.is_empty() {
        FlowDecision::without_operation(reason, text)
    } else {
        FlowDecision::with_operation(Operation::Prepare(targets), reason, text)
    };
    let decision = decision.with_blockers(tally.waits);
    let delete = |pod| Step::DeletePod {
        pod,
        grace_period: GracePeriod::PodDefault,
    };
    match delete_stale_pod(observed, persisted.incarnation)
        .or(unfit.map(delete))
        .or_else(|| corrected_restore::delete_outdated_pod(view, &restore))
    {
        Some(step) => decision.with_step(step),
        None if permits.is_empty() => decision,
        None => decision.with_step(Step::Permit(permits)),
    }
}

/// Whether a pod of this restore has neither the backup nor the init container that downloads it, as it was made before
/// the request could be read: it is re-created. False without a matching request.
fn cannot_fetch(observed: &ObservedCluster, restore: &Restore, pod: &Pod, report: &Report) -> bool {
    let is_there = report.fetched.as_ref() == Some(&restore.uid);
    matching_request(observed, restore).is_some() && pod.fetch.is_none() && !is_there
}

/// How far one member is, as a number that only grows while it gets on: bytes, and beyond any number of them the steps that
/// follow.
fn progress_rank(observed: &ObservedCluster, ordinal: Ordinal, progress: &MemberProgress<'_>) -> i64 {
    const STEP: i64 = 1 << 50;
    match progress {
        MemberProgress::Prepared { .. } => 3 * STEP,
        MemberProgress::Preparing(_) => 2 * STEP,
        MemberProgress::Ready(..) => STEP,
        MemberProgress::Fetching(_) => fetched_bytes(observed, ordinal),
        MemberProgress::Failed(_) | MemberProgress::Unusable(_) | MemberProgress::Unknown(_) => 0,
    }
}

/// What helps where the old data are gone and the backup cannot be had.
fn recovery_hint(observed: &ObservedCluster, restore: &Restore) -> String {
    let name = &restore.name;
    if matching_request(observed, restore).is_some() {
        format!(
            " The old data are gone, so it goes on for as long as it takes; to restore another backup, delete the EtcdRestore {name} and create another one."
        )
    } else if observed.is_requester_present {
        format!(
            " The old data are gone. The EtcdCluster was replaced without what it was asked for; the EtcdRestore {name} asks again."
        )
    } else {
        format!(
            " The old data are gone and so is the EtcdRestore {name}: members go on as far as they can fetch its backup by themselves; create another EtcdRestore, which takes its place, if they do not."
        )
    }
}

/// What the user can do if no pod of a new cluster starts: there is no old cluster to return to.
fn stuck_pods_hint(restore: &Restore) -> String {
    let name = &restore.name;
    format!(
        " Pods stay as they were made while it stands: if they cannot start, correct the spec, delete the EtcdRestore {name} and create another one."
    )
}

/// What follows from what the members have done. `Commit`: all are prepared, or a majority and `STRAGGLER_TIMEOUT` has
/// passed, and old pods cannot have quorum. `RollBack` is not carried out any more after the commit.
enum PrepareOutcome {
    Commit(ClusterId),
    RollBack(RollbackCause),
    Wait,
}

/// Commits once enough members are prepared and the old pods cannot have quorum. Rolls back if members restored
/// different clusters, if one failed and no majority is prepared, or if an old cluster waits and nothing advances.
fn choose_outcome(
    view: &ClusterView<'_>,
    persisted: &PersistedState,
    restore: &Restore,
    tally: &Tally,
    since: Timestamp,
) -> PrepareOutcome {
    let observed = view.observed;
    let size = usize::from(restore.size);
    if tally.clusters.len() > 1 {
        return PrepareOutcome::RollBack(RollbackCause::ClustersDiffer);
    }
    let has_quorum = tally.prepared >= majority(size);
    if !tally.failures.is_empty() && !has_quorum {
        return PrepareOutcome::RollBack(RollbackCause::Failures(tally.failures.clone()));
    }
    let is_over = |limit: Duration, since: Timestamp| {
        let waited = Duration::try_from(observed.now.duration_since(since)).unwrap_or_default();
        waited >= limit
    };
    // Clients have a cluster to come back to, and nobody else brings it back. Who is at work, or waits for a permit that is
    // only given now, holds nothing up.
    let is_stalled = !tally.is_working && is_over(STALL_TIMEOUT, since);
    if !has_quorum && restore.previous_incarnation > 0 && is_stalled {
        return PrepareOutcome::RollBack(RollbackCause::Stalled {
            minutes: STALL_TIMEOUT.as_secs() / 60,
            blockers: tally.waits.clone(),
        });
    }
    let is_late = is_over(STRAGGLER_TIMEOUT, restore.since);
    let is_enough = tally.prepared == size || (has_quorum && is_late);
    let is_stopped = cannot_have_quorum(
        &unconfirmed_stops(observed, persisted.incarnation),
        persisted,
        restore,
    );
    match tally.clusters.first() {
        Some(cluster) if is_enough && is_stopped => PrepareOutcome::Commit(*cluster),
        _ => PrepareOutcome::Wait,
    }
}

/// Makes the restored data the cluster's: the recorded cluster ID changes, and the recorded members are dropped. From
/// here there is no roll-back; both write the same field of the status, so that only one of them can succeed.
fn commit(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    mut restore: Restore,
    cluster: ClusterId,
) -> FlowDecision {
    let text = format!(
        "The EtcdRestore {} is committed: the restored data take the place of the old ones.",
        restore.name
    );
    restore.enter(Phase::Committed, view.observed.now);
    restore.committed = true;
    restore.cluster = Some(cluster);
    persisted.cluster = Some(cluster);
    persisted.members = BTreeMap::new();
    persisted.restore = Some(restore);
    FlowDecision::without_operation(Reason::Restoring, text)
}
