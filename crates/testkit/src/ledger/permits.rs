//! Permits as they are given: for one process of a member and incarnation where the mode allows one, and never before
//! the operator has written down whom it is about to give one.

use etcd_operator_api::contract::{Mode, Permit, read};
use etcd_operator_api::names::ANNOTATION_PERMIT;
use serde_json::Value;

use super::steps::Request;
use super::{Ledger, Promise};

impl Ledger {
    pub(super) fn judge_permit(&self, request: &Request) {
        let Some(text) = request.body["metadata"]["annotations"]
            .get(ANNOTATION_PERMIT)
            .and_then(Value::as_str)
        else {
            return;
        };
        let stored = self
            .0
            .machine
            .fake()
            .stored_one("v1", "Pod", &request.namespace, &request.name);
        let known = stored
            .as_ref()
            .map(|pod| &pod["metadata"]["annotations"][ANNOTATION_PERMIT]);
        if text.is_empty() || known.and_then(Value::as_str) == Some(text) {
            return;
        }
        // Of another pod, or of what it was before: whoever was held up with it is refused.
        let names_another = ["uid", "resourceVersion"].into_iter().any(|field| {
            let named = &request.body["metadata"][field];
            !named.is_null() && stored.as_ref().is_none_or(|pod| pod["metadata"][field] != *named)
        });
        if names_another {
            return;
        }
        let at = self.0.etcds.now();
        let permit: Permit = match read(text.as_bytes()) {
            Ok(permit) => permit,
            Err(error) => {
                self.blame(at, Promise::S3, format!("a permit for {}: {error}", request.name));
                return;
            }
        };
        self.0.timeline.note(
            &request.name,
            format_args!("is permitted to {:?} as {}", permit.mode, permit.process),
        );
        if matches!(permit.mode, Mode::Bootstrap | Mode::Swap) {
            let key = (
                request.namespace.clone(),
                request.name.clone(),
                permit.incarnation,
                format!("{:?} {}", permit.mode, permit.cluster_uid),
            );
            let processes = self.with(|state| {
                let processes = state.permits.entry(key).or_default();
                processes.insert(permit.process.clone());
                processes.len()
            });
            if processes > 1 && !self.is_still_prepared(request, &permit) {
                let what = format!("{} gets a second permit to {:?}", request.name, permit.mode);
                self.blame(at, Promise::S3, what);
            }
        }
        if !self.is_written_down(&request.namespace, &permit) {
            let what = format!(
                "{} gets a permit of which no EtcdCluster's status knows",
                request.name
            );
            self.blame(at, Promise::S3, what);
        }
    }

    /// Whether what a permit lets be put in place is still beside the data, and its member never ran.
    fn is_still_prepared(&self, request: &Request, permit: &Permit) -> bool {
        let id = permit.cluster_id.as_deref().and_then(|id| id.parse().ok());
        let own = permit.member_id.as_deref().and_then(|id| id.parse().ok());
        let (Mode::Swap, Some(cluster), Some(member)) = (permit.mode, id, own) else {
            return false;
        };
        let disk = self.0.machine.pod(&request.namespace, &request.name);
        let content = disk.and_then(|pod| self.0.etcds.content(pod.disk?));
        let is_prepared = content.is_some_and(|content| content.prepared.is_some());
        is_prepared && !self.0.etcds.truth(|truth| truth.has_run(cluster, member))
    }

    /// Whether the cluster's status names the process.
    fn is_written_down(&self, namespace: &str, permit: &Permit) -> bool {
        let clusters = self
            .0
            .machine
            .fake()
            .stored("etcd.database.coreos.com/v1beta2", "EtcdCluster");
        let mut clusters = clusters.iter().filter(|cluster| {
            cluster["metadata"]["namespace"] == namespace && cluster["metadata"]["uid"] == *permit.cluster_uid
        });
        clusters.any(|cluster| cluster["status"].to_string().contains(&permit.process))
    }
}
