//! The restore that is asked for, and the one that stands: whether it may begin, is still wanted, and can be rolled back.

use etcd_operator_api::contract::{RestoreIntent, RestoreTerms};

use crate::observed_state::ObservedCluster;
use crate::persisted_state::{PersistedState, Restore};

/// Whether a new cluster with `bootstrap.awaitRestore` waits for a restore. False once it has formed, anything is
/// pending or a restore is active, and if a member answers or the user adopts volumes.
pub fn awaits_restore(observed: &ObservedCluster, persisted: &PersistedState) -> bool {
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    let is_begun = persisted.has_formed() || persisted.pending.is_some() || is_restoring;
    // Nothing is known of whoever runs all the same, but that it was started once.
    let has_running_member = observed
        .members
        .values()
        .any(|observed_member| observed_member.status().is_some());
    observed.desired.awaits_restore && !is_begun && !has_running_member && observed.adopt.is_empty()
}

/// Whether no cluster had formed before this restore, and the spec lets it await one: after a roll-back it waits again.
pub fn returns_to_waiting(observed: &ObservedCluster, restore: &Restore) -> bool {
    observed.desired.awaits_restore && restore.previous_incarnation == 0
}

/// The requested restore. `None` if there is none, it cannot be read, or it is stale: over long ago, or its EtcdRestore
/// is gone. Whether it was carried out before, the caller checks.
pub fn startable_request(observed: &ObservedCluster) -> Option<&RestoreIntent> {
    let request = observed.restore.as_ref().ok()?.as_ref()?;
    (!observed.is_stale).then_some(request)
}

/// The request, if it is for this restore: same UID and same backup. `None` for another one, without one, or if it
/// cannot be read.
pub fn matching_request<'a>(observed: &'a ObservedCluster, restore: &Restore) -> Option<&'a RestoreIntent> {
    let request = observed.restore.as_ref().ok()?.as_ref()?;
    let is_same = request.uid == restore.uid && request.object.sha256 == restore.object_sha256;
    is_same.then_some(request)
}

/// Whether an uncommitted restore is given up: its EtcdRestore is gone, or another restore is requested. A missing or
/// stale annotation alone gives up nothing, as the object may have been replaced without it.
pub fn is_withdrawn(observed: &ObservedCluster, restore: &Restore) -> bool {
    let asks_nothing = observed.restore == Ok(None) || observed.is_stale;
    let asks_for_another = matching_request(observed, restore).is_none() && !asks_nothing;
    !restore.committed && (!observed.is_requester_present || asks_for_another)
}

/// What permits of a restore say of it. An older operator has noted nothing of how long the data of before are kept.
pub fn restore_terms(observed: &ObservedCluster, restore: &Restore) -> RestoreTerms {
    let asked = matching_request(observed, restore).map_or(0, |request| request.keep_previous_seconds);
    RestoreTerms {
        uid: restore.uid.clone(),
        object_sha256: restore.object_sha256.clone(),
        revision_bump: restore.revision_bump,
        keep_seconds: restore.keep_seconds.max(asked),
    }
}

/// Whether deleting pods would destroy data that a roll-back needs: storage is ephemeral, a cluster had formed, and the
/// restore is not committed.
pub fn is_uncommitted_ephemeral(observed: &ObservedCluster, restore: &Restore) -> bool {
    observed.desired.storage.is_ephemeral() && restore.previous_incarnation > 0 && !restore.committed
}
