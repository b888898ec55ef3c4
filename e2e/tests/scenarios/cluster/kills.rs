//! The operator is killed right after each of its writes that differs from those it was killed after before. The writes are
//! those in the audit log of the API server. A change of etcd is not in there, but the Event that follows it.
#![allow(
    clippy::print_stdout,
    reason = "at which calls it was killed is for people to read"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::control_plane::{AuditEntry, AuditFilter, AuditMark};
use serde_json::Value;
use tokio::time::{interval, timeout};

use super::control::{kill_managers, managers};
use super::tenant::Tenant;

/// At how many distinct calls it has to be killed.
const MIN_CALLS: usize = 20;
/// How often the audit log is read: some calls follow one another within 20 ms.
const LOOK: Duration = Duration::from_millis(5);
/// After how many of these looks the status is read.
const LOOKS_PER_STATUS: u32 = 100;
/// Each kill costs the time until the lease has expired.
const PATIENCE: Duration = Duration::from_mins(25);
/// How the operator names itself to the API server, up to its version.
const OPERATOR: &str = "etcd-operator/";
/// Who makes the pods of members.
const STATEFUL_SET_CONTROLLER: &str = "system:serviceaccount:kube-system:statefulset-controller";
/// The reasons of Events about changes that were made in etcd.
const ETCD_CHANGES: [&str; 7] = [
    "AlarmDisarmed",
    "DowngradeCanceled",
    "DowngradeEnabled",
    "LeaderMoved",
    "MemberAdded",
    "MemberPromoted",
    "MemberRemoved",
];

/// A write, without what differs each time it is repeated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    /// What is done, to which resource, for what.
    action: String,
    /// The version of etcd that is rolled out meanwhile.
    version: String,
    /// The member that it is about, where it is about one.
    member: Option<String>,
}

