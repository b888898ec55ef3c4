//! A leader that stands still for longer than it may believe that it leads, and then goes on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::install::NAMESPACE;
use etcd_operator_e2e::observe;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::control::{leader, leads, managers};
use super::tenant::{SOON, Tenant};

/// How long it stands still at least.
const STILL: Duration = Duration::from_mins(1);
/// So many failed looks the kubelet bears meanwhile: it is not to end who stands still.
const PATIENT: u32 = 100;
const DEPLOYMENT: &str = "deployment/etcd-operator";
/// Where the audit log says from which pod a token came.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// It wakes up in the middle of what its successor does, and changes nothing.
pub async fn stood_still(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    let usual = tenant
        .kubectl_of_operator(&[
            "get",
            DEPLOYMENT,
            "--output=jsonpath={.spec.template.spec.containers[0].livenessProbe.failureThreshold}",
        ])
        .await?;
    let usual = usual
        .trim()
        .parse::<u32>()
        .context("the manager is not looked at")?;
    deploy(&tenant, 2, PATIENT).await?;
    until("two operators run", SOON, || async {
        Ok((managers(&tenant).await?.len() == 2).then_some(()))
    })
    .await?;
    leads(&tenant).await?;
    let control_plane = tenant.stage().cluster().control_plane();
    let log = control_plane.directory().join("audit.log");

    tenant.scale(5).await?;
    let first = leader(&tenant).await?;
    let pod = pod_of(&first)?;
    let stale = tenant
        .stage()
        .cluster()
        .container(NAMESPACE, &pod, "manager")
        .await?;
    tenant.note(&format!("{pod} leads and stands still"));
    stale.pause().await?;
    let (from, paused) = (Instant::now(), length(&log)?);
    let second = until("another one leads", SOON, || async {
        let now = leader(&tenant).await?;
        Ok((!now.is_empty() && now != first).then_some(now))
    })
    .await?;
    tenant.converged(5).await?;
    until("a minute has passed", 2 * STILL, || async {
        Ok((from.elapsed() >= STILL).then_some(()))
    })
    .await?;

    let mut lists = vec![members(&tenant).await?];
    tenant.scale(3).await?;
    lists.push(members(&tenant).await?);
    let resumed = length(&log)?;
    stale.resume()?;
    tenant.note(&format!("{pod} goes on after {:?}", from.elapsed()));
    // It ends as soon as it sees that it leads no more, and another process begins in its pod.
    let limit = Instant::now() + SOON;
    while stale.processes().is_ok_and(|all| !all.is_empty()) {
        ensure!(Instant::now() < limit, "it has not ended within {SOON:?}");
        lists.push(members(&tenant).await?);
    }
    // What it may have asked for at last is answered by then, and noted.
    tenant.status().await?;
    let ended = length(&log)?;
    lists.push(members(&tenant).await?);
    tenant.converged(3).await?;
    lists.push(members(&tenant).await?);

    let by_second = changes(&log, paused, ended, &pod_of(&second)?)?;
    ensure!(
        !by_second.is_empty(),
        "the audit log does not tell who changed anything: nothing is known of who stood still either"
    );
    let by_first = changes(&log, resumed, ended, &pod)?;
    ensure!(
        by_first.is_empty(),
        "{pod} stood still, another one led, and then it changed this: {by_first:?}"
    );
    tenant.note(&format!(
        "{} changes by the one that leads, none by the one that led",
        by_second.len()
    ));
    let told = changes_told_by(&second, &tenant, &lists).await?;
    ensure!(
        told == 2,
        "members changed {told} times while five became three: {lists:?}"
    );
    deploy(&tenant, 1, usual).await?;
    leads(&tenant).await?;
    tenant.survived(load).await
}

/// So many managers, whom the kubelet ends after so many failed looks.
async fn deploy(tenant: &Tenant, replicas: u8, failures: u32) -> Result<()> {
    let manager = json!({"name": "manager", "livenessProbe": {"failureThreshold": failures}});
    let patch = json!({"spec": {"replicas": replicas, "template": {"spec": {"containers": [manager]}}}});
    let patch = patch.to_string();
    tenant
        .kubectl_of_operator(&["patch", DEPLOYMENT, "--patch", &patch])
        .await?;
    tenant
        .kubectl_of_operator(&["rollout", "status", DEPLOYMENT, "--timeout=150s"])
        .await?;
    Ok(())
}

/// The pod in which whoever holds the lease runs.
fn pod_of(holder: &str) -> Result<String> {
    let mut parts = holder.split(['_', '/']);
    let pod = parts.find(|part| part.starts_with("etcd-operator-"));
    let pod = pod.with_context(|| format!("the lease is held by {holder}, which names no pod"))?;
    Ok(pod.to_owned())
}

/// A member as etcd lists it.
#[derive(Debug)]
struct Listed {
    name: String,
    is_learner: bool,
}

/// The members as etcd lists them, by their IDs.
async fn members(tenant: &Tenant) -> Result<BTreeMap<String, Listed>> {
    let all = tenant.members().await?;
    let listed = all.iter().map(|member| {
        let listed = Listed {
            name: member["name"].as_str().unwrap_or_default().to_owned(),
            is_learner: member["isLearner"] == true,
        };
        (member["ID"].to_string(), listed)
    });
    Ok(listed.collect())
}

/// How many members changed from one list to the next. It is an error if a new one appears, or if the leader has not told of
/// a change in an Event of its own.
async fn changes_told_by(leader: &str, tenant: &Tenant, lists: &[BTreeMap<String, Listed>]) -> Result<usize> {
    let mut count = 0;
    for pair in lists.windows(2) {
        let [before, after] = pair else { continue };
        let new: Vec<_> = after.iter().filter(|(id, _)| !before.contains_key(*id)).collect();
        ensure!(new.is_empty(), "{new:?} joined a cluster that shrinks: {lists:?}");
        for (id, member) in before {
            let reason = match after.get(id) {
                None => "MemberRemoved",
                Some(now) if now.is_learner != member.is_learner => "MemberPromoted",
                Some(_) => continue,
            };
            let client = tenant.stage().cluster().client().await?;
            let what = format!("{leader} tells {reason} of {}", member.name);
            observe::event(client, tenant.stage().namespace(), &what, SOON, |event| {
                let text = event.message.as_deref().unwrap_or_default();
                event.reason.as_deref() == Some(reason)
                    && event.reporting_instance.as_deref() == Some(leader)
                    && text.contains(&member.name)
            })
            .await?;
            count += 1;
        }
    }
    Ok(count)
}

fn length(log: &Path) -> Result<u64> {
    let metadata = std::fs::metadata(log).context("there is no audit log")?;
    Ok(metadata.len())
}

/// What was changed from this pod, by this piece of the audit log.
fn changes(log: &Path, from: u64, to: u64, pod: &str) -> Result<Vec<String>> {
    let mut file = File::open(log).context("there is no audit log")?;
    file.seek(SeekFrom::Start(from))?;
    let mut found = Vec::new();
    for line in BufReader::new(file.take(to.saturating_sub(from))).lines() {
        // The last one may still have been written.
        let Ok(entry) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let code = entry["responseStatus"]["code"].as_u64().unwrap_or_default();
        let is_change = WRITES.iter().any(|verb| entry["verb"] == *verb) && (200..300).contains(&code);
        if is_change && entry["user"]["extra"][POD_NAME][0] == pod {
            found.push(format!("{} {}", entry["verb"], entry["requestURI"]));
        }
    }
    Ok(found)
}
