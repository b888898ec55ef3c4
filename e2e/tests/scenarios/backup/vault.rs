//! An EtcdBackup on a bed and the store it goes into, as their user sees them: kubectl, watches, and the operator's own
//! commands by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::names::{ANNOTATION_BACKUP_NOW, LABEL_BACKUP};
use etcd_operator_api::{EtcdBackup, EtcdBackupStatus};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::{CREDENTIALS, REGION, Store, profile, signing};
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::{images, observe, operator};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cluster::tenant::Tenant;

/// Long enough for what takes seconds, on a machine that also compiles.
pub const SOON: Duration = Duration::from_mins(4);
/// The bucket that stores have.
pub const BUCKET: &str = "bucket";
/// The Secret with the credentials of the store.
pub const SECRET: &str = "aws";

/// An S3 store in a pod, with a bucket and a Secret that opens it.
pub struct Bucket<'a> {
    stage: &'a Stage,
    /// What it does to its clients.
    pub store: Store<'a>,
}

impl<'a> Bucket<'a> {
    /// A store called `store` with its objects on a claim, or in its pod without one.
    pub async fn start(stage: &'a Stage, claim: Option<&str>) -> Result<Self> {
        let archive = images::s3().await?;
        for node in stage.cluster().nodes() {
            node.import(&archive).await?;
        }
        let store = Store::start(stage, "store", claim).await?;
        let bucket = Self { stage, store };
        bucket.make(BUCKET).await?;
        let (key, secret) = CREDENTIALS;
        bucket.secret(SECRET, key, secret).await?;
        Ok(bucket)
    }

    /// Waits until a fault has met its clients more often than this.
    pub async fn bitten(&self, sort: &str, more_than: u64) -> Result<()> {
        until(&format!("bytes are {sort}"), SOON, || async {
            Ok((self.store.bites(sort).await? > more_than).then_some(()))
        })
        .await
    }

    async fn make(&self, name: &str) -> Result<()> {
        let (key, secret) = CREDENTIALS;
        let url = format!("http://{key}:{secret}@127.0.0.1/{name}");
        self.stage
            .probe_until("store", &["s3", "PUT", &url, "0"], SOON)
            .await?;
        Ok(())
    }

    /// A Secret as the older operator has it.
    pub async fn secret(&self, name: &str, key: &str, secret: &str) -> Result<()> {
        let entries: BTreeMap<_, _> = profile(key, secret, REGION).into();
        let entries = json!(entries);
        self::secret(self.stage, name, &entries).await
    }

    /// The block of a spec for this place in it.
    pub fn s3(path: &str) -> Value {
        json!({
            "path": format!("{BUCKET}/{path}"), "awsSecret": SECRET,
            "endpoint": "http://store", "forcePathStyle": true,
        })
    }

    /// A command of the operator's binary by hand from a node, with what it needs to reach this store; what it prints.
    pub async fn by_hand(&self, words: &[&str]) -> Result<String> {
        let folder = self.stage.cluster().control_plane().directory().join("aws");
        std::fs::create_dir_all(&folder)?;
        let (key, secret) = CREDENTIALS;
        for (name, text) in profile(key, secret, REGION) {
            std::fs::write(folder.join(name), text)?;
        }
        let address = self.stage.address("store").await?;
        let node = &self.stage.cluster().nodes()[0];
        let mut command: Command = node.entry().command(operator::binary().await?)?.into();
        command
            .args(words)
            .arg("--store-secret")
            .arg(&folder)
            .args(["--path-style", "--store-endpoint", &format!("http://{address}")])
            .kill_on_drop(true);
        printed(command.output().await?, &format!("etcd-operator {words:?}"))
    }

    /// Puts a file there as anybody's program would: nothing beside it tells of it.
    pub async fn put(&self, key: &str, file: &Path) -> Result<()> {
        let address = self.stage.address("store").await?;
        // As a key stands in what S3 wants signed.
        let encoded = key.replace(':', "%3A").replace(' ', "%20");
        let url = format!("http://{address}/{BUCKET}/{encoded}");
        let node = &self.stage.cluster().nodes()[0];
        let mut curl: Command = node.entry().command("curl")?.into();
        curl.args(["--silent", "--show-error", "--fail"])
            .args(signing())
            .arg("--upload-file")
            .arg(file)
            .arg(url)
            .kill_on_drop(true);
        printed(curl.output().await?, "curl --upload-file")?;
        Ok(())
    }

    /// The names of the backups that are stored under a path; anything else that lies there is an error.
    pub async fn list(&self, path: &str) -> Result<Vec<String>> {
        let said = self
            .by_hand(&["list", "--json", &format!("s3://{BUCKET}/{path}")])
            .await?;
        let found: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        let nobodys = found["withoutManifest"].as_array().context("no such list")?;
        ensure!(nobodys.is_empty(), "leftovers: {nobodys:?}");
        let backups = found["backups"].as_array().context("no such list")?;
        Ok(backups
            .iter()
            .filter_map(|one| one["object"].as_str().map(str::to_owned))
            .collect())
    }

    /// Fetches an object as a plain snapshot; etcd's own tool must find in it what was recorded.
    pub async fn holds(&self, record: &BackupRecord, more: &[&str]) -> Result<PathBuf> {
        let file = self
            .stage
            .cluster()
            .control_plane()
            .directory()
            .join(format!("fetched-{}.db", self.stage.namespace()));
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let url = format!("s3://{BUCKET}/{}", record.object);
        let target = file.display().to_string();
        self.by_hand(&[&["fetch", &url, &target], more].concat()).await?;
        let etcdutl = components::find(Component::Etcdutl(EtcdVersion::V3_6_16)).await?;
        let mut status = Command::new(etcdutl);
        status.args(["snapshot", "status", "-w", "json"]).arg(&file);
        let said: Value = serde_json::from_str(&printed(status.output().await?, "etcdutl snapshot status")?)?;
        ensure!(
            said["revision"].as_i64() == record.revision,
            "{said} is not {record:?}"
        );
        Ok(file)
    }
}

