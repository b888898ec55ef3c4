//! What `helm --wait` makes of the three kinds. It reads them by kstatus, as Flux does: `Reconciling` and `Stalled`, else
//! `Ready`, each of the newest spec only. Beside it, the conditions that a script reads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::control::{leads, managers};
use super::tenant::{SOON, Tenant};
use crate::backup::vault::{self, Backup, Bucket};
use crate::rollout::have_resources;

/// `--timeout` for what can become ready: shorter than the bed waits for a command.
const PATIENCE: Duration = Duration::from_secs(150);
/// `--timeout` for what cannot become ready meanwhile.
const SHORT: Duration = Duration::from_secs(20);
/// Within this time helm ends where a person must act, long before [`PATIENCE`].
const AT_ONCE: Duration = Duration::from_mins(1);

const CHART: &str = "apiVersion: v2\nname: declared\nversion: 0.1.0\n";
const TEMPLATE: &str = "{{- range .Values.objects }}\n---\n{{ toYaml . }}\n{{- end }}\n";

const READY: [(&str, &str); 3] = [("Ready", "True"), ("Reconciling", "False"), ("Stalled", "False")];
const RECONCILING: [(&str, &str); 3] = [("Ready", "False"), ("Reconciling", "True"), ("Stalled", "False")];
const STALLED: [(&str, &str); 3] = [("Ready", "False"), ("Reconciling", "False"), ("Stalled", "True")];

/// A release of a chart that has nothing but the objects among its values.
struct Release<'a> {
    tenant: &'a Tenant,
    name: &'static str,
    chart: PathBuf,
}

/// How helm ended, and after how long.
struct Ended {
    is_success: bool,
    said: String,
    after: Duration,
}

impl<'a> Release<'a> {
    fn named(tenant: &'a Tenant, name: &'static str) -> Result<Self> {
        let directory = tenant.stage().cluster().control_plane().directory();
        let chart = directory.join(format!("release-{}-{name}", tenant.stage().namespace()));
        std::fs::create_dir_all(chart.join("templates"))?;
        std::fs::write(chart.join("Chart.yaml"), CHART)?;
        std::fs::write(chart.join("templates/objects.yaml"), TEMPLATE)?;
        Ok(Self { tenant, name, chart })
    }

    /// `helm install --wait` or `helm upgrade --wait` of these objects.
    async fn waits(&self, verb: &str, objects: &[Value], timeout: Duration) -> Result<Ended> {
        let values = self.chart.with_extension("json");
        std::fs::write(&values, json!({"objects": objects}).to_string())?;
        let (chart, values) = (self.chart.display().to_string(), values.display().to_string());
        let timeout = format!("{}s", timeout.as_secs());
        let words = [
            verb,
            self.name,
            &chart,
            "--values",
            &values,
            "--wait",
            "--timeout",
            &timeout,
        ];
        let begun = Instant::now();
        let output = self.tenant.helm(&words).await?;
        let after = begun.elapsed();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let name = self.name;
        self.tenant
            .note(&format!("helm {verb} {name} ends after {after:?}: {said}"));
        Ok(Ended {
            is_success: output.status.success(),
            said,
            after,
        })
    }

    /// helm waits until all of them are ready.
    async fn succeeds(&self, verb: &str, objects: &[Value]) -> Result<()> {
        let ended = self.waits(verb, objects, PATIENCE).await?;
        ensure!(ended.is_success, "helm {verb} {}: {}", self.name, ended.said);
        Ok(())
    }

    /// helm ends long before its timeout, and tells of the object (as `KIND/NAME`) that it has failed, and why.
    async fn fails(&self, verb: &str, objects: &[Value], object: &str, why: &str) -> Result<()> {
        let Ended {
            is_success,
            said,
            after,
        } = self.waits(verb, objects, PATIENCE).await?;
        let told = self.not_ready(object, "Failed");
        ensure!(
            !is_success && after < AT_ONCE && said.contains(&told) && said.contains(why),
            "helm {verb} {} took {after:?}: {said}",
            self.name
        );
        Ok(())
    }

    /// helm uses up a short timeout, and tells of each object that it is not ready.
    async fn waits_in_vain(&self, verb: &str, objects: &[Value], names: &[&str]) -> Result<()> {
        let Ended {
            is_success,
            said,
            after,
        } = self.waits(verb, objects, SHORT).await?;
        let told: Vec<_> = names
            .iter()
            .map(|name| self.not_ready(name, "InProgress"))
            .collect();
        ensure!(
            !is_success && after >= SHORT && told.iter().all(|words| said.contains(words)),
            "helm {verb} {} took {after:?}: {said}",
            self.name
        );
        Ok(())
    }

