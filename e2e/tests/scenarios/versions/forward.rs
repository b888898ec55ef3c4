//! Upgrades that nothing disturbs.

use std::sync::Arc;

use anyhow::Result;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;

use super::Upgrade;

/// The next minor.
pub async fn one_minor(stage: Arc<Stage>) -> Result<()> {
    walk(stage, &[EtcdVersion::V3_5_35, EtcdVersion::V3_6_16]).await
}

/// A jump over two minors is walked one by one.
pub async fn three_minors(stage: Arc<Stage>) -> Result<()> {
    let way = [
        EtcdVersion::V3_4_23,
        EtcdVersion::V3_5_35,
        EtcdVersion::V3_6_16,
        EtcdVersion::V3_7_3,
    ];
    walk(stage, &way).await
}

/// From patches below 3.5.26, members that were removed can come back on 3.6: every member serves on the newest first.
pub async fn from_an_old_patch(stage: Arc<Stage>) -> Result<()> {
    let way = [EtcdVersion::V3_5_21, EtcdVersion::V3_5_35, EtcdVersion::V3_6_16];
    walk(stage, &way).await
}

/// Versions without learners, the first of which cannot hand leadership over.
pub async fn from_the_oldest(stage: Arc<Stage>) -> Result<()> {
    let way = [EtcdVersion::V3_2_25, EtcdVersion::V3_3_27, EtcdVersion::V3_4_23];
    walk(stage, &way).await
}

async fn walk(stage: Arc<Stage>, way: &[EtcdVersion]) -> Result<()> {
    let upgrade = Upgrade::prepare(stage, way).await?;
    upgrade.begin().await?;
    upgrade.survived().await
}