/// One EtcdBackup in the namespace of a stage.
pub struct Backup {
    stage: Arc<Stage>,
    name: String,
}

impl Backup {
    /// The one of this name.
    pub fn named(stage: &Arc<Stage>, name: &str) -> Self {
        Self {
            stage: Arc::clone(stage),
            name: name.to_owned(),
        }
    }

    /// The object with this spec.
    pub fn manifest(&self, spec: &Value) -> Value {
        json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdBackup",
            "metadata": {"name": self.name, "namespace": self.stage.namespace()},
            "spec": spec,
        })
    }

    /// Applies it with this spec.
    pub async fn apply(&self, spec: &Value) -> Result<()> {
        self.stage.note(&format!("applies the EtcdBackup {}", self.name));
        self.stage.cluster().apply(&self.manifest(spec)).await
    }

    /// Asks for one more, now; each word asks once.
    pub async fn ask(&self, tenant: &Tenant, word: &str) -> Result<()> {
        self.stage
            .note(&format!("asks the EtcdBackup {} for one more", self.name));
        let now = format!("{ANNOTATION_BACKUP_NOW}={word}");
        tenant
            .kubectl(&["annotate", "--overwrite", "etcdbackup", &self.name, &now])
            .await?;
        Ok(())
    }

    async fn backups(&self) -> Result<Api<EtcdBackup>> {
        let client = self.stage.cluster().client().await?;
        Ok(Api::namespaced(client, self.stage.namespace()))
    }

    /// Watches it until its status is as wanted.
    pub async fn says(
        &self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&EtcdBackupStatus) -> bool,
    ) -> Result<EtcdBackupStatus> {
        let is_so = |found: Option<&EtcdBackup>| {
            found.is_some_and(|backup| {
                let generation = backup.metadata.generation;
                let status = backup.status.as_ref();
                status.is_some_and(|status| status.observed_generation == generation && wanted(status))
            })
        };
        let what = format!("{} {what}", self.name);
        let found = observe::object(self.backups().await?, &self.name, &what, within, is_so).await?;
        found
            .and_then(|backup| backup.status)
            .context("an EtcdBackup without a status")
    }

    /// Watches until a backup is made that was not before, and nothing runs; returns its record too.
    pub async fn made(&self, before: usize) -> Result<(EtcdBackupStatus, BackupRecord)> {
        let status = self
            .says("has made a backup", SOON, |status| {
                status.succeeded && status.active.is_none() && made(status) > before
            })
            .await?;
        let record = status.last_success.clone().context("no record of it")?;
        Ok((status, record))
    }

    /// Watches until a newer backup than this one is made.
    pub async fn newer(&self, than: &BackupRecord) -> Result<BackupRecord> {
        let status = self
            .says("has made another backup", SOON, |status| {
                let last = status.last_success.as_ref();
                last.is_some_and(|record| record.object != than.object)
            })
            .await?;
        status.last_success.context("no record of it")
    }

    /// Watches until a run has failed with these words in its reason; returns the whole of it.
    pub async fn failed(&self, words: &[&str]) -> Result<String> {
        let is_told = |status: &EtcdBackupStatus| {
            let reason = status.reason.as_deref().unwrap_or_default();
            !status.succeeded && words.iter().all(|word| reason.contains(word))
        };
        let status = self.says(&format!("tells {words:?}"), SOON, is_told).await?;
        Ok(status.reason.unwrap_or_default())
    }

    /// Its Jobs as they are.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        let jobs = Api::<Job>::namespaced(self.stage.cluster().client().await?, self.stage.namespace());
        let chosen = ListParams::default().labels(&format!("{LABEL_BACKUP}={}", self.name));
        Ok(jobs.list(&chosen).await?.items)
    }

    /// Watches until it is gone.
    pub async fn gone(&self, within: Duration) -> Result<()> {
        let what = format!("{} is gone", self.name);
        let is_gone = |found: Option<&EtcdBackup>| found.is_none();
        observe::object(self.backups().await?, &self.name, &what, within, is_gone).await?;
        Ok(())
    }

    /// Deletes it and waits until it is gone.
    pub async fn delete(&self, tenant: &Tenant) -> Result<()> {
        self.stage.note(&format!("deletes the EtcdBackup {}", self.name));
        tenant
            .kubectl(&[
                "delete",
                "etcdbackup",
                &self.name,
                "--wait=true",
                "--timeout=120s",
            ])
            .await?;
        Ok(())
    }
}

/// A Secret with these entries.
pub async fn secret(stage: &Stage, name: &str, entries: &Value) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": stage.namespace()},
        "stringData": entries,
    });
    stage.cluster().apply(&object).await
}

/// How many good backups the history holds.
pub fn made(status: &EtcdBackupStatus) -> usize {
    status.history.as_ref().map_or(0, Vec::len)
}

/// The message of a condition that has this status and reason.
pub fn condition<'a>(
    status: &'a EtcdBackupStatus,
    type_: &str,
    truth: &str,
    reason: &str,
) -> Option<&'a str> {
    let all = status.conditions.as_deref().unwrap_or_default();
    all.iter()
        .find(|one| one.type_ == type_ && one.status == truth && one.reason.as_deref() == Some(reason))
        .map(|one| one.message.as_deref().unwrap_or_default())
}
