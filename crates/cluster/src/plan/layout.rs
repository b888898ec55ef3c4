//! The shape of a cluster's objects at one moment: what the membership allows, not what the spec wishes.

use std::collections::BTreeSet;

use etcd_operator_api::contract::RestoreIntent;

use super::{ClusterView, await_restore, bootstrap_retry, restore, rollout};
use crate::observed_state::Ordinal;
use crate::pending_operation::Operation;
use crate::persisted_state::PersistedState;

/// The shape of a cluster's objects.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectLayout {
    /// How many pods are kept.
    pub replicas: u16,
    /// The incarnation that the pods expect.
    pub incarnation: i64,
    /// Whether clients are sent to the members.
    pub accepts_clients: bool,
    /// How many voters there are.
    pub voter_count: usize,
    /// The places of the voters.
    pub voter_ordinals: BTreeSet<Ordinal>,
    /// What becomes of the pod template.
    pub template: TemplateChange,
    /// Whether members are restarted one by one.
    pub is_rolling_out: bool,
    /// What the pods bring onto their volumes before they start.
    pub fetch_container: FetchContainer,
    /// Whether a restore stands: nothing else of the pods changes then.
    pub is_restoring: bool,
}

/// What becomes of the pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateChange {
    /// It stays.
    Keep,
    /// It becomes what is asked for by now.
    Update,
    /// It becomes the last one with which a voter was healthy, if that is known.
    ReturnToServed,
}

/// What pods bring onto their volumes before they start.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum FetchContainer {
    /// Nothing.
    #[default]
    Absent,
    /// What the template says already.
    Unchanged,
    /// The object of a restore.
    Required(Box<RestoreIntent>),
}

impl ObjectLayout {
    /// Whether pods may be made from what is asked for by now.
    pub fn may_update_template(&self) -> bool {
        self.template == TemplateChange::Update
    }

    /// The shape that fits what was seen and is remembered.
    pub fn new(view: &ClusterView<'_>, persisted: &PersistedState) -> Self {
        let voters = persisted.members.iter().filter(|(_, member)| member.is_voter);
        let mut voter_ordinals: BTreeSet<_> = voters.map(|(ordinal, _)| *ordinal).collect();
        let set = view.observed.set.as_ref();
        if let Some(set) = set.filter(|_| persisted.has_formed() && persisted.members.is_empty()) {
            // The status has been lost: what is noted here is all there is until somebody can tell again.
            voter_ordinals.clone_from(&set.voters);
        }
        let mut layout = Self {
            replicas: replicas(view, persisted),
            incarnation: persisted.incarnation,
            accepts_clients: persisted.has_formed(),
            voter_count: voter_ordinals.len(),
            voter_ordinals,
            template: if may_update_template(view, persisted) {
                TemplateChange::Update
            } else if rollout::downgrade::must_return(view) {
                TemplateChange::ReturnToServed
            } else {
                TemplateChange::Keep
            },
            is_rolling_out: rollout::restarts_members(view, persisted),
            fetch_container: FetchContainer::Absent,
            is_restoring: false,
        };
        if let Some(restore) = persisted.restore.as_ref().filter(|restore| restore.is_active()) {
            restore::adjust_layout(&mut layout, view.observed, restore);
        }
        layout
    }
}

/// Where nothing is started, nobody can be disturbed by another template; and what keeps members from starting may just
/// have been corrected.
fn may_update_template(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    if persisted.has_formed() {
        return rollout::may_update_template(view, persisted);
    }
    match persisted.pending.as_ref().map(|pending| &pending.operation) {
        None | Some(Operation::StartOver) => true,
        Some(Operation::Bootstrap(_)) => bootstrap_retry::is_failing(view),
        Some(_) => false,
    }
}

/// How many pods are kept. Never fewer than the highest member needs, and never fewer than before while nobody can
/// tell who the members are.
pub fn replicas(view: &ClusterView<'_>, persisted: &PersistedState) -> u16 {
    let observed = view.observed;
    let wanted = u16::from(observed.desired.size.get());
    let now = observed.set.as_ref().map_or(0, |set| set.replicas);
    let highest_of = |ordinals: Option<&Ordinal>| ordinals.map_or(0, |ordinal| ordinal.replicas());
    let frozen = match persisted.pending.as_ref().map(|pending| &pending.operation) {
        Some(Operation::Bootstrap(targets)) => Some(highest_of(targets.keys().next_back())),
        // Whoever is not there yet may be a member all the same.
        Some(Operation::Adopt(targets)) => Some(highest_of(targets.keys().next_back()).max(now)),
        // What may hold a write must be looked at before anything begins anew, whatever the spec says by now.
        Some(Operation::StartOver) => Some(now.max(wanted)),
        _ => None,
    };
    if let Some(frozen) = frozen.filter(|_| !persisted.has_formed()) {
        return frozen;
    }
    if await_restore::is_waiting(observed, persisted) {
        return 0;
    }
    if wanted == 0 || !persisted.has_formed() {
        return wanted;
    }
    // What the StatefulSet says of the voters counts where the status has been lost.
    let noted = observed
        .set
        .as_ref()
        .and_then(|set| set.voters.iter().next_back());
    let highest = highest_of(persisted.members.keys().next_back().or(noted));
    // Where there are no learners, who was added votes before it has started, even if the answer was lost.
    let joining = match persisted.pending.as_ref().map(|pending| &pending.operation) {
        Some(Operation::Join(join)) => join.ordinal.replicas(),
        _ => 0,
    };
    let highest_voter = highest_of(persisted.highest_voter().as_ref().or(noted)).max(joining);
    match view.known() {
        Some(known) if view.has_member_elsewhere(known) => now.max(wanted).max(highest),
        Some(_) => wanted.max(highest_of(persisted.members.keys().next_back())),
        // After a sleep those who voted come back first, for they alone can take others in.
        None if now == 0 && highest_voter == 0 => wanted,
        None if now == 0 => highest_voter,
        None => now.max(highest),
    }
}
