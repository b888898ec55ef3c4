//! Looking at volume claims themselves where the copies may not do: a claim that somebody made without the labels by which
//! they are watched is in none of them, and what is noted as a member's own volume must not be what a copy shows late.

use std::collections::BTreeMap;

use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::desired::Desired;
use crate::memory::{Admitted, Memory};
use crate::reconcile::Deps;
use crate::world::{Ordinal, Seen, reading};

/// Reads claims from the API server where that is needed. A cluster that is as it was needs none.
pub async fn look_again(
    desired: &Desired,
    key: &ObjectKey,
    seen: &mut BTreeMap<Ordinal, Seen>,
    memory: &Memory,
    deps: &Deps,
) -> Result<(), Error> {
    for (place, seen) in seen {
        if is_needed(seen, memory.members.get(place)) {
            let claim = key.beside(&place.claim(&desired.name));
            let now = deps.applier.read::<PersistentVolumeClaim>(&claim).await?;
            seen.claim = now.as_ref().and_then(reading::claim);
        }
    }
    Ok(())
}

/// Whether a claim that must be there is in no copy, or a member runs on another one than is noted.
fn is_needed(seen: &Seen, noted: Option<&Admitted>) -> bool {
    let Some(claim) = &seen.claim else {
        return seen.pod.is_some();
    };
    let runs_as = seen.status().map(|status| status.position.member);
    runs_as.is_some_and(|id| !noted.is_some_and(|noted| noted.id == id && noted.is_on(claim)))
}
