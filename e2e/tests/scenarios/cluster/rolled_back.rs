//! A volume that is put back to what it was: somebody kept a copy of a member's disk, as a VolumeSnapshot is one, and
//! gives the member that in the place of its own. Whoever started on it would have forgotten what it agreed to.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::volumes::Disk;
use serde_json::json;

use super::tenant::{SOON, Tenant, told};

/// How many writes the copy lacks.
const LACKING: usize = 30;

/// Thirty writes were lost this way with flags alone, on each of these.
pub async fn never_votes(stage: Arc<Stage>) -> Result<()> {
    let versions = [
        EtcdVersion::V3_4_23,
        EtcdVersion::V3_5_35,
        EtcdVersion::V3_6_16,
        EtcdVersion::V3_7_3,
    ];
    for (number, version) in versions.into_iter().enumerate() {
        let first = Tenant::on(stage.clone(), version).await?;
        // Each has a name of its own, so that what is told of one is not taken for another's.
        let tenant = first.named(&format!("back{number}"));
        played(&tenant)
            .await
            .with_context(|| format!("etcd {}", version.number()))?;
        tenant.delete().await?;
        tenant.kubectl(&["delete", "pvc", "--all", "--wait=true"]).await?;
    }
    Ok(())
}

async fn played(tenant: &Tenant) -> Result<()> {
    tenant.apply(&tenant.spec(3)).await?;
    tenant.converged(3).await?;
    let (leader, follower, third) = three(tenant).await?;
    let before = tenant.id_of(&follower).await?;
    let copy = Spare::of(tenant, &follower).await?;
    let load = tenant.load().await?;
    load.flows().await?;

    // The third stands still and misses what the other two agree on.
    let missing = tenant.container(&third).await?;
    missing.pause().await?;
    for number in 0..LACKING {
        let key = format!("k{number}");
        until("a write is acknowledged", SOON, || async {
            Ok(tenant.put(&key).await.ok())
        })
        .await?;
    }
    // Now the one that has everything is away, and the copy and the one that missed it could be a majority.
    let knowing = tenant.container(&leader).await?;
    knowing.pause().await?;
    let own = copy.takes_the_place_of(tenant, &follower).await?;
    missing.resume()?;
    tenant
        .says("the copy is told from the member's own volume", |status| {
            is_refused(status, &follower, &third)
        })
        .await?;
    ensure!(
        tenant.etcdctl(&["get", "k0"]).await.is_err(),
        "a voter of before and one that missed {LACKING} writes serve"
    );
    let (replaced, resumed) = tokio::join!(
        tenant.says("it is replaced for the sake of its volume", is_for_its_volume),
        async { knowing.resume() }
    );
    resumed?;
    replaced?;
    tenant.becomes_another(&follower, &before).await?;
    tenant.converged(3).await?;
    tenant
        .stage()
        .event(tenant.name(), "MemberPromoted", SOON)
        .await
        .context("it came back with a vote")?;
    for number in 0..LACKING {
        tenant.holds(&format!("k{number}")).await?;
    }
    tenant.survived(load).await?;
    for volume in [&own, &copy.volume] {
        reclaim(tenant, volume, "Delete").await?;
    }
    Ok(())
}

/// Its own volume, which looks whole: that it went back shows only by how far it had been.
pub async fn found_out(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    tenant.apply(&tenant.spec(3)).await?;
    tenant.converged(3).await?;
    let (_, follower, third) = three(&tenant).await?;
    let before = tenant.id_of(&follower).await?;
    let copy = Spare::of(&tenant, &follower).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    for number in 0..LACKING {
        until("a write is acknowledged", SOON, || async {
            Ok(tenant.put(&format!("k{number}")).await.ok())
        })
        .await?;
    }
    // With whatever else is news it is noted how far members have come.
    let pods = tenant.pod_uids().await?;
    tenant.delete_pod(&third).await?;
    tenant.another_pod(&third, &pods).await?;
    tenant.converged(3).await?;

    tenant.note(&format!("the data of {follower} are put back in their place"));
    let container = tenant.container(&follower).await?;
    container.pause().await?;
    copy.disk
        .copy_over("data", &tenant.disk(&follower).await?)
        .await?;
    let (replaced, deleted) = tokio::join!(
        tenant.says("it is replaced for the sake of its volume", is_for_its_volume),
        tenant.delete_pod(&follower)
    );
    deleted?;
    replaced?;
    tenant.becomes_another(&follower, &before).await?;
    tenant.converged(3).await?;
    for number in 0..LACKING {
        tenant.holds(&format!("k{number}")).await?;
    }
    tenant.survived(load).await?;
    reclaim(&tenant, &copy.volume, "Delete").await?;
    tenant.delete().await
}

