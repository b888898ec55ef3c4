//! Volumes: really full when full, larger while in use, where they should be, and broken on demand.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::observe;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::volumes::LOCAL;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::etcd_pod;

const SOON: Duration = Duration::from_mins(1);
const MIB: u64 = 1 << 20;

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate("volumes", "a_volume_fills_up_and_grows", Bed::Shared, |stage| {
        Box::pin(fills_up(stage))
    }),
    Scenario::gate(
        "volumes",
        "a_volume_follows_its_pod_to_another_node",
        Bed::Shared,
        |stage| Box::pin(follows(stage)),
    )
    .on_three_nodes(),
    Scenario::gate(
        "volumes",
        "a_local_volume_keeps_its_pod_on_its_node",
        Bed::Shared,
        |stage| Box::pin(stays(stage)),
    )
    .on_three_nodes(),
    Scenario::gate(
        "volumes",
        "damage_to_a_volume_is_seen_in_the_pod",
        Bed::Shared,
        |stage| Box::pin(damaged(stage)),
    ),
    Scenario::gate(
        "volumes",
        "etcd_notices_damage_to_its_log_and_to_its_database",
        Bed::Shared,
        |stage| Box::pin(etcd_damaged(stage)),
    ),
    Scenario::gate(
        "volumes",
        "a_slow_disk_is_slow_until_it_is_healed",
        Bed::Shared,
        |stage| Box::pin(slow(stage)),
    ),
    Scenario::gate(
        "volumes",
        "a_deleted_claim_takes_its_disk_with_it",
        Bed::Shared,
        |stage| Box::pin(deleted(stage)),
    ),
];

async fn fills_up(stage: Arc<Stage>) -> Result<()> {
    stage.claim("data", None, "320Mi").await?;
    stage.run("writer", None, Some("data"), &["pause"]).await?;
    let disk = stage.cluster().disk(stage.namespace(), "data").await?;
    ensure!(disk.bytes()? == 320 * MIB, "{}", disk.bytes()?);

    // A full disk has no room for the name of a new file either.
    stage.probe("writer", &["write", "/data/more", "1"]).await?;
    disk.fill()?;
    let written = stage.probe("writer", &["write", "/data/more", "4194304"]).await?;
    ensure!(written["full"] == true, "a full disk took {written}");

    stage.note("the claim asks for more");
    let claims = Api::<PersistentVolumeClaim>::namespaced(stage.cluster().client().await?, stage.namespace());
    let more = json!({ "spec": { "resources": { "requests": { "storage": "400Mi" } } } });
    claims
        .patch("data", &PatchParams::default(), &Patch::Merge(&more))
        .await?;
    until("the volume has grown", SOON, || async {
        let space = stage.probe("writer", &["space", "/data"]).await?;
        Ok(space["availableBytes"].as_u64().filter(|free| *free > 50 * MIB))
    })
    .await?;
    let written = stage.probe("writer", &["write", "/data/more", "4194304"]).await?;
    ensure!(written["full"] == false, "a grown disk is full: {written}");
    observe::object(claims, "data", "the claim tells its new size", SOON, |claim| {
        let size = claim.and_then(|claim| claim.status.as_ref()?.capacity.as_ref()?.get("storage"));
        size.is_some_and(|size| size.0 == "400Mi")
    })
    .await?;

    disk.unfill()?;
    let space = stage.probe("writer", &["space", "/data"]).await?;
    ensure!(space["availableBytes"].as_u64() > Some(300 * MIB), "{space}");
    Ok(())
}

async fn follows(stage: Arc<Stage>) -> Result<()> {
    stage.claim("data", None, "300Mi").await?;
    stage.run("one", Some("node-1"), Some("data"), &["pause"]).await?;
    stage.probe("one", &["write", "/data/kept", "5"]).await?;
    stage.cluster().delete_pod(stage.namespace(), "one", 0).await?;

    stage.run("two", Some("node-2"), Some("data"), &["pause"]).await?;
    let kept = stage.probe("two", &["read", "/data/kept"]).await?;
    ensure!(kept["content"] == "\0\0\0\0\0", "{kept}");
    Ok(())
}

async fn stays(stage: Arc<Stage>) -> Result<()> {
    stage.claim("data", Some(LOCAL), "300Mi").await?;
    stage.run("one", Some("node-2"), Some("data"), &["pause"]).await?;
    stage.cluster().delete_pod(stage.namespace(), "one", 0).await?;

    stage.run("again", None, Some("data"), &["pause"]).await?;
    let (node, _) = stage.cluster().place_of(stage.namespace(), "again").await?;
    ensure!(node.name() == "node-2", "it went to {}", node.name());
    Ok(())
}

