//! Changes that keep a member from starting: the rollout stops there, and a corrected spec is enough.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::images;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::refused::bound;
use super::{
    await_rolled_out, has_blocker, is_rollout, kept, pods_with_flag, survived_without_gap, with_flag,
};
use crate::cluster::tenant::{SOON, Tenant, is, told};

/// Nobody listens there, and the attempt does not leave the node.
const UNPULLABLE: &str = "127.0.0.1:1/nothing";

/// Its image of the version that the members run.
const UNPULLABLE_REFERENCE: &str = "127.0.0.1:1/nothing:v3.6.16";

/// Where repositories of this bed are whose images panic.
const PANICKING: &str = "127.0.0.1:1/rollout";

/// A repository of this bed only, so that nodes find there what was imported.
const LYING: &str = "127.0.0.1:1/lying";

/// An image whose etcd does not start is corrected by another change, and the next one is reversed.
pub async fn image(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (members, claims) = (tenant.members().await?, tenant.claim_uids().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    stalls_at_one(&tenant, &tenant.spec(3), "first").await?;
    load.flows().await?;
    let corrected = with_flag(tenant.spec(3), 256);
    tenant.note("corrects the image");
    tenant.apply(&corrected).await?;
    await_rolled_out(&tenant).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    let before = tenant.pod_uids().await?;
    stalls_at_one(&tenant, &corrected, "second").await?;
    tenant.note("sets the image back");
    tenant.apply(&corrected).await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    let after = tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 2, "{before:?} became {after:?}");
    ensure!(tenant.members().await? == members, "members were replaced");
    ensure!(tenant.claim_uids().await? == claims, "volumes were replaced");
    survived_without_gap(&tenant, load).await
}

/// Asks for an image that tells its version, and whose etcd ends as the first member that gets it: that one is restarted, and no
/// other one. `name` is one that no image had before, as images stay on the nodes.
pub async fn stalls_at_one(tenant: &Tenant, good: &Value, name: &str) -> Result<()> {
    let (leader, _) = tenant.leader_and_follower().await?;
    let mut pods = (0..3).map(|ordinal| tenant.pod(ordinal));
    // Followers are restarted in the order of their ordinals, and the leader last.
    let first = pods.find(|pod| *pod != leader).context("nobody follows")?;
    let repository = format!("{PANICKING}/{name}");
    let archive = images::etcd_panicking_as(&first, &repository, tenant.version()).await?;
    tenant.import(&archive).await?;
    let before = tenant.pod_uids().await?;
    let mut spec = good.clone();
    spec["repository"] = json!(repository);
    spec["updates"] = json!({"progressDeadlineSeconds": 30});
    tenant.note(&format!("asks for an image that panics as {first}"));
    tenant.apply(&spec).await?;
    let status = tenant
        .says("the rollout has stalled", |status| {
            is_rollout(status, "Stalled") && has_blocker(status, "ContainerEnded")
        })
        .await?;
    let after = tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 2, "{before:?} became {after:?}");
    ensure!(status.updated_members.as_deref() == Some("1/3"), "{status:?}");
    ensure!(
        crate::cluster::tenant::is(&status, "Available", "True", "QuorumServes"),
        "{status:?}"
    );
    Ok(())
}

/// An image that cannot be pulled, and one that holds another version than its tag says, touch no member; another image is rolled out.
pub async fn unusable_image(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let before = tenant.pod_uids().await?;
    untouched(&tenant, 3, UNPULLABLE, &[UNPULLABLE_REFERENCE]).await?;
    let lying = import_lying(&tenant).await?;
    untouched(&tenant, 3, LYING, &[&lying, "3.7.3"]).await?;
    let mirror = format!("{PANICKING}/mirror");
    let good = images::etcd_in(&mirror, tenant.version()).await?;
    tenant.import(&good).await?;
    let mut spec = with_flag(tenant.spec(3), 256);
    spec["repository"] = json!(mirror);
    tenant.note("asks for an image that can be used");
    tenant.apply(&spec).await?;
    await_rolled_out(&tenant).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    let after = tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 0, "{before:?} became {after:?}");
    survived_without_gap(&tenant, load).await
}

