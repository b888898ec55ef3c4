//! Two hundred good objects and twenty bad ones under one manager, and what must be true of them: every one has its
//! verdict, one watch per kind brought it, and then nothing is written. How long nothing is written is the caller's.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, condition::Condition, crd};
use etcd_operator_e2e::Operator;
use etcd_operator_e2e::control_plane::{AuditEntry, AuditFilter, AuditMark, ControlPlane, Options};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::process::Sent;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

/// Of the operator; nobody pulls it, for there are no nodes.
pub const IMAGE: &str = "example.dev/etcd-operator:1";
/// Its user in the audit log.
pub const NAME: &str = "manager";
/// Of each of the two kinds; every tenth cluster and every fifth backup among the first half is bad: 20 in all.
const EACH: u32 = 110;
/// With the one restore.
const OBJECTS: usize = 2 * EACH as usize + 1;
/// For all verdicts, and for all Events about them.
const SOON: Duration = Duration::from_mins(2);
/// Nothing is written for so long, and what was asked for has been made.
const STILL: Duration = Duration::from_secs(3);
/// How often a cluster is looked at of which nothing is new.
const EVERY: Duration = Duration::from_secs(30);
/// Verbs of the API server's metrics that change something.
const CHANGING: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
/// The plural names of our kinds, and of what backups are made by, which nobody else watches here.
const KINDS: [&str; 4] = ["etcdclusters", "etcdbackups", "etcdrestores", "jobs"];
/// No backup falls due while anybody looks on, whatever the time of day.
const SCHEDULE: &str = "0 3 29 2 *";

/// What was seen, in numbers.
#[derive(Debug)]
pub struct Seen {
    /// Objects whose conditions are the right ones, and how many of them are bad.
    pub judged: usize,
    pub refused: usize,
    /// Open watches of each kind, by the API server's metrics.
    pub watches: BTreeMap<&'static str, u64>,
    /// How long nothing was done.
    pub quiet: Duration,
    /// Reconciles of the cluster controller within that time.
    pub reconciles: u64,
    /// Writes within the quiet time: of the lease by the audit log, of anything else by the audit log and by the API
    /// server's metrics.
    pub renewals: usize,
    pub audited: usize,
    pub counted: u64,
    /// Lines logged within the quiet time.
    pub lines: Vec<String>,
    /// Memory of its own in MiB when the quiet time began and when it ended.
    pub anonymous: [u64; 2],
}

/// What is wrong with an object: the field its verdict must name.
fn fault(kind: &str, n: u32) -> Option<&'static str> {
    match (kind, n % 10) {
        ("cluster", 0) if n < 100 => Some("spec.version"),
        ("backup", 0) if n < 50 => Some("spec.schedule"),
        ("backup", 1) if n < 50 => Some("spec.timeZone"),
        _ => None,
    }
}

fn verdict(conditions: Option<&Vec<Condition>>) -> Option<(String, String)> {
    let accepted = conditions?.iter().find(|c| c.type_ == "Accepted")?;
    let message = accepted.message.clone().unwrap_or_default();
    Some((accepted.status.clone(), message))
}

/// Creates the objects, starts a manager, waits for every verdict, and then looks on for as long as `quiet`.
pub async fn play(quiet: Duration) -> Result<Seen> {
    let bed = ControlPlane::start(Options::default()).await?;
    let documents: Result<Vec<_>, _> = crd::all().iter().map(serde_json::to_string).collect();
    bed.apply_crds(&documents?.join("\n---\n")).await?;
    let namespace = bed.namespace("manager").await?;
    create(&bed, &namespace).await?;

    let mut operator = Operator::start(&bed, NAME, &namespace, &["--operator-image", IMAGE]).await?;
    operator.until_ready(|code, _| code == 200).await?;
    let (judged, refused) = judged(&bed, &namespace)
        .await
        .with_context(|| operator.logged())?;
    let watches = watches(&bed).await?;
    told(&bed, &namespace).await?;
    settled(&bed).await?;
    let looked_at = reconciles(&operator).await?;

    let (mark, lines, before) = (
        bed.audit_mark(),
        operator.logged().lines().count(),
        changes(&bed).await?,
    );
    let anonymous = operator.anonymous()? >> 20;
    sleep_until(Instant::now() + quiet).await;
    let writes = bed.audit(&AuditFilter::new().since(mark).user(NAME).writes())?;
    let (renewals, other): (Vec<_>, Vec<_>) = writes
        .iter()
        .partition(|e| e.object_ref.as_ref().is_some_and(|o| o.resource == "leases"));
    let seen = Seen {
        judged,
        refused,
        watches,
        quiet,
        reconciles: reconciles(&operator).await? - looked_at,
        renewals: renewals.len(),
        audited: other.len(),
        counted: changes(&bed).await? - before,
        lines: operator.logged().lines().skip(lines).map(str::to_owned).collect(),
        anonymous: [anonymous, operator.anonymous()? >> 20],
    };
    ensure!(other.is_empty(), "{seen:?}\n{other:?}");

    operator.send(Sent::Terminate)?;
    let status = operator.ended(Duration::from_secs(30)).await?;
    ensure!(status.success(), "{status}");
    Ok(seen)
}

