//! Objects that a real API server takes and that were made to do harm: as large and as deep as it lets them be. They
//! cost the manager a bounded amount of memory, each is told what is wrong with it, and nobody else waits for them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::{EtcdCluster, crd};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::{ControlPlane, Operator, Options};
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

/// An API server needs a while for objects such as these, on a machine that also compiles.
const SOON: Duration = Duration::from_mins(5);
/// Together more than is read of a page, and decoded more than a manager may have.
const LARGE: usize = 24;
/// Each of them in bytes: etcd takes 1.5 MiB.
const SIZE: usize = 1_200_000;
/// Depths around the deepest that is decoded, with metadata that is a little deeper than the spec.
const DEPTHS: std::ops::Range<usize> = 105..130;

async fn bed() -> Result<ControlPlane> {
    let bed = ControlPlane::start(Options::default()).await?;
    let documents: Result<Vec<_>, _> = crd::all().iter().map(serde_json::to_string).collect();
    bed.apply_crds(&documents?.join("\n---\n")).await?;
    Ok(bed)
}

fn cluster(namespace: &str, name: &str, patch: &str) -> String {
    format!(
        r#"{{"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
             "metadata": {{"name": "{name}", "namespace": "{namespace}"}},
             "spec": {{"size": 3, "pod": {{"patch": {patch}}}}}}}"#
    )
}

async fn create(client: &Client, namespace: &str, manifest: String) -> Result<()> {
    let url = format!("/apis/etcd.database.coreos.com/v1beta2/namespaces/{namespace}/etcdclusters");
    let request = http::Request::post(url)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(manifest.into_bytes())?;
    client.request_text(request).await?;
    Ok(())
}

/// What an Event says of each object, by name.
async fn told(bed: &ControlPlane, namespace: &str) -> Result<Vec<(String, String)>> {
    let events: Api<Event> = Api::namespaced(bed.client().await?, namespace);
    let all = events.list(&ListParams::default()).await?.items;
    let told = all
        .into_iter()
        .filter_map(|event| Some((event.regarding?.name?, event.note?)));
    Ok(told.collect())
}

#[tokio::test]
async fn objects_as_large_as_can_be_stored_cost_a_bounded_amount_of_memory() -> Result<()> {
    let bed = bed().await?;
    let namespace = bed.namespace("large").await?;
    // Of all texts this grows most when it is decoded: two bytes become a whole value.
    let patch = format!(r#"{{"a": [{}0]}}"#, "0,".repeat(SIZE / 2));
    let client = bed.client().await?;
    for n in 0..LARGE {
        let manifest = cluster(&namespace, &format!("large{n}"), &patch);
        create(&client, &namespace, manifest).await?;
    }
    let clusters: Api<EtcdCluster> = Api::namespaced(client, &namespace);
    let small = EtcdCluster::new("small", serde_json::from_value(json!({"size": 3}))?);
    clusters.create(&PostParams::default(), &small).await?;

    let mut operator = Operator::start(&bed, "large", &namespace, &[]).await?;
    operator.until_ready(|code, _| code == 200).await?;
    until("the small one has its verdict", SOON, || async {
        let found = clusters.get("small").await?;
        Ok(found
            .status
            .and_then(|s| s.observed_generation)
            .filter(|seen| *seen > 0))
    })
    .await
    .with_context(|| operator.logged())?;
    until("each large one is told so", SOON, || async {
        let told = told(&bed, &namespace).await?;
        let is_told = |n: usize| {
            told.iter()
                .any(|(name, note)| *name == format!("large{n}") && note.contains("spec: has 12"))
        };
        Ok((0..LARGE).all(is_told).then_some(()))
    })
    .await
    .with_context(|| operator.logged())?;
    let most = operator.most_resident()? >> 20;
    println!("{LARGE} objects of {SIZE} bytes: at most {most} MiB resident");
    ensure!(most < 128, "{most} MiB");
    Ok(())
}

#[tokio::test]
async fn whatever_its_depth_an_object_is_judged_or_told_that_it_is_too_deep() -> Result<()> {
    let bed = bed().await?;
    let namespace = bed.namespace("depths").await?;
    let mut operator = Operator::start(&bed, "depths", &namespace, &[]).await?;
    operator.until_ready(|code, _| code == 200).await?;
    let client = bed.client().await?;
    for depth in DEPTHS {
        let patch = format!("{}{{}}{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        let manifest = cluster(&namespace, &format!("d{depth}"), &patch);
        create(&client, &namespace, manifest).await?;
    }
    let (mut judged, mut too_deep) = (0, 0);
    for depth in DEPTHS {
        let name = format!("d{depth}");
        let note = until("an Event about each", SOON, || async {
            let told = told(&bed, &namespace).await?;
            Ok(told.into_iter().find(|(about, _)| *about == name))
        })
        .await
        .with_context(|| operator.logged())?
        .1;
        if note.contains("nested too deeply") {
            too_deep += 1;
        } else {
            // Then the answer to the write of its status could be decoded as well.
            judged += 1;
        }
    }
    println!("{judged} judged, {too_deep} too deep");
    ensure!(
        judged > 0 && too_deep > 0,
        "the depths do not lie around the deepest that is decoded"
    );
    let (_, metrics) = operator.page("/metrics").await?;
    let failed = metrics
        .lines()
        .find(|line| line.starts_with("etcd_operator_reconcile_errors_total") && !line.contains("conflict"));
    ensure!(failed.is_none_or(|line| line.ends_with(" 0")), "{failed:?}");
    Ok(())
}
