//! The worst day: a Kubernetes is gone with all that was in it, and somebody has a bucket, a page, and a new Kubernetes.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::book::{Block, Desk, Page};
use etcd_operator_e2e::cluster::{Cluster, Options};
use etcd_operator_e2e::emulator::{BUCKET, Emulator};
use etcd_operator_e2e::faults::{CREDENTIALS, REGION, profile};
use etcd_operator_e2e::install::NAMESPACE;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use crate::install::{prepared, sampled};

/// The page that is followed.
const PAGE: &str = "docs/disaster.md";
/// How it calls the store and the image.
const STORE: &str = "https://minio.example.com:9000";
const IMAGE: &str = "registry.example.com/etcd-operator:0.2.0";
/// Thirty-two bytes.
const KEY: &str = "abcdef0123456789abcdef0123456789";
/// What nobody may lose.
const CUSTOMERS: [&str; 3] = ["ada", "grace", "lynn"];

/// What is needed to reach the store and to open what is in it: the files of a directory.
fn lay(desk: &Desk<'_>, store: &Emulator) -> Result<()> {
    let (key, secret) = CREDENTIALS;
    for (name, text) in profile(key, secret, REGION) {
        desk.lay(&format!("s3-secret/{name}"), &text)?;
    }
    desk.lay("s3-secret/ca.crt", &store.authority)?;
    desk.lay("keys/2026-11", KEY)
}

/// Another Kubernetes, in which a cluster is written to and backed up, and which then ends with everything but the bucket.
/// Returns the backup's key.
async fn a_kubernetes_that_is_lost(bucket: &BedDir) -> Result<String> {
    let cluster = Arc::new(Cluster::start(&Options::default()).await?);
    let stage = Stage::on(Arc::clone(&cluster), "lost").await?;
    let kubernetes = sampled(&stage).await?;
    let etcd = async |words: &[&str]| {
        let namespace = ["--namespace", NAMESPACE];
        kubernetes.kubectl(&[&namespace[..], words].concat()).await
    };
    for name in CUSTOMERS {
        let key = format!("customers/{name}");
        etcd(&[
            "exec",
            "orders-0",
            "--container",
            "etcd",
            "--",
            "etcdctl",
            "put",
            &key,
            "paid",
        ])
        .await?;
    }

    let store = Emulator::keeping(&cluster, bucket.path()).await?;
    let desk = Desk::new(&cluster, "desk-of-before", NAMESPACE).await?;
    lay(&desk, &store)?;
    for (name, folder) in [("minio", "s3-secret"), ("backup-keys", "keys")] {
        let files = format!("--from-file={}", desk.path(folder).display());
        etcd(&["create", "secret", "generic", name, &files]).await?;
    }
    let backup = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdBackup",
        "metadata": {"name": "offsite", "namespace": NAMESPACE},
        "spec": {
            "etcdCluster": {"name": "orders"},
            "backupPolicy": {"backupIntervalInSecond": 10, "maxBackups": 3},
            "storageType": "S3",
            "s3": {
                "path": format!("{BUCKET}/nightly/orders"), "endpoint": store.endpoint, "forcePathStyle": true,
                "awsSecret": "minio", "caSecret": "minio",
            },
            "encryption": {"secretRef": {"name": "backup-keys"}},
        },
    });
    cluster.apply(&backup).await?;
    etcd(&[
        "wait",
        "--for=jsonpath={.status.stored}=3",
        "--timeout=170s",
        "etcdbackup/offsite",
    ])
    .await?;
    // Nothing more is stored from here on, so that the page names the newest.
    let rest = r#"{"spec": {"suspend": true}}"#;
    etcd(&["patch", "etcdbackup", "offsite", "--type=merge", "--patch", rest]).await?;
    etcd(&[
        "wait",
        "--for=jsonpath={.status.phase}=Suspended",
        "--timeout=170s",
        "etcdbackup/offsite",
    ])
    .await?;
    let object = "--output=jsonpath={.status.lastSuccess.object}";
    let object = etcd(&["get", "etcdbackup", "offsite", object]).await?;
    Ok(object.trim().to_owned())
}

/// The name of the backup that the page shows.
fn named(page: &Page) -> Result<String> {
    let found = page
        .shell()
        .flat_map(|block| block.text.split_whitespace())
        .find_map(|word| Some(&word[word.find("nightly/orders_v")?..]));
    Ok(found.context("the page names no backup")?.to_owned())
}

/// From the bucket alone, by the page alone.
pub async fn on_a_new_kubernetes(stage: Arc<Stage>) -> Result<()> {
    let bucket = BedDir::create()?;
    let object = a_kubernetes_that_is_lost(&bucket).await?;
    stage.note(&format!("the first Kubernetes is gone; {object} is left of it"));

    prepared(&stage).await?;
    let store = Emulator::keeping(stage.cluster(), bucket.path()).await?;
    let page = Page::read(PAGE)?;
    let shown = named(&page)?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE)
        .await?
        .with(STORE, &store.endpoint)
        .with(&shown, &object);
    desk.image(IMAGE).await?;
    lay(&desk, &store)?;
    let said = desk.types(&page.shell().collect::<Vec<&Block>>()).await?;
    for name in CUSTOMERS {
        ensure!(
            said.contains(&format!("customers/{name}\npaid")),
            "{name} is lost:\n{said}"
        );
    }
    ensure!(said.contains("RestoreSucceeded"), "{said}");
    if stage.prints() {
        page.shows(&desk.retold(&said), &[(&shown, &object)])?;
    }
    Ok(())
}
