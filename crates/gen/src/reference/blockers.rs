//! The reference page about blockers: the reasons in `status.plan.blockers`.

use etcd_operator_cluster_core::blocker::BlockerReason;

use super::head;
use super::table::{code, table};

/// Generates the page.
pub(super) fn page() -> String {
    let mut reasons = BlockerReason::ALL.to_vec();
    reasons.sort_by_key(|reason| reason.as_str());
    let rows: Vec<[String; 3]> = reasons
        .into_iter()
        .map(|reason| {
            [
                code(reason.as_str()),
                reason.meaning().to_owned(),
                reason.remedy().to_owned(),
            ]
        })
        .collect();
    format!(
        "{}
While an EtcdCluster waits, `status.plan.blockers` lists what must change before the next step is safe: `reason`, `member` and `message`. `status.plan.blockedBy` has the same as text, where members with the same problem share one entry. The metric `etcd_operator_cluster_blockers` counts them by cluster and reason.

```shell
kubectl get etcd NAME --output jsonpath='{{range .status.plan.blockers[*]}}{{.reason}} {{.member}}: {{.message}}{{\"\\n\"}}{{end}}'
```

{}",
        head("Blockers"),
        table(&["reason", "meaning", "what to do"], &rows),
    )
}
