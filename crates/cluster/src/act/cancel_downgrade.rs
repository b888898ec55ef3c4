//! Canceling a downgrade that may be enabled in etcd 3.5, whose members do not tell. The leader ends it within seconds, but not any
//! more after a member was added, which cannot start before, or runs 3.6. Consent to a downgrade says nothing: it may be withdrawn
//! by now.

use etcd_operator_cluster_core::plan::Plan;
use etcd_operator_etcd as etcd;
use etcd_operator_etcd::membership::{Known, Membership as MembershipRead};
use etcd_operator_etcd::port::Port;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::version::{Minor, Version};
use etcd_operator_runtime::apply;
use etcd_operator_runtime::fence::{NotLeading, WritePermit};
use tracing::debug;

use super::{Change, Error, preferred_connection, send_change};
use crate::observe::Observation;
use crate::reconcile::Deps;

/// Whether members of this version do not tell if a downgrade is enabled: those of 3.5.
pub fn may_hide_downgrade(version: &Version) -> bool {
    Minor::of(version) == Some(Minor::V3_5)
}

/// Cancels a downgrade that may be enabled; that none is enabled is no error.
pub async fn cancel_hidden_downgrade(
    member: &dyn Port,
    permit: WritePermit,
) -> Result<Result<(), etcd::error::Error>, NotLeading> {
    let canceled = send_change(member, Change::CancelDowngrade, permit).await?;
    Ok(match canceled {
        Err(error) if error.rejection() != Some(&Rejection::NoDowngrade) => Err(error),
        _ => Ok(()),
    })
}

/// Cancels a downgrade that may be enabled, before the pod template leaves 3.5. Returns whether the template may
/// change, also where there is nothing to cancel. Some patches of 3.5 cancel a downgrade and do not answer: then the
/// next reconcile asks again.
pub async fn cancel_before_template(
    plan: &Plan,
    observation: &Observation,
    deps: &Deps,
) -> Result<bool, Error> {
    let Some(known) = observation
        .observed
        .known()
        .filter(|known| must_cancel_hidden_downgrade(plan, known))
    else {
        return Ok(true);
    };
    let Some(connection) = preferred_connection(observation) else {
        return Ok(false);
    };
    // The call names no member and no cluster, and every process accepts it.
    match connection.membership().await {
        MembershipRead::Known(now) if now.members == known.members && now.cluster == known.cluster => {}
        _ => return Ok(false),
    }
    let permit = deps.applier.permit().map_err(apply::Error::from)?;
    let canceled = cancel_hidden_downgrade(&**connection, permit).await;
    match canceled.map_err(apply::Error::from)? {
        Ok(()) => Ok(true),
        Err(error) if error.may_have_been_done() => {
            debug!(%error, "the downgrade may be canceled");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether the plan moves the pod template from 3.5 to a newer minor version. As 3.5 does not tell whether a downgrade is enabled,
/// it is canceled first in any case.
fn must_cancel_hidden_downgrade(plan: &Plan, known: &Known) -> bool {
    plan.leaves_minor && may_hide_downgrade(&known.version)
}