/// What must be true of what was seen.
pub fn check(seen: &Seen) -> Result<()> {
    ensure!(seen.judged == OBJECTS && seen.refused == 20, "{seen:?}");
    for kind in KINDS {
        ensure!(seen.watches.get(kind) == Some(&1), "{seen:?}");
    }
    let often = 1 + seen.quiet.as_secs() / EVERY.as_secs();
    ensure!(
        seen.reconciles <= u64::from(EACH) * often,
        "clusters of which nothing is new are looked at too often: {seen:?}"
    );
    ensure!(seen.renewals > 0, "the audit does not see this manager: {seen:?}");
    ensure!(seen.audited == 0 && seen.counted == 0, "{seen:?}");
    ensure!(
        seen.lines.is_empty(),
        "nothing changed, and it was logged: {seen:?}"
    );
    ensure!(seen.anonymous[1] < 48, "more than a start needs: {seen:?}");
    Ok(())
}

async fn create(bed: &ControlPlane, namespace: &str) -> Result<()> {
    let client = bed.client().await?;
    let clusters: Api<EtcdCluster> = Api::namespaced(client.clone(), namespace);
    let backups: Api<EtcdBackup> = Api::namespaced(client.clone(), namespace);
    let restores: Api<EtcdRestore> = Api::namespaced(client, namespace);
    let params = PostParams::default();
    let store = json!({"path": "bucket/key", "ossSecret": "s"});
    for n in 0..EACH {
        let name = format!("c{n}");
        let spec = match fault("cluster", n) {
            Some(_) => json!({"image": "example.dev/etcd:latest"}),
            None => json!({"size": 3}),
        };
        let cluster = EtcdCluster::new(&name, serde_json::from_value(spec)?);
        clusters.create(&params, &cluster).await?;
        let mut spec =
            json!({"etcdCluster": {"name": name}, "storageType": "OSS", "oss": store, "schedule": SCHEDULE});
        match fault("backup", n) {
            Some("spec.schedule") => spec["schedule"] = "0 0 31 2 *".into(),
            Some(_) => spec["timeZone"] = "Middle/Earth".into(),
            None => {}
        }
        let backup = EtcdBackup::new(&name, serde_json::from_value(spec)?);
        backups.create(&params, &backup).await?;
    }
    let spec = json!({"etcdCluster": {"name": "c1"}, "source": {"backup": {"name": "gone"}}});
    let restore = EtcdRestore::new("r", serde_json::from_value(spec)?);
    restores.create(&params, &restore).await?;
    Ok(())
}

/// Waits until every object has its verdict; how many are as they must be, and how many of them are bad.
async fn judged(bed: &ControlPlane, namespace: &str) -> Result<(usize, usize)> {
    let client = bed.client().await?;
    let clusters: Api<EtcdCluster> = Api::namespaced(client.clone(), namespace);
    let backups: Api<EtcdBackup> = Api::namespaced(client.clone(), namespace);
    let restores: Api<EtcdRestore> = Api::namespaced(client, namespace);
    let (all_clusters, all_backups, restore) = until("a verdict on every object", SOON, || async {
        let clusters = clusters.list(&ListParams::default()).await?.items;
        let backups = backups.list(&ListParams::default()).await?.items;
        let restore = restores.get("r").await?;
        let of_cluster = |c: &EtcdCluster| verdict(c.status.as_ref()?.conditions.as_ref());
        let of_backup = |b: &EtcdBackup| verdict(b.status.as_ref()?.conditions.as_ref());
        let all = clusters.iter().all(|c| of_cluster(c).is_some())
            && backups.iter().all(|b| of_backup(b).is_some())
            && verdict(restore.status.as_ref().and_then(|s| s.conditions.as_ref())).is_some();
        Ok(all.then_some((clusters, backups, restore)))
    })
    .await?;

    let mut right = 0;
    let mut refused = 0;
    let mut judge = |kind, name: Option<String>, conditions: Option<&Vec<Condition>>, observed: bool| {
        let name = name.context("a name")?;
        let (holds, message) = verdict(conditions).context("a verdict")?;
        let fault = fault(kind, name[1..].parse()?);
        let as_expected = match fault {
            None => holds == "True",
            Some(field) => holds == "False" && message.contains(field),
        };
        ensure!(as_expected && observed, "{kind} {name}: {holds} {message}");
        right += 1;
        refused += usize::from(fault.is_some());
        Ok(())
    };
    for cluster in all_clusters {
        let status = cluster.status.context("a status")?;
        let observed = status.observed_generation == cluster.metadata.generation;
        let conditions = status.conditions.as_ref();
        judge("cluster", cluster.metadata.name, conditions, observed)?;
    }
    for backup in all_backups {
        let status = backup.status.context("a status")?;
        let observed = status.observed_generation == backup.metadata.generation;
        let conditions = status.conditions.as_ref();
        judge("backup", backup.metadata.name, conditions, observed)?;
    }
    let conditions = restore.status.and_then(|s| s.conditions).context("conditions")?;
    let reference = conditions
        .iter()
        .find(|c| c.type_ == "ReferenceFound")
        .context("a reference")?;
    let message = reference.message.as_deref().unwrap_or_default();
    ensure!(message.contains("EtcdBackup gone"), "{reference:?}");
    Ok((right + 1, refused))
}

