//! A cluster that exists, and no voter tells who its members are. What was begun stays as it is, and the status says why:
//!
//! 1. What each voter shows: its report, its status, or why it is silent.
//! 2. Whether all data are gone, or so many that no quorum can come back by itself.
//! 3. Whether the operator cannot ask: authentication, TLS, the network.
//! 4. Else a voter is waited for.

use etcd_operator_api::contract::Verdict;

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::diagnose;
use super::evidence::{
    can_be_misread, damage_signature, is_copied_without_consent, needs_other_template, template_not_served,
};
use super::quorum::majority;
use crate::blocker::{Blocker, MemberProblem, describe_verdict};
use crate::observed_state::{Membership, Ordinal};
use crate::pending_operation::Operation;

/// The explanation where etcd requires authentication.
const AUTHENTICATION_REQUIRED: &str = "etcd requires authentication, and this version of the operator has no user there: it cannot tell who the members are, and changes nothing. Clients with a user are served. To let the operator look after the cluster, disable authentication: etcdctl auth disable.";

/// Names of voters that wait on a volume which is attached elsewhere now, and whose own volume was never recorded: it
/// cannot be told from a copy.
fn unrecorded_voters(view: &ClusterView<'_>) -> Vec<String> {
    let observed = view.observed;
    let members = &observed.persisted.members;
    let voters = members.iter().filter(|(_, member)| member.is_voter);
    let mut ordinals: Vec<Ordinal> = voters.map(|(ordinal, _)| *ordinal).collect();
    if let Some(set) = observed.set.as_ref().filter(|_| members.is_empty()) {
        ordinals.extend(&set.voters);
    }
    let is_recorded = |ordinal: &Ordinal| {
        let member = members.get(ordinal);
        member.is_some_and(|member| member.claim.is_some() && member.volume.is_some())
    };
    let waits = |ordinal: &Ordinal| {
        let report = view.report(*ordinal, observed.persisted.incarnation);
        report.is_some_and(|(_, report)| report.verdict == Verdict::Moved)
    };
    ordinals.retain(|ordinal| !is_recorded(ordinal) && waits(ordinal));
    ordinals
        .into_iter()
        .map(|ordinal| observed.name(ordinal))
        .collect()
}

/// Says why no voter tells who the members are. It takes no step, and the pending operation stays.
pub fn decide(view: &ClusterView<'_>, operation: Option<&Operation>) -> FlowDecision {
    let observed = view.observed;
    let keep = |why: FlowDecision| FlowDecision {
        operation: operation.cloned(),
        ..why
    };
    let mut silent: Vec<_> = match &observed.membership {
        Membership::Unknown(failures) => failures.iter().cloned().map(Blocker::MembershipUnknown).collect(),
        Membership::Known(known) => vec![Blocker::OtherClusterResponds(known.cluster)],
    };
    let voters: Vec<_> = observed
        .persisted
        .members
        .iter()
        .filter(|(_, member)| member.is_voter)
        .collect();
    let (mut empty, mut gone) = (0, 0);
    for (ordinal, member) in &voters {
        let report = view
            .report(**ordinal, observed.persisted.incarnation)
            .map(|(_, report)| report);
        let Some(report) = report else {
            let pod = observed.member(**ordinal).pod.as_ref();
            let unserved = pod.filter(|pod| !view.has_served_template(pod));
            let crash = unserved.and_then(|pod| Some((pod, damage_signature(pod)?)));
            let problem = match (observed.member(**ordinal).status(), crash) {
                (Some(status), _) => MemberProblem::WithoutQuorum {
                    term: status.position.term,
                    index: status.raft_index,
                },
                (None, Some((pod, line))) => template_not_served(pod, line.to_owned(), None),
                (None, None) => diagnose::explain(view, **ordinal),
            };
            silent.push(Blocker::member(observed.name(**ordinal), problem));
            continue;
        };
        if can_be_misread(&report.verdict)
            && let Some(pod) = &observed.member(**ordinal).pod
            && !view.has_served_template(pod)
        {
            let finding = describe_verdict(&report.detail, &report.verdict);
            let problem = template_not_served(pod, finding, None);
            silent.push(Blocker::member(observed.name(**ordinal), problem));
            continue;
        }
        let is_empty = matches!(report.verdict, Verdict::Empty | Verdict::Unborn);
        let claim = observed.member(**ordinal).claim.as_ref().map(|claim| &claim.uid);
        let is_another = is_copied_without_consent(view, **ordinal, report)
            || (member.claim.is_some() && claim != member.claim.as_ref())
            || view.has_reverted_volume(**ordinal);
        empty += usize::from(is_empty);
        gone += usize::from(
            is_empty
                || report.verdict == Verdict::Damaged
                || (report.verdict == Verdict::Moved && is_another),
        );
        let asks = match report.verdict {
            Verdict::Moved => is_another,
            Verdict::Foreign => !view.is_adoption_requested(**ordinal),
            _ => false,
        };
        let adoptable_claim = asks.then(|| observed.member(**ordinal).claim.as_ref()).flatten();
        let problem = MemberProblem::VolumeReport {
            detail: report.detail.clone(),
            adoptable_claim: adoptable_claim.map(|claim| claim.uid.clone()),
        };
        silent.push(Blocker::member(observed.name(**ordinal), problem));
    }
    if !voters.is_empty() && empty == voters.len() {
        let text = "Every member found its disk empty: no data are left. Restore a backup, or delete the EtcdCluster and create it anew.";
        return keep(FlowDecision::without_operation(Reason::DataLost, text).with_blockers(silent));
    }
    if voters.len() - gone < majority(voters.len()) && !voters.is_empty() {
        let text = format!(
            "{gone} of {} voters lost their data: no quorum can come back by itself, and nothing is done that could lose more. Bring back the volumes that they had, or restore a backup with an EtcdRestore.",
            voters.len()
        );
        return keep(FlowDecision::without_operation(Reason::QuorumLost, text).with_blockers(silent));
    }
    if view.is_auth_enabled() {
        return keep(
            FlowDecision::without_operation(Reason::AuthenticationRequired, AUTHENTICATION_REQUIRED)
                .with_blockers(silent),
        );
    }
    if let Some(unreachable) = view.unreachable() {
        return keep(
            FlowDecision::without_operation(Reason::MembersUnreachable, unreachable.text())
                .with_blockers(silent),
        );
    }
    let unrecorded_voters = unrecorded_voters(view);
    if !unrecorded_voters.is_empty() {
        let names = unrecorded_voters.join(", ");
        let text = format!(
            "{names} found the volume attached elsewhere, and what was noted of its own volume has been lost: it cannot be told from a copy. Attach the volume where it was before, or restore a backup into a new EtcdCluster."
        );
        return keep(FlowDecision::without_operation(Reason::Blocked, text).with_blockers(silent));
    }
    let reason = if silent.iter().any(needs_other_template) {
        Reason::Blocked
    } else {
        Reason::Waiting
    };
    keep(
        FlowDecision::without_operation(reason, "Waiting for a voter to say who the members are.")
            .with_blockers(silent),
    )
}
