//! Whether a step leaves quorum. Nothing that touches a member may be proposed without asking here.

use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::{Known, Member};
use etcd_operator_etcd_types::policy::{Feature, connected_to_add};

use super::cluster_view::ClusterView;
use super::evidence::{Evidence, evidence};
use super::quorum::majority;
use crate::blocker::{Blocker, MemberProblem};

/// Why a member must not be taken out now; empty if it may, also if it is no member. The removal itself takes a quorum
/// of the present voters, including the one that goes if it is healthy; and those that are left must hold quorum.
pub fn removal_blockers(view: &ClusterView<'_>, known: &Known, id: MemberId) -> Vec<Blocker> {
    let Some(member) = known.members.get(&id) else {
        return Vec::new();
    };
    let healthy = view.healthy_voters(known);
    let left = view.voters_without(known, id);
    let is_voter = known.voters().any(|voter| voter.id == id);
    if is_voter && left.voters == 0 {
        return vec![Blocker::member(
            view.display_name(member),
            MemberProblem::OnlyVoter,
        )];
    }
    if view.keeps_quorum_without(known, id) {
        return Vec::new();
    }
    let unhealthy = known
        .voters()
        .filter(|voter| voter.id != id && !healthy.contains(&voter.id));
    let mut blockers: Vec<_> = unhealthy
        .map(|voter| unhealthy_voter(view, known, voter))
        .collect();
    blockers.push(Blocker::RemovalBreaksQuorum {
        member: view.display_name(member),
        healthy: left.healthy,
        voters: left.voters,
        needed: majority(left.voters),
    });
    blockers
}

/// An unhealthy voter, with what the user has to do where only the user can help.
fn unhealthy_voter(view: &ClusterView<'_>, known: &Known, voter: &Member) -> Blocker {
    let evidence = view
        .ordinal(voter)
        .map(|ordinal| evidence(view, known, ordinal, voter));
    let cause = match evidence {
        Some(Evidence::NeedsUser(blocker)) => Some(Box::new(blocker)),
        _ => None,
    };
    Blocker::member(view.display_name(voter), MemberProblem::Unhealthy { cause })
}

/// Why no member can be added now; empty if one can. Another member has not finished joining, or fewer voters are
/// healthy than etcd needs to add one; without learners, that is all of them.
pub fn addition_blockers(view: &ClusterView<'_>, known: &Known) -> Vec<Blocker> {
    let version = view.oldest_version(known);
    let voters = known.voters().count();
    let healthy = view.healthy_voters(known);
    let mut blockers = Vec::new();
    for member in known.members.values() {
        if !member.has_started() {
            blockers.push(Blocker::member(
                view.display_name(member),
                MemberProblem::NotStarted,
            ));
        } else if known.learners().any(|learner| learner.id == member.id) {
            blockers.push(Blocker::member(view.display_name(member), MemberProblem::Learner));
        }
    }
    // Without learners the new member counts for the quorum before it has any data.
    let needed = if Feature::Learners.is_in(&version) {
        connected_to_add(&version, voters)
    } else {
        voters
    };
    if healthy.len() < needed {
        let unhealthy = known.voters().filter(|voter| !healthy.contains(&voter.id));
        blockers.extend(unhealthy.map(|voter| unhealthy_voter(view, known, voter)));
    }
    blockers
}
