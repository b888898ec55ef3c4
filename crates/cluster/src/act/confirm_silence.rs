//! The last question to a member before it is replaced because its node is lost: one missed answer is no loss.
//!
//! It goes to the port where reports are read. Once etcd runs, it listens there too: without TLS, without authentication,
//! and without a quorum. So what kept the first call from an answer hardly keeps this one from it.

use etcd_operator_cluster_core::observed_state::{ObservedCluster, ObservedMember, QueryResult};
use etcd_operator_cluster_core::pending_operation::{Cause, Operation};
use etcd_operator_cluster_core::plan::Step;

use crate::ports::Reports;

/// Why a member on a lost node is not taken out for its replacement: the observation had no answer of it, and now etcd runs in
/// its pod. `None` for any other step and cause.
pub async fn why_not_silent(
    step: &Step,
    pending: Option<&Operation>,
    observed: &ObservedCluster,
    reports: &dyn Reports,
) -> Option<String> {
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
    if replace.id != *id || replace.cause != Cause::NodeLost {
        return None;
    }
    let is_etcd = runs_unheard(observed.member(*ordinal), reports).await;
    is_etcd.then(|| format!("etcd runs in the pod of {}", observed.name(*ordinal)))
}

/// Whether etcd runs now in a pod of which the observation had no answer. A guard that waits there is no etcd.
async fn runs_unheard(observed_member: &ObservedMember, reports: &dyn Reports) -> bool {
    let was_heard = observed_member.status().is_some() || observed_member.report().is_some();
    let at = observed_member.pod.as_ref().and_then(|pod| pod.ip);
    match at.filter(|_| !was_heard) {
        Some(at) => matches!(reports.read_report(at).await, QueryResult::OtherResponder),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use etcd_operator_api::contract::{FetchProgress, Report};
    use etcd_operator_cluster_core::observed_state::{CallFailure, kube_objects};
    use etcd_operator_etcd::port::Answer;
    use serde_json::json;

    use super::*;

    /// Every pod responds like this.
    #[derive(Debug)]
    struct Responds(QueryResult<Report>);

    impl Reports for Responds {
        fn read_report(&self, _: IpAddr) -> Answer<'_, QueryResult<Report>> {
            Box::pin(async { self.0.clone() })
        }
        fn read_progress(&self, _: IpAddr) -> Answer<'_, QueryResult<FetchProgress>> {
            unreachable!("nothing is downloaded")
        }
    }

    fn silent(ip: Option<&str>) -> ObservedMember {
        let pod = json!({
            "metadata": {"name": "c-1", "uid": "u", "resourceVersion": "1"},
            "spec": {"nodeName": "n1", "containers": [{"name": "etcd"}]},
            "status": {"podIP": ip},
        });
        let no_answer = || CallFailure::from_text("no answer");
        ObservedMember {
            pod: kube_objects::read_pod(&serde_json::from_value(pod).expect("a pod"), None),
            claim: None,
            report: QueryResult::NoAnswer(no_answer()),
            status: QueryResult::NoAnswer(no_answer()),
        }
    }

    #[tokio::test]
    async fn a_silent_member_is_asked_once_more_and_one_whose_etcd_runs_is_not_lost() {
        let etcd = Responds(QueryResult::OtherResponder);
        assert!(runs_unheard(&silent(Some("10.0.0.1")), &etcd).await);
        let nothing = Responds(QueryResult::NoAnswer(CallFailure::from_text("no answer")));
        assert!(!runs_unheard(&silent(Some("10.0.0.1")), &nothing).await);
        assert!(!runs_unheard(&silent(None), &etcd).await);
        assert!(!runs_unheard(&ObservedMember::ABSENT, &etcd).await);
    }
}
