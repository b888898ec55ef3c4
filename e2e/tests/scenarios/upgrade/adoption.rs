//! Release 0.1.0 is replaced by the present operator: running pods and Jobs stay the ones they are, and the present
//! operator goes on with them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::StoreFault;
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE};
use etcd_operator_e2e::pki::Authority;
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::{images, operator, previous_release};
use serde_json::{Value, json};

use crate::backup::vault::{Backup, Bucket};
use crate::cluster::control::leads;
use crate::cluster::secure;
use crate::cluster::tenant::{Tenant, is};
use crate::restore::seen::Restore;

/// Longer than the scenario takes: the Job that is under way retries for as long.
const BACKUP_TIMEOUT: Duration = Duration::from_mins(30);
/// So slowly that no snapshot is stored while the operator is replaced, in bytes per second.
const CRAWL: u64 = 200;
const SOON: Duration = Duration::from_mins(3);
/// What must be the same before and after, of all kinds that the operator makes.
const KINDS: &str = "pods,jobs,statefulsets,persistentvolumeclaims,services,poddisruptionbudgets,etcdclusters,etcdbackups,etcdrestores";

/// What is there, by kind and name, and what tells whether it was made anew or restarted.
type Identities = BTreeMap<String, Value>;

/// The three clusters: TLS on volumes, EmptyDir, and one that a restore has made.
struct Clusters {
    secure: Tenant,
    ephemeral: Tenant,
    restored: Tenant,
}

/// The story.
pub async fn adopted(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = installed(&stage).await?;
    let bucket = Bucket::start(&stage, None).await?;
    let clusters = Clusters::serving(&kubernetes, &stage).await?;
    let hourly = Backup::named(&stage, "hourly");
    hourly
        .apply(&into_store("hourly", &json!({"backupIntervalInSecond": 3600})))
        .await?;
    hourly.made(0).await?;
    let under_way = Backup::named(&stage, "under-way");
    bucket.store.fail(StoreFault::Slow(CRAWL)).await?;
    under_way
        .apply(&into_store(
            "under-way",
            &json!({"timeoutInSecond": BACKUP_TIMEOUT.as_secs()}),
        ))
        .await?;
    until("a Job stores a backup", SOON, || async {
        Ok((bucket.store.bites("slowed").await? > 0).then_some(()))
    })
    .await?;

    let before = identities(&clusters.secure).await?;
    ensure!(
        before.keys().any(|name| name.starts_with("Job/under-way")),
        "no Job is under way: {before:#?}"
    );
    stage.note("the present operator replaces release 0.1.0");
    replaced(&kubernetes, &clusters.secure).await?;
    clusters.reconciled().await?;
    reconciled_backup(&clusters.secure, &hourly).await?;
    let after = identities(&clusters.secure).await?;
    unchanged(&before, &after)?;
    no_job_was_made(&before, &after)?;

    clusters.serve().await?;
    bucket.store.heal().await?;
    let (status, record) = under_way.made(0).await?;
    ensure!(
        status.failures.unwrap_or_default() == 0 && status.history.as_ref().is_some_and(|all| all.len() == 1),
        "the Job that was under way was not recorded once: {status:?}"
    );
    bucket.holds(&record, &[]).await?;
    hourly.ask(&clusters.secure, "now").await?;
    hourly.made(1).await?;

    clusters.secure.scale(5).await?;
    clusters.secure.says_converged(5).await?;
    clusters.serve().await?;
    let is_member = |name: &&String| name.starts_with("Pod/c-") || name.starts_with("StatefulSet/c");
    let members: Identities = before
        .iter()
        .filter(|(name, _)| is_member(name))
        .map(|(name, identity)| (name.clone(), without_generation(identity)))
        .collect();
    let after = identities(&clusters.secure).await?;
    let after = after
        .iter()
        .map(|(name, identity)| (name.clone(), without_generation(identity)));
    unchanged(&members, &after.collect())
}

