//! An object store in a pod, behind a proxy that fails in the ways object stores do. That it is full is a fault of its
//! disk.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::images;
use crate::scenario::Stage;
use crate::unprivileged::unprivileged;

/// Where the store listens, which only its proxy knows.
const BEHIND: u16 = 7070;
/// Where the proxy is told what to do.
const CONTROL: u16 = 8081;
/// The key and the secret of the store.
pub const CREDENTIALS: (&str, &str) = ("bed", "bed-secret");

/// The region it says it is in.
pub const REGION: &str = "us-east-1";

/// The two files in which Amazon's command line keeps a key and a region, by their names.
pub fn profile(key: &str, secret: &str, region: &str) -> [(&'static str, String); 2] {
    [
        (
            "credentials",
            format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"),
        ),
        ("config", format!("[default]\nregion = {region}\n")),
    ]
}

/// What lets curl sign what it asks of such a store. What it sends is no part of that, and S3 wants to be told.
pub fn signing() -> [String; 6] {
    let (key, secret) = CREDENTIALS;
    [
        "--aws-sigv4".to_owned(),
        format!("aws:amz:{REGION}:s3"),
        "--user".to_owned(),
        format!("{key}:{secret}"),
        "--header".to_owned(),
        "x-amz-content-sha256: UNSIGNED-PAYLOAD".to_owned(),
    ]
}

/// What a store does to its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// It answers every request with this status.
    Status(u16),
    /// It closes every connection without a word.
    Down,
    /// So many bytes of a body pass in a second.
    Slow(u64),
    /// A connection ends after so many bytes of a body, either way.
    Break(u64),
    /// This byte of every body is changed on its way, counted from 1.
    Flip(u64),
    /// The same to what it answers alone, as if that had changed where it is kept.
    Rot(u64),
}

/// A running store: its service and its pod have one name, and it listens on port 80.
pub struct Store<'a> {
    stage: &'a Stage,
    name: String,
}

impl<'a> Store<'a> {
    /// Starts a store with its objects on a claim, or in memory of the pod without one. `images::s3()` must be known
    /// to the nodes.
    pub async fn start(stage: &'a Stage, name: &str, claim: Option<&str>) -> Result<Self> {
        let volume = match claim {
            Some(claim) => json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim } }),
            None => json!({ "name": "data", "emptyDir": {} }),
        };
        let behind = format!("http://127.0.0.1:{BEHIND}");
        let control = format!(":{CONTROL}");
        let (key, secret) = CREDENTIALS;
        let spec = json!({
            "terminationGracePeriodSeconds": 1,
            "volumes": [volume],
            "containers": [{
                "name": "proxy", "image": images::TOOLS, "imagePullPolicy": "Never",
                "command": ["probe", "meddle", ":80", behind, control],
            }, {
                "name": "store", "image": images::S3, "imagePullPolicy": "Never",
                "args": ["--port", format!(":{BEHIND}"), "posix", "/data"],
                "env": [{ "name": "ROOT_ACCESS_KEY", "value": key }, { "name": "ROOT_SECRET_KEY", "value": secret }],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                "readinessProbe": { "tcpSocket": { "port": BEHIND }, "periodSeconds": 1 },
            }],
        });
        stage
            .cluster()
            .apply(&json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": name, "namespace": stage.namespace(), "labels": { "app": name } },
                "spec": unprivileged(spec),
            }))
            .await?;
        stage.expose(name).await?;
        stage.ready(name).await?;
        Ok(Self {
            stage,
            name: name.to_owned(),
        })
    }

    /// Where it listens itself: a proxy takes time, which is not to be measured.
    pub async fn past_its_proxy(&self) -> Result<String> {
        let address = self.stage.address(&self.name).await?;
        Ok(format!("http://{address}:{BEHIND}"))
    }

    /// Makes it fail in this way from the next request on, and in no other.
    pub async fn fail(&self, fault: StoreFault) -> Result<()> {
        let query = match fault {
            StoreFault::Status(status) => format!("?status={status}"),
            StoreFault::Down => "?down=1".to_owned(),
            StoreFault::Slow(bytes) => format!("?slow={bytes}"),
            StoreFault::Break(bytes) => format!("?break={bytes}"),
            StoreFault::Flip(byte) => format!("?flip={byte}"),
            StoreFault::Rot(byte) => format!("?rot={byte}"),
        };
        self.stage
            .note(&format!("the store {} fails: {fault:?}", self.name));
        self.control(&format!("set{query}")).await.map(drop)
    }

    /// Makes it do what it is asked for.
    pub async fn heal(&self) -> Result<()> {
        self.control("set").await.map(drop)
    }

    /// How often faults of this sort have bitten: `answered`, `closed`, `slowed`, `broken` or `flipped`.
    pub async fn bites(&self, sort: &str) -> Result<u64> {
        let counts = self.control("").await?;
        counts[sort]
            .as_u64()
            .with_context(|| format!("no count of {sort} in {counts}"))
    }

    async fn control(&self, path: &str) -> Result<Value> {
        let url = format!("http://127.0.0.1:{CONTROL}/{path}");
        let answer = self.stage.probe(&self.name, &["get", &url]).await?;
        let counts = answer["body"].as_str().context("the proxy says nothing")?;
        serde_json::from_str(counts).with_context(|| format!("the proxy says {counts}"))
    }
}
