//! A restore during a rollout.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::broken::stalls_at_one;
use super::{await_rolled_out, pods_with_flag, survived_without_gap, with_flag};
use crate::backup::vault::Bucket;
use crate::restore::clients::Writer;
use crate::restore::in_place::{backed_up, into_s3, serving, shows_the_backup, write};
use crate::restore::new_target::from_the_backup;
use crate::restore::seen::Restore;

/// The first member does not start with a bad image. A restore brings all members back without it, and the corrected image is
/// rolled out after that.
pub async fn while_stalled(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    backed_up(&stage, &into_s3()).await?;
    write(&tenant, "after").await?;
    tenant.etcdctl(&["del", "before-0"]).await?;
    let mut good = tenant.spec(3);
    good["storage"]["size"] = json!("768Mi");
    stalls_at_one(&tenant, &good, "restored").await?;

    let writer = Writer::start(&tenant).await?;
    writer.goes_on().await?;
    let restore = Restore::named(&stage, "back");
    restore.apply(&from_the_backup("c")).await?;
    restore.reaches("Preparing").await?;
    let gone = writer.last();
    restore.succeeds().await?;
    writer.goes_on().await?;
    writer.was_rolled_back(&tenant, gone).await?;
    shows_the_backup(&tenant).await?;

    // The bad image is still in the spec, so one member may have met it again.
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.note("corrects the image");
    tenant.apply(&with_flag(good, 256)).await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    tenant.holds("before-0").await?;
    survived_without_gap(&tenant, load).await
}
