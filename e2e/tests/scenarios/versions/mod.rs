//! Upgrades and downgrades to other minor versions, one minor after the other, while clients keep writing.

mod api_server;
mod api_v2;
mod backup_first;
mod downgrades;
mod forward;
mod interrupted;
mod missing_image;
mod panicking_image;
mod quiet;
mod reversed;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::version_history::VersionHistory;
use etcd_operator_e2e::workload::Workload;
use serde_json::{Value, json};

use crate::cluster::tenant::{Tenant, told};
use crate::rollout::{await_rolled_out, survived_without_gap};

/// Members of each cluster.
const SIZE: u8 = 3;

/// For how many seconds updated members serve before the last old one goes, where that wait is not what is tried.
const SHORT_WAIT: i32 = 5;

macro_rules! shared {
    ($name:literal, $story:path) => {
        Scenario::gate("versions", $name, Bed::Shared, |stage| Box::pin($story(stage)))
    };
}

/// Those of the gate.
const GATE: [Scenario; 1] = [shared!("one_minor_under_load", forward::one_minor)];

/// The rest, for their time.
const FULL: [Scenario; 22] = [
    shared!("three_minors_in_one_edit", forward::three_minors),
    shared!(
        "an_old_patch_walks_through_the_newest",
        forward::from_an_old_patch
    ),
    shared!("from_3_2_to_3_4", forward::from_the_oldest),
    shared!("a_quiet_cluster_goes_from_3_5_to_3_7", quiet::on_volumes),
    shared!("a_quiet_member_goes_from_3_5_to_3_7", quiet::of_one),
    shared!("a_quiet_cluster_in_pods_goes_from_3_5_to_3_7", quiet::in_pods),
    shared!(
        "a_kubernetes_api_server_keeps_its_objects_from_3_5_to_3_7",
        api_server::keeps_its_objects
    )
    .long(),
    shared!("reversed_before_the_point_of_no_return", reversed::in_time),
    shared!("refused_after_the_point_of_no_return", reversed::too_late),
    shared!("an_image_on_the_way_is_missing", missing_image::told_and_brought),
    Scenario {
        bed: Bed::Alone,
        ..shared!(
            "an_image_on_the_way_is_missing_and_another_patch_is_taken",
            missing_image::another_patch_is_taken
        )
    },
    shared!(
        "the_next_minor_panics_as_the_second_member",
        panicking_image::second_member
    ),
    shared!("data_of_api_v2_stop_a_walk_and_go_first", api_v2::data_left).long(),
    shared!("a_member_is_cut_off_during_a_walk", interrupted::by_silence),
    shared!("downgraded_from_3_7_to_3_6", downgrades::from_3_7),
    shared!("downgraded_from_3_6_to_3_5", downgrades::from_3_6),
    shared!(
        "a_downgrade_without_consent_is_refused",
        downgrades::refused_without_consent
    ),
    shared!("a_downgrade_is_canceled_half_way", downgrades::canceled_half_way),
    shared!(
        "a_member_is_lost_during_a_downgrade",
        downgrades::a_member_is_lost
    ),
    shared!("a_backup_comes_first", backup_first::comes_first),
    shared!(
        "a_broken_store_blocks_the_upgrade",
        backup_first::broken_store_blocks
    ),
    Scenario {
        bed: Bed::Alone,
        ..shared!(
            "operator_is_killed_during_a_walk",
            interrupted::by_killed_operator
        )
        .long()
    },
];

/// All of them.
pub fn scenarios() -> impl Iterator<Item = Scenario> {
    GATE.into_iter().chain(FULL.map(Scenario::full))
}

/// A cluster under load that is upgraded, and what it was before.
struct Upgrade {
    tenant: Tenant,
    way: Vec<EtcdVersion>,
    /// What it asks for, but for the version.
    spec: Value,
    load: Workload,
    history: VersionHistory,
    members: Vec<Value>,
    claims: Vec<String>,
}

impl Upgrade {
    /// A cluster that serves on the first of these versions and is loaded, and nodes that have the images of all of them.
    async fn prepare(stage: Arc<Stage>, way: &[EtcdVersion]) -> Result<Self> {
        let spec = json!({"updates": {"minReadySeconds": SHORT_WAIT}});
        Self::prepare_with(stage, way, spec).await
    }

    /// The same with more in its spec.
    async fn prepare_with(stage: Arc<Stage>, way: &[EtcdVersion], more: Value) -> Result<Self> {
        let (first, later) = way.split_first().context("a way without versions")?;
        let mut tenant = Tenant::on(Arc::clone(&stage), *first).await?;
        let mut spec = tenant.spec(SIZE);
        for version in later {
            tenant = Tenant::on(Arc::clone(&stage), *version).await?;
        }
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        tenant.apply(&spec).await?;
        tenant.converged(SIZE).await?;
        let client = stage.cluster().client().await?;
        let history = VersionHistory::watch(client, stage.namespace(), tenant.name()).await?;
        let load = tenant.load().await?;
        load.flows().await?;
        Ok(Self {
            way: way.to_vec(),
            spec,
            load,
            history,
            members: tenant.members().await?,
            claims: tenant.claim_uids().await?,
            tenant,
        })
    }

    /// Where it comes from.
    fn first(&self) -> Result<EtcdVersion> {
        self.way.first().copied().context("a way without versions")
    }

    /// Where it goes.
    fn target(&self) -> Result<EtcdVersion> {
        self.way.last().copied().context("a way without versions")
    }

    /// Sets `spec.version`.
    async fn request(&self, version: EtcdVersion) -> Result<()> {
        let mut spec = self.spec.clone();
        spec["version"] = json!(version.number());
        self.tenant
            .note(&format!("sets spec.version to {}", version.number()));
        self.tenant.apply(&spec).await
    }

    /// Asks for the last version, and waits until the way there is told.
    async fn begin(&self) -> Result<()> {
        self.request(self.target()?).await?;
        let names_all = |text: &str| self.way.iter().all(|version| text.contains(version.number()));
        self.tenant
            .says("the versions on the way are told", |status| {
                let why = status.plan.iter().filter_map(|plan| plan.why.as_deref());
                told(status).chain(why).any(names_all)
            })
            .await?;
        Ok(())
    }

    /// Waits until every member runs this version, with the volume, the data and the ID that it had.
    async fn arrived(&self, version: EtcdVersion) -> Result<()> {
        let what = format!("every member runs etcd {}", version.number());
        self.tenant
            .says(&what, |status| runs(status, version) == usize::from(SIZE))
            .await?;
        await_rolled_out(&self.tenant).await?;
        let status = self.tenant.says_converged(SIZE).await?;
        ensure!(
            status.current_version == version.number() && runs(&status, version) == usize::from(SIZE),
            "{status:?}"
        );
        let (members, claims) = (self.tenant.members().await?, self.tenant.claim_uids().await?);
        ensure!(members == self.members, "members were replaced: {members:?}");
        ensure!(claims == self.claims, "volumes were replaced");
        Ok(())
    }

    /// Waits for the end of the walk: every member served on each version of the way, and clients lost nothing and could
    /// write all the time.
    async fn survived(self) -> Result<()> {
        self.arrived(self.target()?).await?;
        self.history.went_through(&self.way, usize::from(SIZE))?;
        survived_without_gap(&self.tenant, self.load).await
    }
}

/// How many members run this version, as the status has it.
fn runs(status: &EtcdClusterStatus, version: EtcdVersion) -> usize {
    let members = status.member_status.iter().flatten();
    let versions = members.filter_map(|member| member.version.as_deref());
    versions.filter(|running| *running == version.number()).count()
}