/// The open watches of these kinds, whoever opened them.
async fn watches(bed: &ControlPlane) -> Result<BTreeMap<&'static str, u64>> {
    let metrics = bed.metrics().await?;
    let of = |kind: &str| {
        let is_it = |labels: &str| {
            labels.contains(&format!("resource=\"{kind}\"")) && labels.contains("verb=\"WATCH\"")
        };
        sum(&metrics, "apiserver_longrunning_requests", is_it)
    };
    KINDS.into_iter().map(|kind| Ok((kind, of(kind)?))).collect()
}

/// Events travel behind the statuses: one for each verdict.
async fn told(bed: &ControlPlane, namespace: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(bed.client().await?, namespace);
    until("an Event for every verdict", SOON, || async {
        let told = events.list(&ListParams::default()).await?.items.len();
        Ok((told >= OBJECTS).then_some(()))
    })
    .await
}

/// Waits until the manager has made what it makes of these objects where there are no nodes.
async fn settled(bed: &ControlPlane) -> Result<()> {
    until("the manager writes nothing more", SOON, || async {
        let mark = bed.audit_mark();
        sleep_until(Instant::now() + STILL).await;
        Ok(writes(bed, mark)?.is_empty().then_some(()))
    })
    .await
}

/// What the manager wrote since a mark, its lease apart.
pub fn writes(bed: &ControlPlane, mark: AuditMark) -> Result<Vec<AuditEntry>> {
    let mut writes = bed.audit(&AuditFilter::new().since(mark).user(NAME).writes())?;
    writes.retain(|write| {
        let object = write.object_ref.as_ref();
        object.is_none_or(|object| object.resource != "leases")
    });
    Ok(writes)
}

/// How often the cluster controller has looked at an object.
pub async fn reconciles(operator: &Operator) -> Result<u64> {
    let (_, page) = operator.page("/metrics").await?;
    sum(&page, "etcd_operator_reconciles_total", |labels| {
        labels.contains("controller=\"cluster\"")
    })
}

/// Requests that changed one of our objects, a Job or an Event, whoever sent them, since the API server started.
async fn changes(bed: &ControlPlane) -> Result<u64> {
    let metrics = bed.metrics().await?;
    sum(&metrics, "apiserver_request_total", |labels| {
        let ours = KINDS.iter().chain(&["events"]);
        ours.into_iter()
            .any(|kind| labels.contains(&format!("resource=\"{kind}\"")))
            && CHANGING
                .iter()
                .any(|verb| labels.contains(&format!("verb=\"{verb}\"")))
    })
}

/// The sum of a counter over the label sets that are wanted. Millions are written with an exponent.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of a test are whole, positive and small"
)]
fn sum(page: &str, metric: &str, wanted: impl Fn(&str) -> bool) -> Result<u64> {
    let values = page.lines().filter_map(|line| {
        let (labels, value) = line.strip_prefix(metric)?.strip_prefix('{')?.rsplit_once('}')?;
        wanted(labels).then_some(value.trim())
    });
    let mut sum = 0.0;
    for value in values {
        sum += value
            .parse::<f64>()
            .with_context(|| format!("{metric} is {value}"))?;
    }
    Ok(sum as u64)
}