impl Call {
    /// Which one this is during a rollout as it was known before.
    fn of(entry: &AuditEntry, rollout: &KnownRollout) -> Self {
        let object = entry.object_ref.clone().unwrap_or_default();
        let resource = match object.subresource.as_str() {
            "" => object.resource.clone(),
            subresource => format!("{}/{subresource}", object.resource),
        };
        let body = &entry.request_object;
        let purpose = match resource.as_str() {
            _ if entry.request_uri.contains("dryRun=") => "dry run".to_owned(),
            "etcdclusters/status" => status_purpose(&body["status"]),
            "events" if entry.verb == "create" => event_purpose(body),
            "events" => "it has happened again".to_owned(),
            "pods" => metadata_keys(&body["metadata"]),
            "pods/eviction" => "restart".to_owned(),
            "statefulsets" if body["spec"]["template"] == rollout.template => {
                "records about members".to_owned()
            }
            "statefulsets" => "another pod template".to_owned(),
            _ => String::new(),
        };
        let member = match object.resource.as_str() {
            "pods" => Some(object.name),
            _ => rollout.current.clone(),
        };
        Self {
            action: format!("{} {resource}: {purpose}", entry.verb),
            version: rollout.version.clone(),
            member,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [etcd {}", self.action, self.version)?;
        match &self.member {
            Some(member) => write!(f, ", {member}]"),
            None => write!(f, "]"),
        }
    }
}

/// What a merge patch of the status tells. What the operator goes by after a crash comes first.
fn status_purpose(status: &Value) -> String {
    let rollout = status["rollout"].as_object();
    let change = rollout.and_then(|rollout| {
        let current = rollout.get("current");
        let has = |field: &str| rollout.contains_key(field);
        Some(match current {
            Some(Value::Null) => "the member has restarted",
            Some(current) if current.get("name").is_some() => "a member is about to be restarted",
            Some(_) => "the pod of the member has left",
            None if has("target") || has("hash") => "another change is rolled out",
            None if has("reversible") => "whether the way back is open",
            None if has("backupRequestedAt") => "a backup is about to be requested",
            None => return None,
        })
    });
    let has = |field: &str| !status[field].is_null();
    let reported = || match () {
        () if has("currentVersion") => "the lowest version",
        () if has("targetVersion") => "the version on the way",
        () if has("memberStatus") => "the members",
        () if has("plan") => "the plan",
        () => "conditions",
    };
    change.unwrap_or_else(reported).to_owned()
}

/// The reason of an Event.
fn event_purpose(event: &Value) -> String {
    let reason = event["reason"].as_str().unwrap_or_default();
    let origin = if ETCD_CHANGES.contains(&reason) {
        ", after the call of etcd"
    } else {
        ""
    };
    format!("{reason}{origin}")
}

/// Which labels and annotations are set.
fn metadata_keys(metadata: &Value) -> String {
    let fields = ["labels", "annotations"].into_iter();
    let keys = fields.flat_map(|field| metadata[field].as_object().into_iter().flatten());
    let names: BTreeSet<&str> = keys.filter_map(|(key, _)| key.rsplit('/').next()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// What the operator has written about a rollout so far.
#[derive(Debug)]
struct KnownRollout {
    /// The version of etcd that goes with it.
    version: String,
    /// The member that is being restarted.
    current: Option<String>,
    /// The pod template of the StatefulSet.
    template: Value,
}

impl KnownRollout {
    /// Which call it is, and what is known after it.
    fn follow(&mut self, entry: &AuditEntry) -> Call {
        let written = &entry.request_object["status"]["rollout"];
        if let Some(target) = written["target"].as_str() {
            target.clone_into(&mut self.version);
        }
        if let Some(name) = written["current"]["name"].as_str() {
            self.current = Some(name.to_owned());
        }
        let call = Call::of(entry, self);
        if written.get("current").is_some_and(Value::is_null) {
            self.current = None;
        }
        if let template @ Value::Object(_) = &entry.request_object["spec"]["template"] {
            self.template = template.clone();
        }
        call
    }
}

/// One death of the operator.
#[derive(Debug)]
struct Kill {
    at: Call,
    /// What it still sent before it was dead.
    also_sent: Vec<Call>,
    /// What the next operator began with.
    next: Option<Call>,
}

/// Kills the operator while something is rolled out.
pub struct Kills<'a> {
    tenant: &'a Tenant,
    /// For how many members one call counts.
    members_per_call: usize,
    killed_at: BTreeSet<Call>,
    list: Vec<Kill>,
    begin: AuditMark,
    known: KnownRollout,
}

impl<'a> Kills<'a> {
    /// From now on. Each call for one version of etcd counts for so many members: it is killed at the same call again where that
    /// is about another one.
    pub fn new(tenant: &'a Tenant, members_per_call: usize) -> Self {
        Self {
            tenant,
            members_per_call,
            killed_at: BTreeSet::new(),
            list: Vec::new(),
            begin: tenant.stage().cluster().control_plane().audit_mark(),
            known: KnownRollout {
                version: tenant.version().number().to_owned(),
                current: None,
                template: Value::Null,
            },
        }
    }

    /// Kills the operator at each call that it has not been killed at before, until the status is as wanted. `since` is where
    /// in the audit log that begins.
    pub async fn until_status(
        &mut self,
        since: AuditMark,
        wanted: impl Fn(&EtcdClusterStatus) -> bool,
    ) -> Result<()> {
        timeout(PATIENCE, self.kill_until(since, wanted))
            .await
            .context("the operator does not come to an end between its deaths")?
    }

    async fn kill_until(
        &mut self,
        mut since: AuditMark,
        wanted: impl Fn(&EtcdClusterStatus) -> bool,
    ) -> Result<()> {
        let mut running = managers(self.tenant).await?;
        let mut read = 0;
        let mut looks = interval(LOOK);
        for look in 1_u32.. {
            looks.tick().await;
            let entries = self.writes(since)?;
            let mut found = None;
            while let Some(entry) = entries.get(read) {
                read += 1;
                let call = self.known.follow(entry);
                if let Some(kill) = self.list.last_mut().filter(|kill| kill.next.is_none()) {
                    kill.next = Some(call.clone());
                }
                if self.is_new(&call) {
                    found = Some(call);
                    break;
                }
            }
            let Some(call) = found else {
                if look % LOOKS_PER_STATUS == 0 && self.is_over(&wanted).await? {
                    return Ok(());
                }
                continue;
            };
            let dead = kill_managers(self.tenant, running).await?;
            // A new process does not lead before it has seen the lease unchanged for ten seconds.
            let also_sent: Vec<Call> = self.writes(since)?[read..]
                .iter()
                .map(|entry| self.known.follow(entry))
                .collect();
            since = self.mark();
            read = 0;
            running = managers(self.tenant).await?;
            if dead > 0 {
                self.tenant.note(&format!("the operator was killed at {call}"));
                self.killed_at.insert(call.clone());
                self.list.push(Kill {
                    at: call,
                    also_sent,
                    next: None,
                });
            }
        }
        Ok(())
    }

    /// Where the audit log ends.
    pub fn mark(&self) -> AuditMark {
        self.tenant.stage().cluster().control_plane().audit_mark()
    }

    /// What the operator has written in the namespace of the cluster.
    fn writes(&self, since: AuditMark) -> Result<Vec<AuditEntry>> {
        let stage = self.tenant.stage();
        let filter = AuditFilter::new()
            .since(since)
            .user_agent(OPERATOR)
            .writes()
            .namespace(stage.namespace());
        stage.cluster().control_plane().audit(&filter)
    }

    /// Whether the operator is to be killed at this call.
    fn is_new(&self, call: &Call) -> bool {
        let same = |at: &&Call| at.action == call.action && at.version == call.version;
        !self.killed_at.contains(call) && self.killed_at.iter().filter(same).count() < self.members_per_call
    }

    async fn is_over(&self, wanted: impl Fn(&EtcdClusterStatus) -> bool) -> Result<bool> {
        let cluster = self.tenant.object().await?;
        let status = cluster.status.unwrap_or_default();
        Ok(status.observed_generation == cluster.metadata.generation && wanted(&status))
    }

    /// Prints at which calls the operator was killed and what came next; an error if those were too few, or if another number
    /// of pods was made for the members meanwhile.
    pub fn judge(self, pods: usize) -> Result<()> {
        let actions: BTreeSet<&str> = self.list.iter().map(|kill| &*kill.at.action).collect();
        let mut lines = vec![format!(
            "the operator was killed {} times, at {} different calls:",
            self.list.len(),
            actions.len()
        )];
        let mut counts = BTreeMap::<&str, usize>::new();
        for (kill, number) in self.list.iter().zip(1..) {
            let count = counts.entry(&kill.at.action).or_default();
            *count += 1;
            lines.push(format!("{number}. {}, number {count} of this call", kill.at));
            let sent = kill.also_sent.iter();
            lines.extend(sent.map(|call| format!("     before it was dead: {call}")));
            lines.push(match &kill.next {
                Some(next) => format!("     the next operator began with: {next}"),
                None => "     the next operator had nothing to write".to_owned(),
            });
        }
        let report = lines.join("\n");
        println!("{report}");
        self.tenant.note(&report);
        ensure!(
            self.killed_at.len() >= MIN_CALLS,
            "the operator was killed at {} calls only",
            self.killed_at.len()
        );
        let made = AuditFilter::new()
            .since(self.begin)
            .user(STATEFUL_SET_CONTROLLER)
            .verb("create")
            .resource("pods")
            .namespace(self.tenant.stage().namespace());
        let made = self.tenant.stage().cluster().control_plane().audit(&made)?;
        let is_made = |entry: &&AuditEntry| entry.response_status.as_ref().is_some_and(|it| it.code == 201);
        let made: Vec<_> = made.iter().filter(is_made).collect();
        ensure!(
            made.len() == pods,
            "members were restarted {} times instead of {pods}",
            made.len()
        );
        Ok(())
    }
}
