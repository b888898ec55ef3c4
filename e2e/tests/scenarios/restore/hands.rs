//! Snapshots that other hands have put into a bucket, where nothing beside them tells of them: plain etcdctl's, and those of
//! the older operator. Each is restored where it never was: in another namespace, with a Secret of that one.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::faults::{CREDENTIALS, REGION, profile};
use etcd_operator_e2e::large::{self, Solo};
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::in_place::{shows_the_backup, write, write_at};
use super::seen::Restore;
use crate::backup::vault::{Bucket, secret};
use crate::cluster::tenant::Tenant;

/// The Secret that opens the store, in the other namespace.
const SECRET: &str = "ours";

/// `etcdctl snapshot save` from an etcd that no operator knows, under a key of somebody's choice.
pub async fn of_etcdctl(stage: Arc<Stage>) -> Result<()> {
    const OBJECT: &str = "by hand/of-monday.snapshot";
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::on(Arc::clone(&stage), large::VERSION).await?;
    let (data, entry, address) = large::beside(&stage);
    let etcd = Solo::start(&data, Some(entry), address, &[]).await?;
    write_at(&tenant, &etcd.endpoint, "before").await?;
    let revision = stored(&bucket, &tenant, &etcd.endpoint, |_| OBJECT.to_owned())
        .await?
        .1;
    drop(etcd);
    let elsewhere = Elsewhere::beside(&stage).await?;
    let spec = tenant.spec(1);
    elsewhere.serves(&tenant, &spec, (OBJECT, revision)).await
}

/// As the older operator stored them, of an etcd of its days: the stream as it came, with revision and time in the name.
pub async fn of_the_older_operator(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_2_25)
        .await?
        .named("example-etcd-cluster");
    let spec = |size: u8| json!({"size": size, "version": "3.2.25"});
    tenant.apply(&spec(1)).await?;
    tenant.converged(1).await?;
    write(&tenant, "before").await?;
    let endpoint = tenant.endpoint().await?;
    let name = |revision| format!("etcd.backup_v{revision}_2019-12-15-15:57:59");
    let (object, revision) = stored(&bucket, &tenant, &endpoint, name).await?;
    write(&tenant, "after").await?;
    let elsewhere = Elsewhere::beside(&stage).await?;
    elsewhere.serves(&tenant, &spec(3), (&object, revision)).await?;
    // It has the same name where it came from.
    tenant.converged(1).await?;
    tenant.holds("after-0").await
}

/// Has etcdctl save what an etcd holds, and puts that into the bucket. Returns its key and its revision.
async fn stored(
    bucket: &Bucket<'_>,
    tenant: &Tenant,
    endpoint: &str,
    name: impl Fn(i64) -> String,
) -> Result<(String, i64)> {
    let etcdctl = async |words: &[&str]| {
        let output = tenant.etcdctl_at(endpoint, words).await?;
        printed(output, &format!("etcdctl {words:?}"))
    };
    let said: Value = serde_json::from_str(&etcdctl(&["get", "before-0", "--write-out=json"]).await?)?;
    let revision = said["header"]["revision"].as_i64().context("no revision")?;
    let stage = tenant.stage();
    let folder = stage.cluster().control_plane().directory();
    let file = folder.join(format!("saved-{}.db", stage.namespace()));
    etcdctl(&["snapshot", "save", &file.display().to_string()]).await?;
    let key = name(revision);
    bucket.put(&key, &file).await?;
    stage.note(&format!("{key} holds revision {revision}"));
    Ok((key, revision))
}

/// Another namespace than that of the store, with a Secret of its own that opens it.
struct Elsewhere {
    stage: Arc<Stage>,
    endpoint: String,
}

impl Elsewhere {
    async fn beside(stage: &Stage) -> Result<Self> {
        let cluster = stage.shared_cluster().context("no bed")?;
        let own = Arc::new(Stage::on(cluster, "elsewhere").await?);
        let (key, word) = CREDENTIALS;
        let entries: BTreeMap<_, _> = profile(key, word, REGION).into();
        secret(&own, SECRET, &json!(entries)).await?;
        Ok(Self {
            stage: own,
            endpoint: format!("http://store.{}", stage.namespace()),
        })
    }

    /// The spec of an `EtcdRestore` of this object, as the older operator had it.
    fn of(&self, cluster: &str, object: &str) -> Value {
        let mut s3 = Bucket::s3(object);
        s3["awsSecret"] = json!(SECRET);
        s3["endpoint"] = json!(self.endpoint);
        json!({"etcdCluster": {"name": cluster}, "backupStorageType": "S3", "s3": s3})
    }

    /// Takes the place of what a cluster of that name holds here, by an `EtcdRestore` that is named like it; and becomes the
    /// data of another one that is made for it.
    async fn serves(&self, source: &Tenant, spec: &Value, (object, revision): (&str, i64)) -> Result<()> {
        let size = u8::try_from(spec["size"].as_u64().unwrap_or_default())?;
        let there = source.at(Arc::clone(&self.stage));
        let copy = there.named("copy");
        there.apply(spec).await?;
        let mut of_copy = self.of("copy", object);
        of_copy["clusterTemplate"] = json!({"spec": {
            "size": 1, "version": source.version().number(), "storage": {"size": "512Mi"},
        }});
        let made = Restore::named(&self.stage, "copy-of-it");
        made.apply(&of_copy).await?;
        there.converged(size).await?;
        there.put("of-here").await?;
        let in_place = Restore::named(&self.stage, there.name());
        in_place.apply(&self.of(there.name(), object)).await?;
        for (restore, tenant, size) in [(in_place, &there, size), (made, &copy, 1)] {
            let status = restore.succeeds().await?;
            ensure!(
                status.object.as_deref() == Some(object) && status.revision == Some(revision),
                "{status:?}"
            );
            tenant.converged(size).await?;
            shows_the_backup(tenant).await?;
            tenant.put("later").await?;
            tenant.holds("later").await?;
            // Nobody cleans up in there.
            tenant.delete().await?;
        }
        Ok(())
    }
}
