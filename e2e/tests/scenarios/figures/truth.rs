//! What is so of a cluster and its backup, by etcd's own word, by the volume that backups lie on, and by the statuses for
//! what only the operator knows.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use etcd_operator_api::cluster::StepIntent;
use etcd_operator_api::{EtcdBackup, EtcdClusterStatus};
use jiff::Timestamp;
use kube::api::Api;
use serde_json::Value;

use super::page::Truth;
use crate::cluster::tenant::Tenant;

/// How far logs of members may be apart where one is asked a moment after the other.
const MOMENT: i64 = 5;
const DAY: i64 = 24 * 60 * 60;
const YEAR: i64 = 366 * DAY;

/// A member as the cluster listed it while it could.
#[derive(Clone, Debug)]
pub struct Listed {
    id: u64,
    name: String,
    learns: bool,
}

/// The members that etcd lists.
pub async fn members(tenant: &Tenant) -> Result<Vec<Listed>> {
    let list = tenant.members().await?.into_iter();
    list.map(|member| {
        // One that has not started yet has no name, but the address of its pod.
        let url = member["peerURLs"][0].as_str().unwrap_or_default();
        let host = url.split("//").nth(1).unwrap_or_default();
        Ok(Listed {
            id: member["ID"].as_u64().context("a member without an ID")?,
            name: host.split('.').next().unwrap_or_default().to_owned(),
            learns: member["isLearner"].as_bool().unwrap_or_default(),
        })
    })
    .collect()
}

/// What one look finds.
#[derive(Debug, Default)]
pub struct Found {
    truth: Truth,
}

impl Found {
    fn exactly(&mut self, series: String, value: i64) {
        self.truth.insert(series, value..=value);
    }

    /// All of it, of the cluster of a tenant and of these members. A step that is under way began between these two times.
    pub async fn of_cluster(
        &mut self,
        tenant: &Tenant,
        members: &[Listed],
        times: [Timestamp; 2],
    ) -> Result<()> {
        let object = tenant.object().await?;
        let name = tenant.name();
        let of = |family: &str, labels: &str| format!("cluster_{family}{{cluster=\"{name}\"{labels}}}");
        self.exactly(of("members_desired", ""), i64::from(object.spec.size));
        let voters = members.iter().filter(|member| !member.learns).count();
        let pending = i64::from(object.spec.size) - i64::try_from(voters)?;
        self.exactly(of("members_pending", ""), pending.max(0));
        let endpoints = endpoints(tenant, members).await?;

        let healthy = health(tenant, &endpoints).await?;
        for (learns, role) in [(false, "voter"), (true, "learner")] {
            for (well, word) in [(true, "healthy"), (false, "unhealthy")] {
                let those = members.iter().filter(|member| member.learns == learns);
                let count = those
                    .filter(|member| healthy.get(&member.name).copied().unwrap_or_default() == well)
                    .count();
                if !learns || count > 0 {
                    let labels = format!(",role=\"{role}\",health=\"{word}\"");
                    self.exactly(of("members", &labels), i64::try_from(count)?);
                }
            }
        }

        let answers = statuses(tenant, &endpoints, members).await?;
        let leads = answers
            .values()
            .any(|status| status["leader"].as_u64().unwrap_or_default() != 0);
        self.exactly(of("has_leader", ""), i64::from(leads));
        let furthest = answers
            .values()
            .filter_map(|status| status["raftIndex"].as_i64())
            .max();
        for (member, status) in &answers {
            let number = |key: &str| {
                status[key]
                    .as_i64()
                    .with_context(|| format!("no {key} in {status}"))
            };
            let of = |family: &str| format!("member_{family}{{cluster=\"{name}\",member=\"{member}\"}}");
            self.exactly(of("database_bytes"), number("dbSize")?);
            self.exactly(of("database_in_use_bytes"), number("dbSizeInUse")?);
            let behind = furthest.unwrap_or_default() - number("raftIndex")?;
            self.truth
                .insert(of("raft_lag_entries"), (behind - MOMENT).max(0)..=behind + MOMENT);
        }
        let quotas = answers
            .values()
            .filter_map(|status| status["dbSizeQuota"].as_i64());
        if let Some(quota) = quotas.min() {
            self.exactly(of("database_quota_bytes", ""), quota);
        }
        let status = object.status.unwrap_or_default();
        self.of_status(&status, times, of);
        Ok(())
    }

