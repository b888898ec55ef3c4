//! The shape of a cluster's objects at one moment: what the membership allows, not what the spec wishes.

use std::collections::BTreeSet;

use super::cluster_view::ClusterView;
use super::restore_request::{
    awaits_restore, is_uncommitted_ephemeral, matching_request, returns_to_waiting,
};
use super::rollout::{downgrade, gate, state};
use super::{bootstrap_retry, corrected_restore};
use crate::build::FetchContainer;
use crate::observed_state::{ObservedCluster, Ordinal};
use crate::pending_operation::Operation;
use crate::persisted_state::{PersistedState, Phase, Restore};

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
    /// The ordinals of the voters.
    pub voter_ordinals: BTreeSet<Ordinal>,
    /// What becomes of the pod template.
    pub template: TemplateChange,
    /// Whether members are restarted one by one.
    pub is_rolling_out: bool,
    /// What the pods bring onto their volumes before they start.
    pub fetch_container: FetchContainer,
    /// Whether a restore stands: nothing of the pods changes then but what it needs, and the template as `template` says.
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

impl ObjectLayout {
    /// Whether pods may be made from what is asked for by now.
    pub fn may_update_template(&self) -> bool {
        self.template == TemplateChange::Update
    }

    /// Derives the layout from what was observed and from the state that the plan persists. An active restore decides
    /// about replicas, pod template and clients.
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
            } else if downgrade::must_return(view) {
                TemplateChange::ReturnToServed
            } else {
                TemplateChange::Keep
            },
            is_rolling_out: state::restarts_members(view, persisted),
            fetch_container: FetchContainer::Absent,
            is_restoring: false,
        };
        if let Some(restore) = persisted.restore.as_ref().filter(|restore| restore.is_active()) {
            adjust_to_restore(&mut layout, view, restore);
        }
        layout
    }
}

/// Overrides the layout during a restore: replicas follow its size and phase, the pod template follows
/// [`template_change`], and clients stay out until the restore lets them in.
fn adjust_to_restore(layout: &mut ObjectLayout, view: &ClusterView<'_>, restore: &Restore) {
    let observed = view.observed;
    let size = u16::from(restore.size);
    let highest = layout
        .voter_ordinals
        .last()
        .map_or(0, |ordinal| ordinal.replicas());
    layout.replicas = match restore.phase {
        Phase::RollingBack if returns_to_waiting(observed, restore) => 0,
        // The StatefulSet deletes no pod whose data would go with it before that is noted as the commit.
        Phase::Stopping if is_uncommitted_ephemeral(observed, restore) => {
            let now = observed.set.as_ref().map_or(0, |set| set.replicas);
            size.max(now).max(highest)
        }
        // A pod mounts the volume of the backup for as long as it exists, even if it restores nothing. Members without a pod keep
        // their old data on their volumes. `highest` does not count: until the restored members serve, it is of the old cluster.
        Phase::Stopping | Phase::Preparing | Phase::Committed => size,
        // A member that was never recorded may hold old data as well.
        Phase::RollingBack => size.max(highest).max(highest_with_volume(observed)),
        _ => size.max(highest),
    };
    layout.is_restoring = true;
    layout.template = template_change(view, restore);
    layout.accepts_clients = layout.accepts_clients && !restore.blocks_clients();
    layout.fetch_container = match matching_request(observed, restore).filter(|_| restore.is_fetching()) {
        Some(request) => FetchContainer::Required(Box::new(request.clone())),
        None if restore.is_fetching() => FetchContainer::Unchanged,
        None => FetchContainer::Absent,
    };
}

/// Which pod template a restore, or its roll-back, is carried out on: it begins with the last one with which a voter served, as one
/// with which no voter served may be what the restore is asked for. From there on it changes only if its pods cannot start.
fn template_change(view: &ClusterView<'_>, restore: &Restore) -> TemplateChange {
    let observed = view.observed;
    let spec_hash = observed.set.as_ref().and_then(|set| set.spec_hash.as_deref());
    let is_unserved = spec_hash.is_some_and(|spec_hash| !observed.persisted.has_served_spec(spec_hash));
    if corrected_restore::may_update_template(view, restore) {
        TemplateChange::Update
    } else if is_unserved && matches!(restore.phase, Phase::Stopping | Phase::RollingBack) {
        TemplateChange::ReturnToServed
    } else {
        TemplateChange::Keep
    }
}

/// The replicas that it takes for every ordinal with a PVC to have a pod; 0 without PVCs.
fn highest_with_volume(observed: &ObservedCluster) -> u16 {
    let mut members = observed.members.iter().rev();
    let highest = members.find(|(_, observed_member)| observed_member.claim.is_some());
    highest.map_or(0, |(ordinal, _)| ordinal.replicas())
}

/// Whether the pod template may change: in a formed cluster if its gate is open. Before that while no member was
/// permitted to start, while the cluster starts over, and while its bootstrap fails.
fn may_update_template(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    if persisted.has_formed() {
        return gate::may_update_template(view, persisted);
    }
    match persisted.pending.as_ref().map(|pending| &pending.operation) {
        None | Some(Operation::StartOver) => true,
        Some(Operation::Bootstrap(_)) => bootstrap_retry::is_failing(view),
        Some(_) => false,
    }
}

/// The replicas of the StatefulSet. Never fewer than the highest member needs, and never fewer than before while the
/// membership is unknown, unless the cluster hibernates. 0 while it awaits a restore; fixed during a bootstrap.
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
    if awaits_restore(observed, persisted) {
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
