//! Every etcd in a pod, from its image, on a real kubelet.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};

use crate::etcd_pod;

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "images",
        "the_oldest_and_the_newest_etcd_run_in_pods",
        Bed::Shared,
        |stage| Box::pin(run(stage, &[EtcdVersion::V3_2_25, EtcdVersion::V3_7_3])),
    ),
    // All eight take a minute of nothing else.
    Scenario::gate("images", "every_etcd_runs_in_a_pod", Bed::Alone, |stage| {
        Box::pin(run(stage, &EtcdVersion::ALL))
    })
    .full(),
];

async fn run(stage: Arc<Stage>, versions: &[EtcdVersion]) -> Result<()> {
    for version in versions {
        let number = version.number();
        let pod = format!("etcd-{}", number.replace('.', "-"));
        etcd_pod::start(&stage, &pod, "node-1", *version, None).await?;
        let said = etcd_pod::ctl(&stage, &pod, &["get", "greeting"]).await?;
        ensure!(said == "greeting\nhello\n", "{number} says {said}");
        let log = etcd_pod::log(&stage, &pod, false).await?;
        ensure!(log.contains(number), "it is not {number}: {log}");
    }
    Ok(())
}