/// Release 0.1.0 runs, and the nodes have the present operator as well.
pub async fn installed(stage: &Stage) -> Result<Kubernetes> {
    let previous = previous_release::build().await?;
    let archives = [
        images::operator_named(&previous.binary, previous_release::IMAGE).await?,
        images::operator(operator::binary().await?).await?,
    ];
    for node in stage.cluster().nodes() {
        for archive in &archives {
            node.import(archive).await?;
        }
    }
    let kubernetes = Kubernetes::at(stage.cluster().control_plane().kubeconfig()).await?;
    kubernetes.confine(NAMESPACE).await?;
    kubernetes
        .install_chart_everywhere(&previous.chart, previous_release::IMAGE)
        .await?;
    kubernetes.ready().await?;
    Ok(kubernetes)
}

/// Upgrades the release, and waits until the present operator leads and no other one is there.
pub async fn replaced(kubernetes: &Kubernetes, tenant: &Tenant) -> Result<()> {
    kubernetes.upgrade(images::OPERATOR).await?;
    kubernetes.ready().await?;
    let list = [
        "get",
        "pods",
        "--selector=app.kubernetes.io/name=etcd-operator",
        "--output=jsonpath={.items[*].spec.containers[*].image}",
    ];
    until("only the present operator runs", SOON, || async {
        let running = tenant.kubectl_of_operator(&list).await?;
        Ok((running.trim() == images::OPERATOR).then_some(()))
    })
    .await?;
    leads(tenant).await
}

/// The spec of a backup of the ephemeral cluster into the store.
fn into_store(path: &str, policy: &Value) -> Value {
    json!({
        "etcdCluster": {"name": "ephemeral"}, "storageType": "S3", "s3": Bucket::s3(&format!("etcd/{path}")),
        "backupPolicy": policy,
    })
}

impl Clusters {
    /// Creates all three and waits until they serve.
    async fn serving(kubernetes: &Kubernetes, stage: &Arc<Stage>) -> Result<Self> {
        let secure =
            Tenant::beside_operator(kubernetes.clone(), Arc::clone(stage), EtcdVersion::V3_6_16).await?;
        secure::secrets(&secure, &Authority::new()?).await?;
        secure.apply(&secure::spec(&secure, 3)).await?;
        let ephemeral = secure.named("ephemeral");
        let mut spec = ephemeral.spec(3);
        spec["storage"] = json!({"medium": "EmptyDir"});
        ephemeral.apply(&spec).await?;
        ephemeral.converged(3).await?;
        ephemeral.put("before").await?;
        let once = Backup::named(stage, "once");
        once.apply(&into_store("once", &json!({}))).await?;
        once.made(0).await?;
        let restored = secure.named("restored");
        let restore = Restore::named(stage, "restored");
        let template =
            json!({"size": 1, "version": EtcdVersion::V3_6_16.number(), "storage": {"size": "512Mi"}});
        restore
            .apply(&json!({
                "etcdCluster": {"name": "restored"}, "clusterTemplate": {"spec": template},
                "source": {"backup": {"name": "once"}},
            }))
            .await?;
        restore.succeeds().await?;
        restored.converged(1).await?;
        secure.says_converged(3).await?;
        through_tls(&secure, "before").await?;
        Ok(Self {
            secure,
            ephemeral,
            restored,
        })
    }

    fn all(&self) -> [(&Tenant, u8); 3] {
        [(&self.secure, 3), (&self.ephemeral, 3), (&self.restored, 1)]
    }

    /// Changes a field that concerns no pod, and waits until the operator that leads now has looked at each cluster.
    async fn reconciled(&self) -> Result<()> {
        for (tenant, size) in self.all() {
            let patch = r#"{"spec":{"recovery":{"replaceAfter":"1h"}}}"#;
            let patch = ["patch", "etcd", tenant.name(), "--type=merge", "--patch", patch];
            tenant.kubectl(&patch).await?;
            let status = tenant.says_converged(size).await?;
            is_fine(tenant, &status)?;
        }
        Ok(())
    }

    /// Each cluster still has what was written, and takes more.
    async fn serve(&self) -> Result<()> {
        for tenant in [&self.ephemeral, &self.restored] {
            tenant.holds("before").await?;
            tenant.put("after").await?;
            tenant.holds("after").await?;
        }
        through_tls(&self.secure, "after").await
    }
}

