//! The last question to a member before it is replaced without having been heard of: one missed answer is no loss.
//!
//! It goes to the port where reports are read. Once etcd runs, it listens there too: without TLS, without authentication,
//! and without a quorum. So what kept the first call from an answer hardly keeps this one from it.

use std::net::IpAddr;

use etcd_operator_cluster_core::observed_state::{ObservedCluster, Ordinal, QueryResult};
use etcd_operator_cluster_core::pending_operation::{Cause, Operation};
use etcd_operator_cluster_core::plan::Step;

use crate::ports::Reports;

/// Why a member is not taken out for its replacement: the observation had no answer of it, and now etcd runs in its pod.
/// `None` for any other step, and where a person asked for the replacement.
pub async fn why_not_silent(
    step: &Step,
    pending: Option<&Operation>,
    observed: &ObservedCluster,
    reports: &dyn Reports,
) -> Option<String> {
    let (ordinal, at) = unheard_member(step, pending, observed)?;
    let is_etcd = matches!(reports.read_report(at).await, QueryResult::OtherResponder);
    is_etcd.then(|| format!("etcd runs in the pod of {}", observed.name(ordinal)))
}

/// The ordinal and the address of the member that the step takes out for its replacement, if it was not heard of.
fn unheard_member(
    step: &Step,
    pending: Option<&Operation>,
    observed: &ObservedCluster,
) -> Option<(Ordinal, IpAddr)> {
    let (
        Step::Remove {
            ordinal: Some(ordinal),
            id,
        },
        Operation::Replace(replace),
    ) = (step, pending?)
    else {
        return None;
    };
    if replace.id != *id || replace.cause == Cause::Requested {
        return None;
    }
    let observed_member = observed.member(*ordinal);
    let was_heard = observed_member.status().is_some() || observed_member.report().is_some();
    let at = observed_member.pod.as_ref()?.ip?;
    (!was_heard).then_some((*ordinal, at))
}