async fn damaged(stage: Arc<Stage>) -> Result<()> {
    stage.claim("data", None, "300Mi").await?;
    stage.run("owner", None, Some("data"), &["pause"]).await?;
    stage.probe("owner", &["write", "/data/db", "8"]).await?;
    let disk = stage.cluster().disk(stage.namespace(), "data").await?;

    disk.flip("db", 2, 2)?;
    let bytes = disk.read("db")?;
    ensure!(bytes == [0, 0, 255, 255, 0, 0, 0, 0], "{bytes:?}");
    ensure!(
        disk.flip("db", 7, 2).is_err(),
        "bytes behind the end were inverted"
    );

    disk.cut("db", 1)?;
    let cut = stage.probe("owner", &["read", "/data/db"]).await?;
    ensure!(cut["content"] == "\0", "{cut}");

    ensure!(disk.names()? == ["db"], "{:?}", disk.names()?);
    disk.wipe()?;
    ensure!(disk.names()?.is_empty());
    ensure!(
        stage.probe("owner", &["read", "/data/db"]).await.is_err(),
        "a wiped file can be read"
    );
    Ok(())
}

async fn etcd_damaged(stage: Arc<Stage>) -> Result<()> {
    stage.claim("data", None, "300Mi").await?;
    etcd_pod::start(
        &stage,
        "member",
        "node-1",
        EtcdVersion::OF_CONTROL_PLANE,
        Some("data"),
    )
    .await?;
    let disk = stage.cluster().disk(stage.namespace(), "data").await?;
    let container = async || {
        let namespace = stage.namespace();
        stage
            .cluster()
            .container(namespace, "member", etcd_pod::CONTAINER)
            .await
    };
    let starts = async |count: i32, what: &str| {
        stage
            .pod("member", what, SOON, |pod| crate::restarts(pod) >= count)
            .await
    };

    // What is on the disk is what etcd reads.
    until("the value is in the database", SOON, || async {
        let database = disk.read(&format!("{}/member/snap/db", etcd_pod::DATA))?;
        let found = database.windows(5).any(|window| window == b"hello");
        Ok(found.then_some(()))
    })
    .await?;
    let standing = container().await?;
    standing.pause().await?;
    ensure!(
        disk.flip_in_database(etcd_pod::DATA, "hello")? > 0,
        "no such value"
    );
    standing.resume()?;
    // As JSON has it, since it is no text any more.
    let get = ["get", "greeting", "--write-out=json"];
    let value = etcd_pod::ctl(&stage, "member", &get).await?;
    let hello = "aGVsbG8=";
    ensure!(value.contains("\"value\":") && !value.contains(hello), "{value}");

    let standing = container().await?;
    standing.pause().await?;
    disk.cut_wal(etcd_pod::DATA)?;
    standing.kill()?;
    starts(1, "etcd has started again").await?;
    until("etcd notices that its log is torn", SOON, || async {
        let log = etcd_pod::log(&stage, "member", false).await?;
        Ok(log.contains("repaired WAL").then_some(()))
    })
    .await?;

    let standing = container().await?;
    standing.pause().await?;
    disk.break_database(etcd_pod::DATA)?;
    standing.kill()?;
    starts(3, "etcd has failed to start").await?;
    let log = etcd_pod::log(&stage, "member", true).await?;
    ensure!(log.contains("invalid database"), "it says {log}");
    Ok(())
}

async fn slow(stage: Arc<Stage>) -> Result<()> {
    stage.claim("data", None, "300Mi").await?;
    stage.run("writer", None, Some("data"), &["pause"]).await?;
    let disk = stage.cluster().disk(stage.namespace(), "data").await?;
    let container = stage
        .cluster()
        .container(stage.namespace(), "writer", "probe")
        .await?;
    let write = ["write", "/data/file", "4194304"];
    let seconds = |written: &serde_json::Value| written["seconds"].as_f64().context("no time was measured");
    let usual = seconds(&stage.probe("writer", &write).await?)?;

    let slow = stage.cluster().slow_disk(&container, &disk, MIB).await?;
    let slowed = seconds(&stage.probe("writer", &write).await?)?;
    ensure!(
        slowed > 2.0 && slowed > 2.0 * usual,
        "4 MiB at 1 MiB/s took {slowed} s, without a limit {usual} s"
    );

    slow.heal()?;
    let healed = seconds(&stage.probe("writer", &write).await?)?;
    ensure!(healed < slowed / 2.0, "healed, it took {healed} s");
    Ok(())
}

async fn deleted(stage: Arc<Stage>) -> Result<()> {
    stage.claim("data", None, "300Mi").await?;
    stage.run("owner", None, Some("data"), &["pause"]).await?;
    let client = stage.cluster().client().await?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), stage.namespace());
    let volume = claims.get("data").await?.spec.and_then(|spec| spec.volume_name);
    let volume = volume.context("the claim has no volume")?;
    let disk = stage.cluster().disk(stage.namespace(), "data").await?;
    disk.device().await?;

    stage.cluster().delete_pod(stage.namespace(), "owner", 0).await?;
    claims.delete("data", &DeleteParams::default()).await?;

    let volumes = Api::<PersistentVolume>::all(client);
    observe::object(volumes, &volume, "the volume is gone", SOON, |volume| {
        volume.is_none()
    })
    .await?;
    ensure!(disk.bytes().is_err(), "the volume is gone and its disk is not");
    Ok(())
}