/// The only member goes on when the image cannot be pulled, or holds etcd 3.7, which would raise the version of the cluster.
pub async fn unusable_image_of_only_member(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    untouched(&tenant, 1, UNPULLABLE, &[UNPULLABLE_REFERENCE]).await?;
    let lying = import_lying(&tenant).await?;
    untouched(&tenant, 1, LYING, &[&lying, "3.7.3"]).await?;
    tenant.put("meanwhile").await?;
    tenant.note("corrects the image");
    tenant.apply(&with_flag(tenant.spec(1), 256)).await?;
    await_rolled_out(&tenant).await?;
    let status = tenant.says_converged(1).await?;
    ensure!(status.current_version == tenant.version().number(), "{status:?}");
    tenant.holds("before").await?;
    tenant.put("after").await
}

/// The rollout is blocked in these words, no pod is another one, and the members take writes.
async fn untouched(tenant: &Tenant, size: u8, repository: &str, words: &[&str]) -> Result<()> {
    let before = tenant.pod_uids().await?;
    let mut spec = tenant.spec(size);
    spec["repository"] = json!(repository);
    tenant.note(&format!("asks for images of {repository}"));
    tenant.apply(&spec).await?;
    let status = tenant
        .says("the image cannot be used", |status| {
            let are_told = |text: &str| words.iter().all(|word| text.contains(word));
            is_rollout(status, "Blocked")
                && has_blocker(status, "ImageNotUsable")
                && told(status).any(are_told)
        })
        .await?;
    ensure!(
        status.updated_members.as_deref() == Some(&format!("0/{size}")),
        "{status:?}"
    );
    let after = tenant.pod_uids().await?;
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

/// A quota has no room for the pod of the Job that would try the image, which holds 3.7.3 under a tag of 3.6.16: one member stays
/// down, and no other one goes before the image is corrected.
pub async fn lying_image(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    refused_and_corrected(&tenant, 3).await?;
    survived_without_gap(&tenant, load).await
}

/// The same for the only member: etcd 3.7 would raise the version of the cluster, and 3.6 could not start again.
pub async fn lying_image_of_only_member(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    refused_and_corrected(&tenant, 1).await?;
    tenant.holds("before").await?;
    tenant.put("after").await
}

/// The guard does not start etcd of another minor version than the tag of its image says; its volume stays as it is. The corrected
/// spec replaces the pod at once.
async fn refused_and_corrected(tenant: &Tenant, size: u8) -> Result<()> {
    let (named, count) = (tenant.version(), usize::from(size));
    let reference = import_lying(tenant).await?;
    let (members, claims) = (tenant.members().await?, tenant.claim_uids().await?);
    let (before, identities) = (tenant.pod_uids().await?, identities(tenant, count).await?);
    bound(
        tenant,
        "ResourceQuota",
        &json!({"hard": {"pods": size.to_string()}}),
    )
    .await?;
    let mut spec = tenant.spec(size);
    spec["repository"] = json!(LYING);
    tenant.note("asks for an image that holds another version than its tag says");
    tenant.apply(&spec).await?;
    let status = tenant.says("the image is refused", is_refused).await?;
    let updated = format!("1/{size}");
    ensure!(status.updated_members.as_deref() == Some(&updated), "{status:?}");
    let names_image = |text: &str| text.contains(&reference) && text.contains("3.7.3");
    ensure!(told(&status).any(names_image), "{status:?}");
    let runs = |version: &str| {
        status
            .member_status
            .iter()
            .flatten()
            .any(|member| member.version.as_deref() == Some(version))
    };
    ensure!(!runs("3.7.3"), "{status:?}");
    let stopped = tenant.pod_uids().await?;
    ensure!(
        kept(&before, &stopped) == count - 1,
        "{before:?} became {stopped:?}"
    );
    ensure!(
        self::identities(tenant, count).await? == identities,
        "a start was counted on a volume"
    );

    tenant.note("corrects the image");
    tenant.apply(&with_flag(tenant.spec(size), 256)).await?;
    await_rolled_out(tenant).await?;
    let status = tenant.says_converged(size).await?;
    ensure!(status.current_version == named.number(), "{status:?}");
    ensure!(pods_with_flag(tenant, count, 256).await?.len() == count);
    ensure!(tenant.members().await? == members, "members were replaced");
    ensure!(tenant.claim_uids().await? == claims, "volumes were replaced");
    Ok(())
}

/// A new cluster whose image holds another version does not start, says why, and starts once the image is corrected.
pub async fn lying_image_of_new_cluster(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let reference = import_lying(&tenant).await?;
    let mut spec = tenant.spec(1);
    spec["repository"] = json!(LYING);
    tenant.apply(&spec).await?;
    let names_image = |text: &str| text.contains(&reference) && text.contains("3.7.3");
    tenant
        .says("the image is named", |status| {
            has_blocker(status, "ImageVersionDiffers") && told(status).any(names_image)
        })
        .await?;
    tenant.note("corrects the image");
    tenant.apply(&tenant.spec(1)).await?;
    let status = tenant.says_converged(1).await?;
    ensure!(status.current_version == tenant.version().number(), "{status:?}");
    tenant.put("written").await
}

/// Gives every node an image of 3.7.3 under a tag of the version of the cluster.
async fn import_lying(tenant: &Tenant) -> Result<String> {
    let reference = format!("{LYING}:v{}", tenant.version().number());
    let image = images::etcd_named(&reference, EtcdVersion::V3_7_3).await?;
    tenant.import(&image).await?;
    Ok(reference)
}

/// Whether the rollout is blocked by an image.
fn is_refused(status: &EtcdClusterStatus) -> bool {
    is_rollout(status, "Blocked") && has_blocker(status, "ImageVersionDiffers")
}

/// The identity files of all members: each start changes one.
async fn identities(tenant: &Tenant, count: usize) -> Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    for ordinal in 0..count {
        let disk = tenant.disk(&tenant.pod(ordinal)).await?;
        files.push(disk.read("operator/identity.json")?);
    }
    Ok(files)
}