    /// helm's words about an object that it waited for.
    fn not_ready(&self, object: &str, status: &str) -> String {
        let (kind, name) = object.split_once('/').unwrap_or_default();
        let namespace = self.tenant.stage().namespace();
        format!("resource {kind}/{namespace}/{name} not ready. status: {status}")
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    })
}

/// Requires that the status of an object is about its newest spec, and that these conditions are so. It does not wait.
async fn has(tenant: &Tenant, object: &str, wanted: &[(&str, &str)]) -> Result<()> {
    let found: Value = serde_json::from_str(&tenant.kubectl(&["get", object, "--output=json"]).await?)?;
    let status = &found["status"];
    ensure!(
        status["observedGeneration"] == found["metadata"]["generation"],
        "the status of {object} is about an earlier spec: {found}"
    );
    let conditions = status["conditions"].as_array().context("no conditions")?;
    for (type_, truth) in wanted {
        let mut all = conditions.iter();
        ensure!(
            all.any(|one| one["type"] == *type_ && one["status"] == *truth),
            "{type_} of {object} is not {truth}: {status}"
        );
    }
    Ok(())
}

/// Requires that a one-shot object has ended for this reason, as a script learns by `kubectl wait`.
async fn has_finished(tenant: &Tenant, object: &str, reason: &str) -> Result<()> {
    tenant
        .kubectl(&["wait", "--for=condition=Finished", "--timeout=10s", object])
        .await?;
    let path = ".status.conditions[?(@.type==\"Finished\")].reason";
    let found = tenant.field(object, path).await?;
    ensure!(found == reason, "{object} has finished: {found}");
    Ok(())
}

/// Requires that the cluster is ready, that it has so many voters, and that each of them serves. It does not wait.
async fn serves(tenant: &Tenant, size: usize) -> Result<()> {
    has(tenant, &format!("etcdcluster/{}", tenant.name()), &READY).await?;
    let mut addresses = Vec::new();
    for ordinal in 0..size {
        let address = tenant.stage().address(&tenant.pod(ordinal)).await?;
        addresses.push(format!("http://{address}:2379"));
    }
    let endpoints = addresses.join(",");
    let health = tenant.etcdctl_at(&endpoints, &["endpoint", "health"]).await?;
    printed(health, "etcdctl endpoint health")?;
    let list = tenant
        .etcdctl_at(&endpoints, &["member", "list", "--write-out=json"])
        .await?;
    let list: Value = serde_json::from_str(&printed(list, "etcdctl member list")?)?;
    let members = list["members"].as_array().context("no members")?;
    ensure!(
        members.len() == size && members.iter().all(|member| member["isLearner"] != true),
        "not {size} voters: {members:?}"
    );
    Ok(())
}

/// Each kind as it forms, changes, fails and becomes ready, and while no operator runs.
pub async fn release_waited_for(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    formed_and_changed(&tenant).await?;
    refused(&tenant).await?;
    backed_up(&tenant, &bucket).await?;
    without_its_key(&tenant).await?;
    without_operator(&tenant).await
}

/// helm returns when the cluster is formed; after a change, when every member runs it.
async fn formed_and_changed(tenant: &Tenant) -> Result<()> {
    let release = Release::named(tenant, "shop")?;
    let cluster = |spec: &Value| [object("EtcdCluster", tenant.name(), spec)];
    release.succeeds("install", &cluster(&tenant.spec(1))).await?;
    serves(tenant, 1).await?;
    release.succeeds("upgrade", &cluster(&tenant.spec(3))).await?;
    serves(tenant, 3).await?;
    let resources = json!({"requests": {"cpu": "30m", "memory": "48Mi"}, "limits": {"memory": "400Mi"}});
    let mut spec = tenant.spec(3);
    spec["pod"] = json!({"resources": resources});
    release.succeeds("upgrade", &cluster(&spec)).await?;
    serves(tenant, 3).await?;
    has(tenant, "etcdcluster/c", &[("RolledOut", "True")]).await?;
    have_resources(tenant, 3, &resources).await
}