/// The one that leads, one that follows, and the other one.
async fn three(tenant: &Tenant) -> Result<(String, String, String)> {
    let (leader, follower) = tenant.leader_and_follower().await?;
    let mut others = (0..3).map(|ordinal| tenant.pod(ordinal));
    let third = others.find(|pod| *pod != leader && *pod != follower);
    Ok((leader, follower, third.context("there are fewer than three")?))
}

/// Whether somebody is replaced for the sake of its volume.
fn is_for_its_volume(status: &EtcdClusterStatus) -> bool {
    let step = status.plan.iter().find_map(|plan| plan.step.as_ref());
    step.is_some_and(|step| step.cause.as_deref() == Some("StaleVolume"))
}

/// Whether one waits on another volume than its own, and the other one runs, and alone.
fn is_refused(status: &EtcdClusterStatus, waits: &str, runs: &str) -> bool {
    let mut members = status.member_status.iter().flatten();
    let is_moved = members.any(|member| member.name == waits && member.verdict.as_deref() == Some("moved"));
    let says = |words: &str| told(status).any(|text| text.contains(words));
    is_moved
        && says("another volume than before")
        && says("and no copy of it, annotate this EtcdCluster with etcd.database.coreos.com/adopt")
        && says(&format!("{runs} answers, at term"))
}

/// A copy of a member's disk, on a volume that nobody claims yet.
struct Spare {
    volume: String,
    disk: Disk,
}

impl Spare {
    /// Made of the disk of a member that stands still for so long.
    async fn of(tenant: &Tenant, pod: &str) -> Result<Self> {
        let (stage, name) = (tenant.stage(), format!("{}-copy", tenant.name()));
        stage.claim(&name, None, "256Mi").await?;
        // Whoever mounts it first has it made.
        stage.run(&name, None, Some(name.as_str()), &["pause"]).await?;
        let claim = format!("pvc/{name}");
        let volume = tenant.field(&claim, ".spec.volumeName").await?;
        let disk = stage.cluster().disk(stage.namespace(), &name).await?;
        copied(tenant, pod, &disk).await?;

        reclaim(tenant, &volume, "Retain").await?;
        stage.cluster().delete_pod(stage.namespace(), &name, 0).await?;
        tenant
            .kubectl(&["delete", &claim, "--wait=true", "--timeout=120s"])
            .await?;
        comes_to(tenant, &volume, "Released").await?;
        Ok(Self { volume, disk })
    }

    /// A member's claim goes, its own volume stays aside, and the claim that is made anew is given the copy. Returns the
    /// volume that was its own.
    async fn takes_the_place_of(&self, tenant: &Tenant, pod: &str) -> Result<String> {
        tenant.note(&format!("{pod} is given a volume of before"));
        let (name, object) = (format!("data-{pod}"), format!("pvc/data-{pod}"));
        let reserved = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "name": name, "namespace": tenant.stage().namespace(),
        });
        let patch = json!([{"op": "replace", "path": "/spec/claimRef", "value": reserved}]);
        patched(tenant, &self.volume, "--type=json", &patch.to_string()).await?;
        comes_to(tenant, &self.volume, "Available").await?;
        let own = tenant.field(&object, ".spec.volumeName").await?;
        reclaim(tenant, &own, "Retain").await?;
        tenant.kubectl(&["delete", &object, "--wait=false"]).await?;
        tenant.delete_pod(pod).await?;
        until("the claim is another one", SOON, || async {
            let now = tenant.field(&object, ".spec.volumeName").await?;
            ensure!(
                now.is_empty() || now == own || now == self.volume,
                "{name} has the volume {now}"
            );
            Ok((now == self.volume).then_some(()))
        })
        .await?;
        Ok(own)
    }
}

async fn copied(tenant: &Tenant, pod: &str, to: &Disk) -> Result<()> {
    tenant.note(&format!("the disk of {pod} is copied"));
    let disk = tenant.disk(pod).await?;
    let container = tenant.container(pod).await?;
    container.pause().await?;
    let copied = disk.copy_to(to).await;
    container.resume()?;
    copied
}

async fn comes_to(tenant: &Tenant, volume: &str, phase: &str) -> Result<()> {
    let object = format!("pv/{volume}");
    until(&format!("the volume of the copy is {phase}"), SOON, || async {
        Ok((tenant.field(&object, ".status.phase").await? == phase).then_some(()))
    })
    .await
}

/// What becomes of a volume that nobody claims any more.
async fn reclaim(tenant: &Tenant, volume: &str, policy: &str) -> Result<()> {
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    patched(tenant, volume, "--type=merge", &patch.to_string()).await
}

async fn patched(tenant: &Tenant, volume: &str, kind: &str, patch: &str) -> Result<()> {
    tenant
        .kubectl(&["patch", "pv", volume, kind, "--patch", patch])
        .await?;
    Ok(())
}