    /// What nobody but the operator knows.
    fn of_status(
        &mut self,
        status: &EtcdClusterStatus,
        [since, now]: [Timestamp; 2],
        of: impl Fn(&str, &str) -> String,
    ) {
        for condition in status.conditions.iter().flatten() {
            let labels = format!(",type=\"{}\",status=\"{}\"", condition.type_, condition.status);
            self.exactly(of("condition", &labels), 1);
        }
        let mut blockers = BTreeMap::<&str, i64>::new();
        for blocker in status.plan.iter().flat_map(|plan| plan.blockers.iter().flatten()) {
            *blockers.entry(&blocker.reason).or_default() += 1;
        }
        for (reason, number) in blockers {
            self.exactly(of("blockers", &format!(",reason=\"{reason}\"")), number);
        }
        let id = status.cluster_id.as_deref().unwrap_or_default();
        let labels = format!(",version=\"{}\",cluster_id=\"{id}\"", status.current_version);
        self.exactly(of("info", &labels), 1);
        // No scenario of this file changes the template.
        self.exactly(of("members_outdated", ""), 0);
        if let Some(step) = step(status) {
            let series = of(
                "step_start_timestamp_seconds",
                &format!(",step=\"{}\"", step.kind),
            );
            self.truth.insert(series, since.as_second()..=now.as_second());
        }
    }

    /// The same of an EtcdBackup onto a volume.
    pub async fn of_backup(&mut self, tenant: &Tenant, name: &str, now: Timestamp) -> Result<()> {
        let stage = tenant.stage();
        let client = stage.cluster().client().await?;
        let backups = Api::<EtcdBackup>::namespaced(client, stage.namespace());
        let object = backups.get(name).await?;
        let cluster = object.spec.etcd_cluster.map(|cluster| cluster.name);
        let cluster = cluster.unwrap_or_default();
        let status = object.status.unwrap_or_default();
        let of = |family: &str| format!("backup_{family}{{backup=\"{name}\",cluster=\"{cluster}\"}}");
        let record = status.last_success.context("no record of it")?;
        let disk = stage.cluster().disk(stage.namespace(), "backups").await?;
        let stored = disk.read(&record.object)?.len();
        self.exactly(of("size_bytes"), i64::try_from(stored)?);
        // What the Job wrote, whatever the operator makes of it.
        let manifest: Value =
            serde_json::from_slice(&disk.read(&format!("{}.manifest.json", record.object))?)?;
        let time = |key: &str| -> Result<Timestamp> {
            let time = manifest[key].as_str();
            Ok(time
                .with_context(|| format!("a manifest without {key}"))?
                .parse()?)
        };
        let (started, completed) = (time("startedAt")?, time("completedAt")?);
        self.exactly(of("last_success_timestamp_seconds"), completed.as_second());
        let took = completed.duration_since(started).as_secs();
        // Both times may have lost parts of a second.
        self.truth
            .insert(of("duration_seconds"), (took - 1).max(0)..=took + 1);
        self.exactly(of("consecutive_failures"), 0);
        // Its next time is at most a year away.
        let now = now.as_second();
        self.truth
            .insert(of("deadline_timestamp_seconds"), now..=now + YEAR + DAY);
        Ok(())
    }

    /// All that was found.
    pub fn truth(self) -> Truth {
        self.truth
    }
}

/// The step that a status says is under way.
pub fn step(status: &EtcdClusterStatus) -> Option<&StepIntent> {
    status.plan.as_ref()?.step.as_ref()
}

/// The addresses of members by their names.
async fn endpoints(tenant: &Tenant, members: &[Listed]) -> Result<BTreeMap<String, String>> {
    let mut endpoints = BTreeMap::new();
    for member in members {
        let address = tenant.stage().address(&member.name).await?;
        endpoints.insert(format!("http://{address}:2379"), member.name.clone());
    }
    Ok(endpoints)
}

/// Whether each member takes part in what needs a leader.
async fn health(tenant: &Tenant, endpoints: &BTreeMap<String, String>) -> Result<BTreeMap<String, bool>> {
    let said = asked(tenant, endpoints, "health").await?;
    let each = said.as_array().context("no list of health")?.iter();
    Ok(each
        .filter_map(|one| {
            let name = endpoints.get(one["endpoint"].as_str()?)?;
            Some((name.clone(), one["health"].as_bool()?))
        })
        .collect())
}

/// What each member that answers says of itself.
async fn statuses(
    tenant: &Tenant,
    endpoints: &BTreeMap<String, String>,
    members: &[Listed],
) -> Result<BTreeMap<String, Value>> {
    let said = asked(tenant, endpoints, "status").await?;
    let each = said.as_array().cloned().unwrap_or_default().into_iter();
    Ok(each
        .filter_map(|one| {
            let id = one["Status"]["header"]["member_id"].as_u64()?;
            let member = members.iter().find(|member| member.id == id)?;
            Some((member.name.clone(), one["Status"].clone()))
        })
        .collect())
}

/// etcdctl prints what it knows of those who answer, and fails for the others.
async fn asked(tenant: &Tenant, endpoints: &BTreeMap<String, String>, what: &str) -> Result<Value> {
    let all: Vec<_> = endpoints.keys().map(String::as_str).collect();
    let words = ["endpoint", what, "--write-out=json"];
    let output = tenant.etcdctl_at(&all.join(","), &words).await?;
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&said).with_context(|| format!("endpoint {what}: {output:?}"))
}
