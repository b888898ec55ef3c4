//! A whole manager against a real API server: every object gets its verdict, and then nothing more is written.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, condition::Condition, crd};
use etcd_operator_e2e::control_plane::{Access, AuditFilter, ControlPlane, Options};
use etcd_operator_manager::{
    cli::{Cli, Command},
    run::Manager,
};
use etcd_operator_runtime::{clock::SystemClock, health::Server};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

const AGENT: &str = "etcd-operator-under-test";

fn verdict(conditions: Option<&Vec<Condition>>) -> Option<(String, String)> {
    let accepted = conditions?.iter().find(|c| c.type_ == "Accepted")?;
    Some((
        accepted.status.clone(),
        accepted.message.clone().unwrap_or_default(),
    ))
}

async fn manager(bed: &ControlPlane, namespace: &str) -> Result<Manager> {
    let line = ["etcd-operator", "manager", "--health-address", "127.0.0.1:0"];
    let Command::Manager(args) = Cli::try_parse_from(line)?.command else {
        anyhow::bail!("another command")
    };
    let server = Server::bind(args.health_address).await?;
    let client = bed.client_with(&Access::admin().user_agent(AGENT)).await?;
    Ok(Manager {
        args: *args,
        namespace: namespace.to_owned(),
        client,
        server,
        clock: SystemClock::shared(),
    })
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
    for n in 0..50 {
        let name = format!("c{n}");
        let spec = if n % 10 == 0 {
            json!({"auth": {"enabled": false}})
        } else {
            json!({"size": 3})
        };
        clusters
            .create(&params, &EtcdCluster::new(&name, serde_json::from_value(spec)?))
            .await?;
        let mut spec = json!({"etcdCluster": {"name": name}, "storageType": "OSS", "oss": store, "schedule": "0 3 * * *"});
        match n % 10 {
            0 => spec["schedule"] = "0 0 31 2 *".into(),
            1 => spec["timeZone"] = "Middle/Earth".into(),
            _ => {}
        }
        backups
            .create(&params, &EtcdBackup::new(&name, serde_json::from_value(spec)?))
            .await?;
    }
    let spec = json!({"etcdCluster": {"name": "c1"}, "source": {"backup": {"name": "gone"}}});
    restores
        .create(&params, &EtcdRestore::new("r", serde_json::from_value(spec)?))
        .await?;

    let stop = CancellationToken::new();
    let running = tokio::spawn(manager(&bed, &namespace).await?.run(stop.clone()));
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
        let bad = name[1..].parse::<u32>()? % 10 == 0;
        assert_eq!(holds, if bad { "False" } else { "True" }, "{name}: {message}");
        assert_eq!(message.contains("spec.auth"), bad, "{name}: {message}");
        assert_eq!(status.observed_generation, cluster.metadata.generation);
        assert_eq!(status.phase, if bad { "Invalid" } else { "Waiting" });
    }
    for backup in &all_backups {
        let name = backup.metadata.name.clone().context("a name")?;
        let status = backup.status.as_ref().context("a status")?;
        let (holds, message) = verdict(status.conditions.as_ref()).context("a verdict")?;
        let field = match name[1..].parse::<u32>()? % 10 {
            0 => Some("spec.schedule"),
            1 => Some("spec.timeZone"),
            _ => None,
        };
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
        while told.list(&ListParams::default()).await?.items.len() < 101 {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    timeout(Duration::from_secs(30), all_told)
        .await
        .context("Events are missing")??;

    // Quiet means: over a whole window nothing but the lease is written.
    let mark = bed.audit_mark();
    sleep_until(Instant::now() + Duration::from_secs(15)).await;
    let writes = bed.audit(&AuditFilter::new().since(mark).user_agent(AGENT).writes())?;
    let beyond_lease: Vec<_> = writes
        .iter()
        .filter(|e| e.object_ref.as_ref().is_none_or(|o| o.resource != "leases"))
        .collect();
    ensure!(
        !writes.is_empty(),
        "the lease was not renewed: the audit does not see this manager"
    );
    assert!(beyond_lease.is_empty(), "{beyond_lease:?}");

    stop.cancel();
    timeout(Duration::from_secs(30), running)
        .await
        .context("the manager does not stop")???;
    Ok(())
}
