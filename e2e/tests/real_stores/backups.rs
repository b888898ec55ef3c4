//! A whole backup of a real etcd into a real store, over TLS with a private authority, and back.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_api::backup::{Compression, Verification};
use etcd_operator_api::contract::{
    BackupTask, JobOrder, JobOutcome, Limits, Naming, Source, StoreOrder, Task,
};
use etcd_operator_api::retention::Keep;
use etcd_operator_api::store::StorageType;
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_etcd::client::Client;
use etcd_operator_etcd::endpoint::Endpoint;
use etcd_operator_etcd::tool::Tools;
use etcd_operator_job::backup::Run;
use etcd_operator_job::budget::{BUFFERS, Budget};
use etcd_operator_job::members::NetworkMembers;
use etcd_operator_job::object::Object;
use etcd_operator_job::{catalog, clock, fetch, prune, settings};
use etcd_operator_store::Policy;
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::servers::{BUCKET, Server, Speech};

/// For a machine that also compiles.
const LIMIT: Duration = Duration::from_mins(1);

/// A process that ends when it is dropped.
struct Etcd(Child);

impl Drop for Etcd {
    fn drop(&mut self) {
        // It has ended already if this fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// An etcd with a key, and where it is.
async fn etcd(bed: &BedDir) -> Result<(Etcd, String)> {
    let url = format!("http://127.0.0.1:{}", port()?);
    let peer = format!("http://127.0.0.1:{}", port()?);
    let program = components::find(Component::Etcd(EtcdVersion::V3_6_16)).await?;
    let log = std::fs::File::create(bed.path().join("etcd.log"))?;
    let child = Command::new(program)
        .arg("--data-dir")
        .arg(bed.path().join("etcd"))
        .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--name", "m", "--initial-cluster", &format!("m={peer}")])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let etcd = Etcd(child);
    let endpoint = Endpoint::plain(url.parse()?);
    until("etcd serves", LIMIT, || async {
        let Ok(client) = Client::connect(&endpoint).await else {
            return Ok(None);
        };
        Ok(client.position().await.is_ok().then_some(()))
    })
    .await?;
    let etcdctl = components::find(Component::Etcdctl(EtcdVersion::V3_6_16)).await?;
    let endpoints = format!("--endpoints={url}");
    let put = Command::new(etcdctl)
        .args([&endpoints, "put", "key", "value"])
        .output()?;
    ensure!(put.status.success(), "{put:?}");
    Ok((etcd, url))
}

/// The Secret of a store as a pod has it.
fn mounted(bed: &BedDir, name: &str, entries: &[(&str, &str)]) -> Result<String> {
    let folder = bed.path().join(name);
    std::fs::create_dir_all(&folder)?;
    for (key, value) in entries {
        std::fs::write(folder.join(key), value)?;
    }
    Ok(folder.display().to_string())
}

fn order(bed: &BedDir, server: &Server, endpoint: &str, run: &str) -> Result<JobOrder> {
    let credentials = "[default]\naws_access_key_id = AKIATEST\naws_secret_access_key = hunter2hunter2\n";
    let config = "[default]\nregion = eu-test-1\n";
    let ca = server.ca.as_ref().context("it speaks TLS")?;
    let ca = ca.required("ca", "ca.crt")?;
    let task = BackupTask {
        source: Source {
            endpoints: vec![endpoint.to_owned()],
            ..Source::default()
        },
        cluster_id: None,
        incarnation: None,
        naming: Naming::Periodic,
        compression: Compression::Zstd,
        keys: None,
        verification: Verification::Full,
        deadline: clock::now().checked_add(SignedDuration::from_mins(5))?,
        limits: Limits::default(),
        allow_others: false,
    };
    Ok(JobOrder {
        version: 1,
        run: run.to_owned(),
        owner_uid: "owner".to_owned(),
        store: StoreOrder {
            kind: StorageType::S3,
            bucket: BUCKET.to_owned(),
            path: "etcd/orders".to_owned(),
            endpoint: Some(server.endpoint.clone()),
            path_style: true,
            secret: Some(mounted(
                bed,
                "aws",
                &[("credentials", credentials), ("config", config)],
            )?),
            ca: Some(mounted(bed, "ca", &[("ca.crt", ca)])?),
            ..StoreOrder::default()
        },
        task: Task::Backup(Box::new(task)),
    })
}

#[tokio::test]
async fn a_backup_goes_into_s3_and_comes_back_and_is_deleted() -> Result<()> {
    // The client of S3 and that of etcd share one provider in the binary, too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bed = BedDir::create()?;
    let server = crate::s3::server(Speech::Tls).await?;
    let (_etcd, endpoint) = etcd(&bed).await?;
    let mut made = Vec::new();
    for run in ["1", "2"] {
        let order = order(&bed, &server, &endpoint, run)?;
        let Task::Backup(task) = &order.task else {
            bail!("another task");
        };
        let members = NetworkMembers::new(settings::read_etcd_access(&task.source)?);
        let run = Run {
            order: &order,
            task,
            store: settings::connect_store(&order.store, Policy::default()).await?,
            members: &members,
            scratch: bed.path().to_owned(),
            tools: Tools::of_image(),
            budget: Budget::new(BUFFERS),
            stop: CancellationToken::new(),
        };
        made.push(run.backup().await?);
    }
    let order = order(&bed, &server, &endpoint, "prune")?;
    let store = settings::connect_store(&order.store, Policy::default()).await?;
    let manifest = catalog::read_manifest(&store, &made[1].object).await?;
    ensure!(manifest.as_ref() == Some(&made[1]), "{manifest:?}");
    let keys = settings::read_keys(None)?;
    let object = Object::open(&store, &made[1].object, manifest.as_ref(), keys).await?;
    let file = bed.path().join("fetched.db");
    let checked = fetch::fetch(&object, manifest.as_ref(), &file).await?.checked;
    ensure!(checked.length == made[1].snapshot_size, "{checked:?}");
    let etcdutl = components::find(Component::Etcdutl(EtcdVersion::V3_6_16)).await?;
    let status = Command::new(etcdutl)
        .args(["snapshot", "status", "-w", "json"])
        .arg(&file)
        .output()?;
    let said: serde_json::Value = serde_json::from_slice(&status.stdout)?;
    ensure!(said["revision"] == made[1].revision, "{said}");
    let keep = Keep {
        newest: Some(1),
        ..Keep::default()
    };
    let outcome = prune::prune(&store, &order, &keep).await?;
    ensure!(
        matches!(outcome, JobOutcome::Pruned { deleted: 1, .. }),
        "{outcome:?}"
    );
    let left: Vec<String> = store
        .list("etcd/")
        .await?
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let object = &made[1].object;
    ensure!(
        left == [object.clone(), format!("{object}.manifest.json")],
        "{left:?}"
    );
    Ok(())
}