/// A write through TLS is read back, and what was written before is there.
async fn through_tls(secure: &Tenant, key: &str) -> Result<()> {
    // Nodes learn of a new endpoint a moment after everybody else.
    until("a write gets through", SOON, || async {
        Ok(secure::inside(secure, "put", &[key, key]).await.ok())
    })
    .await?;
    for key in ["before", key] {
        let said = secure::inside(secure, "get", &[key, "--print-value-only"]).await?;
        ensure!(said.trim() == key, "{key} is lost: {said:?}");
    }
    Ok(())
}

/// The conditions of a cluster that serves and has nothing left to do.
fn is_fine(tenant: &Tenant, status: &EtcdClusterStatus) -> Result<()> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let is_true = |type_: &str| {
        conditions
            .iter()
            .any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    ensure!(
        is_true("Accepted") && is_true("Available") && is(status, "Progressing", "False", "Converged"),
        "{} is not as it was: {conditions:#?}",
        tenant.name()
    );
    ensure!(
        status.controlled_by.as_deref() == Some("etcd/etcd-operator"),
        "{} is controlled by {:?}",
        tenant.name(),
        status.controlled_by
    );
    Ok(())
}

/// Changes a field that asks for no Job, and waits until the operator that leads now has looked at the backup:
/// by then it has looked at all backups, which were there when it began.
async fn reconciled_backup(tenant: &Tenant, backup: &Backup) -> Result<()> {
    let patch = r#"{"spec":{"backupPolicy":{"startingDeadlineSeconds":600}}}"#;
    tenant
        .kubectl(&["patch", "etcdbackup", "hourly", "--type=merge", "--patch", patch])
        .await?;
    backup
        .says("was looked at", SOON, |status| status.succeeded)
        .await?;
    Ok(())
}

/// What is there now.
async fn identities(tenant: &Tenant) -> Result<Identities> {
    let text = tenant.kubectl(&["get", KINDS, "--output=json"]).await?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().context("kubectl lists nothing")?;
    Ok(items.iter().map(identity).collect())
}

/// Kind and name of an object, and what tells whether it was made anew or restarted.
fn identity(object: &Value) -> (String, Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let status = &object["status"];
    let mut identity = json!({ "uid": object["metadata"]["uid"] });
    match &*kind {
        "Pod" => {
            let lists = ["initContainerStatuses", "containerStatuses"];
            let containers = lists
                .into_iter()
                .filter_map(|list| status[list].as_array())
                .flatten();
            let containers =
                containers.map(|one| json!([one["name"], one["containerID"], one["restartCount"]]));
            identity["containers"] = containers.collect();
        }
        "StatefulSet" => {
            identity["generation"] = object["metadata"]["generation"].clone();
            for field in ["currentRevision", "updateRevision"] {
                identity[field] = status[field].clone();
            }
        }
        _ => {}
    }
    (format!("{kind}/{name}"), identity)
}

/// The same without what changes where only the number of pods does.
fn without_generation(identity: &Value) -> Value {
    let mut identity = identity.clone();
    if let Some(fields) = identity.as_object_mut() {
        fields.remove("generation");
    }
    identity
}

/// Everything that was there before is the same now.
fn unchanged(before: &Identities, after: &Identities) -> Result<()> {
    let changed: Vec<_> = before
        .iter()
        .filter(|(name, identity)| after.get(*name) != Some(identity))
        .map(|(name, identity)| {
            let now = after
                .get(name)
                .map_or_else(|| "gone".to_owned(), Value::to_string);
            format!("{name} was {identity} and is {now}")
        })
        .collect();
    ensure!(changed.is_empty(), "{}", changed.join("\n"));
    Ok(())
}

/// No Job was made beside those that were there before.
fn no_job_was_made(before: &Identities, after: &Identities) -> Result<()> {
    let is_made = |name: &&String| name.starts_with("Job/") && !before.contains_key(*name);
    let made: Vec<_> = after.keys().filter(is_made).collect();
    ensure!(made.is_empty(), "{made:?}");
    Ok(())
}
