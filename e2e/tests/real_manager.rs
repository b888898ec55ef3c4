//! A whole manager against a real API server: every object gets its verdict, and then nothing more is written.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, condition::Condition, crd};
use etcd_operator_e2e::Operator;
use etcd_operator_e2e::control_plane::{AuditFilter, ControlPlane, Options};
use etcd_operator_e2e::process::Sent;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

/// Its user in the audit log.
const NAME: &str = "manager";
/// Of each of the two kinds; every tenth cluster and every fifth backup among the first half is bad: 20 in all.
const EACH: u32 = 110;
const VERDICTS: usize = 2 * EACH as usize + 1;

/// What is wrong with an object: the field its verdict must name.
fn fault(kind: &str, n: u32) -> Option<&'static str> {
    match (kind, n % 10) {
        ("cluster", 0) if n < 100 => Some("spec.auth"),
        ("backup", 0) if n < 50 => Some("spec.schedule"),
        ("backup", 1) if n < 50 => Some("spec.timeZone"),
        _ => None,
    }
}

fn verdict(conditions: Option<&Vec<Condition>>) -> Option<(String, String)> {
    let accepted = conditions?.iter().find(|c| c.type_ == "Accepted")?;
    Some((
        accepted.status.clone(),
        accepted.message.clone().unwrap_or_default(),
    ))
}

#[tokio::test]
async fn every_object_gets_its_verdict_through_one_watch_per_kind_and_then_nothing_is_written() -> Result<()>
{
    let bed = ControlPlane::start(Options::default()).await?;
    let documents: Vec<_> = crd::all()
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<_, _>>()?;
    bed.apply_crds(&documents.join("\n---\n")).await?;
    let namespace = bed.namespace("manager").await?;
    let client = bed.client().await?;
    let clusters: Api<EtcdCluster> = Api::namespaced(client.clone(), &namespace);
    let backups: Api<EtcdBackup> = Api::namespaced(client.clone(), &namespace);
    let restores: Api<EtcdRestore> = Api::namespaced(client, &namespace);
    let params = PostParams::default();
    let store = json!({"path": "bucket/key", "ossSecret": "s"});
    for n in 0..EACH {
        let name = format!("c{n}");
        let spec = match fault("cluster", n) {
            Some(_) => json!({"auth": {"enabled": false}}),
            None => json!({"size": 3}),
        };
        clusters
            .create(&params, &EtcdCluster::new(&name, serde_json::from_value(spec)?))
            .await?;
        let mut spec = json!({"etcdCluster": {"name": name}, "storageType": "OSS", "oss": store, "schedule": "0 3 * * *"});
        match fault("backup", n) {
            Some("spec.schedule") => spec["schedule"] = "0 0 31 2 *".into(),
            Some(_) => spec["timeZone"] = "Middle/Earth".into(),
            None => {}
        }
        backups
            .create(&params, &EtcdBackup::new(&name, serde_json::from_value(spec)?))
            .await?;
    }
    let spec = json!({"etcdCluster": {"name": "c1"}, "source": {"backup": {"name": "gone"}}});
    restores
        .create(&params, &EtcdRestore::new("r", serde_json::from_value(spec)?))
        .await?;

    let mut operator = Operator::start(&bed, NAME, &namespace, &[]).await?;
    operator.until_ready(|code, _| code == 200).await?;
    let everything = async {
        loop {
            let clusters = clusters.list(&ListParams::default()).await?.items;
            let backups = backups.list(&ListParams::default()).await?.items;
            let restore = restores.get("r").await?;
            let missing = clusters.iter().any(|c| {
                c.status
                    .as_ref()
                    .and_then(|s| verdict(s.conditions.as_ref()))
                    .is_none()
            }) || backups.iter().any(|b| {
                b.status
                    .as_ref()
                    .and_then(|s| verdict(s.conditions.as_ref()))
                    .is_none()
            }) || restore.status.is_none();
            if !missing {
                return anyhow::Ok((clusters, backups, restore));
            }
            tokio::task::yield_now().await;
        }
    };
    let (all_clusters, all_backups, restore) = timeout(Duration::from_mins(1), everything)
        .await
        .context("no verdicts")??;
    for cluster in &all_clusters {
        let name = cluster.metadata.name.clone().context("a name")?;
        let status = cluster.status.as_ref().context("a status")?;
        let (holds, message) = verdict(status.conditions.as_ref()).context("a verdict")?;
        let bad = fault("cluster", name[1..].parse()?).is_some();
        assert_eq!(holds, if bad { "False" } else { "True" }, "{name}: {message}");
        assert_eq!(message.contains("spec.auth"), bad, "{name}: {message}");
        assert_eq!(status.observed_generation, cluster.metadata.generation);
        assert_eq!(status.phase, if bad { "Invalid" } else { "Waiting" });
    }
    for backup in &all_backups {
        let name = backup.metadata.name.clone().context("a name")?;
        let status = backup.status.as_ref().context("a status")?;
        let (holds, message) = verdict(status.conditions.as_ref()).context("a verdict")?;
        let field = fault("backup", name[1..].parse()?);
        assert_eq!(holds == "False", field.is_some(), "{name}: {message}");
        assert!(field.is_none_or(|f| message.contains(f)), "{name}: {message}");
    }
    let conditions = restore.status.and_then(|s| s.conditions).context("conditions")?;
    let reference = conditions
        .iter()
        .find(|c| c.type_ == "ReferenceFound")
        .context("a reference")?;
    assert!(
        reference
            .message
            .as_deref()
            .is_some_and(|m| m.contains("EtcdBackup gone")),
        "{reference:?}"
    );

    for kind in ["etcdclusters", "etcdbackups", "etcdrestores"] {
        let open = bed.metrics().await?;
        let line = open
            .lines()
            .find(|l| {
                l.starts_with("apiserver_longrunning_requests{")
                    && l.contains(&format!("resource=\"{kind}\""))
                    && l.contains("verb=\"WATCH\"")
            })
            .with_context(|| format!("no watch of {kind}"))?;
        assert!(line.ends_with(" 1"), "{line}");
    }

    // Events travel behind the statuses: one for each verdict.
    let told: Api<Event> = Api::namespaced(bed.client().await?, &namespace);
    let all_told = async {
        while told.list(&ListParams::default()).await?.items.len() < VERDICTS {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    timeout(Duration::from_mins(2), all_told)
        .await
        .context("Events are missing")??;

    // Quiet means: over a whole window nothing but the lease is written.
    let mark = bed.audit_mark();
    sleep_until(Instant::now() + Duration::from_secs(15)).await;
    let writes = bed.audit(&AuditFilter::new().since(mark).user(NAME).writes())?;
    let beyond_lease: Vec<_> = writes
        .iter()
        .filter(|e| e.object_ref.as_ref().is_none_or(|o| o.resource != "leases"))
        .collect();
    ensure!(
        !writes.is_empty(),
        "the lease was not renewed: the audit does not see this manager"
    );
    assert!(beyond_lease.is_empty(), "{beyond_lease:?}");

    println!(
        "{VERDICTS} objects judged, {} MiB resident",
        operator.resident()? / (1 << 20)
    );
    ensure!(operator.resident()? < 64 << 20, "more than a start needs");

    operator.send(Sent::Terminate)?;
    let status = operator.ended(Duration::from_secs(30)).await?;
    assert!(status.success(), "{status}");
    Ok(())
}