/// What the API server takes and the operator refuses: helm tells why at once, and waits again once it is corrected.
async fn refused(tenant: &Tenant) -> Result<()> {
    let old = tenant.named("old");
    let release = Release::named(tenant, "old")?;
    let mut spec = old.spec(1);
    spec["version"] = json!("3.5.2");
    let cluster = object("EtcdCluster", "old", &spec);
    release
        .fails("install", &[cluster], "EtcdCluster/old", "spec.version")
        .await?;
    has(&old, "etcdcluster/old", &STALLED).await?;
    let corrected = object("EtcdCluster", "old", &old.spec(1));
    release.succeeds("upgrade", &[corrected]).await?;
    serves(&old, 1).await?;

    let release = Release::named(tenant, "nightly")?;
    let backup = object(
        "EtcdBackup",
        "nightly",
        &json!({
            "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3("etcd/nightly"),
            "schedule": "61 3 * * *",
        }),
    );
    release
        .fails("install", &[backup], "EtcdBackup/nightly", "spec.schedule")
        .await?;
    has(tenant, "etcdbackup/nightly", &STALLED).await
}

/// A backup that failed and is tried again is waited for, and ready when it is stored.
async fn backed_up(tenant: &Tenant, bucket: &Bucket<'_>) -> Result<()> {
    let stage = tenant.stage();
    vault::secret(stage, "keys", &json!({"2026": "a".repeat(32)})).await?;
    let once = |path: &str| {
        let mut s3 = Bucket::s3("etcd/once");
        s3["path"] = json!(path);
        let spec = json!({
            "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": s3,
            "encryption": {"secretRef": {"name": "keys"}},
        });
        [object("EtcdBackup", "once", &spec)]
    };
    let release = Release::named(tenant, "backup")?;
    release
        .waits_in_vain("install", &once("nowhere/etcd/once"), &["EtcdBackup/once"])
        .await?;
    Backup::named(stage, "once")
        .says("is tried again", vault::SOON, |status| {
            vault::condition(status, "Finished", "False", "Retrying").is_some()
        })
        .await?;
    has(tenant, "etcdbackup/once", &RECONCILING).await?;
    has(tenant, "etcdbackup/once", &[("Finished", "False")]).await?;

    let path = format!("{}/etcd/once", vault::BUCKET);
    release.succeeds("upgrade", &once(&path)).await?;
    has(tenant, "etcdbackup/once", &READY).await?;
    has_finished(tenant, "etcdbackup/once", "Succeeded").await?;
    let stored = bucket.list("etcd/").await?;
    ensure!(stored == ["etcd/once"], "{stored:?}");
    Ok(())
}

/// The restore of a sealed backup by another key.
fn by_other_keys(cluster: &str) -> Value {
    json!({
        "etcdCluster": {"name": cluster}, "backupStorageType": "S3", "s3": Bucket::s3("etcd/once"),
        "encryption": {"secretRef": {"name": "others"}},
    })
}

/// A restore that cannot succeed: helm and scripts learn that it has ended.
async fn without_its_key(tenant: &Tenant) -> Result<()> {
    vault::secret(tenant.stage(), "others", &json!({"2026": "b".repeat(32)})).await?;
    let release = Release::named(tenant, "restore")?;
    let restore = object("EtcdRestore", "back", &by_other_keys("c"));
    release
        .fails("install", &[restore], "EtcdRestore/back", "Key")
        .await?;
    has(tenant, "etcdrestore/back", &STALLED).await?;
    has_finished(tenant, "etcdrestore/back", "Failed").await?;
    serves(tenant, 3).await
}

/// What no operator has looked at yet is not ready, whichever kind it is; helm waits for it once there is one.
async fn without_operator(tenant: &Tenant) -> Result<()> {
    let scaled = async |replicas: &str| {
        tenant
            .kubectl_of_operator(&["scale", "deployment/etcd-operator", replicas])
            .await
    };
    scaled("--replicas=0").await?;
    until("no operator runs", SOON, || async {
        Ok(managers(tenant).await?.is_empty().then_some(()))
    })
    .await?;
    let early = tenant.named("early");
    let release = Release::named(tenant, "early")?;
    let backup = json!({
        "etcdCluster": {"name": "early"}, "storageType": "S3", "s3": Bucket::s3("etcd/early"),
    });
    let mut objects = vec![
        object("EtcdCluster", "early", &early.spec(1)),
        object("EtcdBackup", "early", &backup),
        object("EtcdRestore", "early", &by_other_keys("early")),
    ];
    let names = ["EtcdCluster/early", "EtcdBackup/early", "EtcdRestore/early"];
    release.waits_in_vain("install", &objects, &names).await?;

    scaled("--replicas=1").await?;
    leads(tenant).await?;
    // The restore lacks its key for good.
    objects.truncate(2);
    release.succeeds("upgrade", &objects).await?;
    serves(&early, 1).await?;
    has(tenant, "etcdbackup/early", &READY).await?;
    has_finished(tenant, "etcdbackup/early", "Succeeded").await
}