/// etcd of the only member ends at once because of a flag.
pub async fn only_member(stage: Arc<Stage>) -> Result<()> {
    flag(stage, 1).await
}

/// The same for one of two members, of whom a quorum needs both.
pub async fn member_of_two(stage: Arc<Stage>) -> Result<()> {
    flag(stage, 2).await
}

/// There is no quorum, and yet the corrected spec is rolled out.
async fn flag(stage: Arc<Stage>, size: u8) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, size).await?;
    tenant.put("before").await?;
    let (members, claims) = (tenant.members().await?, tenant.claim_uids().await?);
    let (before, count) = (tenant.pod_uids().await?, usize::from(size));
    let mut spec = tenant.spec(size);
    spec["etcd"] = json!({"extraArgs": ["--no-such-flag=1"]});
    tenant.apply(&spec).await?;
    tenant
        .says("the rollout has stalled, and the flag is named", |status| {
            is_rollout(status, "Stalled") && told(status).any(|text| text.contains("no-such-flag"))
        })
        .await?;
    let stopped = tenant.pod_uids().await?;
    ensure!(
        kept(&before, &stopped) == count - 1,
        "{before:?} became {stopped:?}"
    );
    tenant.note("corrects the flag");
    tenant.apply(&with_flag(tenant.spec(size), 256)).await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(size).await?;
    ensure!(pods_with_flag(&tenant, count, 256).await?.len() == count);
    tenant.holds("before").await?;
    ensure!(tenant.members().await? == members, "members were replaced");
    ensure!(tenant.claim_uids().await? == claims, "volumes were replaced");
    until("the members take writes", SOON, || async {
        Ok(tenant.put("after").await.ok())
    })
    .await
}

/// No node has the label that the pods must select: one member waits for a node, until the selector is corrected.
pub async fn node_selector(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (members, claims) = (tenant.members().await?, tenant.claim_uids().await?);
    let before = tenant.pod_uids().await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let selecting = |selector: Value| {
        let mut spec = tenant.spec(3);
        spec["pod"]["nodeSelector"] = selector;
        spec
    };
    tenant.note("selects nodes that do not exist");
    tenant
        .apply(&selecting(json!({"example.com/disk": "fast"})))
        .await?;
    tenant
        .says("a pod finds no node", |status| {
            has_blocker(status, "PodUnschedulable")
                && is(status, "Available", "True", "QuorumServes")
                && status.updated_members.as_deref() == Some("1/3")
        })
        .await?;
    load.flows().await?;
    let stopped = tenant.pod_uids().await?;
    ensure!(kept(&before, &stopped) == 2, "{before:?} became {stopped:?}");
    tenant.note("selects nodes that exist");
    tenant
        .apply(&selecting(json!({"kubernetes.io/os": "linux"})))
        .await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    for pod in (0..3).map(|ordinal| tenant.pod(ordinal)) {
        let selector = tenant.field(&format!("pod/{pod}"), ".spec.nodeSelector").await?;
        ensure!(
            serde_json::from_str::<Value>(&selector)? == json!({"kubernetes.io/os": "linux"}),
            "{pod} selects {selector}"
        );
    }
    ensure!(tenant.members().await? == members, "members were replaced");
    ensure!(tenant.claim_uids().await? == claims, "volumes were replaced");
    survived_without_gap(&tenant, load).await
}
