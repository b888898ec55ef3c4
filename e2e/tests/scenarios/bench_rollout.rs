//! For how long clients cannot write while the members of a cluster restart, and how long each member takes: a rollout by
//! the operator, next to the same pods deleted by hand and to `kubectl rollout restart` of a StatefulSet with the same etcd.
#![allow(clippy::print_stdout, reason = "what is measured is for people to read")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_api::names::ANNOTATION_RESTART;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage, is_ready};
use etcd_operator_e2e::workload::Workload;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::bench::{bare, median, ready, told};
use crate::cluster::tenant::{SOON, Tenant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate("bench", "rollout_of_a_restart", Bed::Alone, |stage| {
        Box::pin(restarted(stage))
    })
    .bench()
    .long(),
    Scenario::gate("bench", "rollout_of_a_minor_version", Bed::Alone, |stage| {
        Box::pin(upgraded(stage))
    })
    .bench()
    .long(),
];

const SIZE: u8 = 3;
const MEMBERS: u32 = 3;
/// The longest time in which clients may be unable to write.
const GAP_BUDGET: Duration = Duration::from_secs(1);
/// How often pods are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How many times as long as by hand a member may be away.
const RATIO_BUDGET: f64 = 1.5;

/// Where clients reach a cluster.
struct Endpoints {
    /// The names of its pods.
    pods: Vec<String>,
    /// One of each member. A client that has them all retries at another member.
    members: Vec<String>,
    /// The one of all ready members. A client that has only this one retries on the connection that it has.
    service: String,
}

impl Endpoints {
    /// Those of the pods of a StatefulSet, whose Service for clients is at this endpoint.
    async fn of(tenant: &Tenant, set: &str, service: String) -> Result<Self> {
        let pods: Vec<_> = (0..SIZE).map(|ordinal| format!("{set}-{ordinal}")).collect();
        let mut members = Vec::new();
        for pod in &pods {
            let selector = json!({"statefulset.kubernetes.io/pod-name": pod});
            members.push(tenant.service(&format!("only-{pod}"), &selector).await?);
        }
        Ok(Self {
            pods,
            members,
            service,
        })
    }

    /// Waits until each of them answers.
    async fn answer(&self, tenant: &Tenant) -> Result<()> {
        for endpoint in self.members.iter().chain([&self.service]) {
            until(&format!("{endpoint} answers"), SOON, || async {
                let output = tenant.etcdctl_at(endpoint, &["get", "anything"]).await?;
                Ok(output.status.success().then_some(()))
            })
            .await?;
        }
        Ok(())
    }
}

/// A change of all members, as clients and its user saw it.
#[derive(Debug)]
struct Run {
    /// From the request until the last member was ready.
    time: Duration,
    /// How long a member was away: from when its pod had to go until its next one was ready.
    away: Duration,
    /// The longest time without a write of a client that has the endpoints of all members.
    gap: Duration,
    /// The same of a client that has the endpoint of the Service.
    service_gap: Duration,
}

/// Changes the members while clients write. The name is of no other change of the same cluster.
async fn measure(
    tenant: &Tenant,
    endpoints: &Endpoints,
    name: &str,
    change: impl Future<Output = Result<()>>,
) -> Result<Run> {
    endpoints.answer(tenant).await?;
    let by_members = start_writer(tenant, &endpoints.members, &format!("{name}-members")).await?;
    let service = std::slice::from_ref(&endpoints.service);
    let by_service = start_writer(tenant, service, &format!("{name}-service")).await?;
    let from = Instant::now();
    let away = time_away(tenant, &endpoints.pods, change).await?;
    let run = Run {
        time: from.elapsed(),
        away: away / MEMBERS,
        gap: longest_gap(tenant, by_members).await?,
        service_gap: longest_gap(tenant, by_service).await?,
    };
    tenant.note(&format!("{name}: {run:?}"));
    Ok(run)
}

/// Makes a change; returns for how long members were away meanwhile, all together.
async fn time_away(
    tenant: &Tenant,
    names: &[String],
    change: impl Future<Output = Result<()>>,
) -> Result<Duration> {
    let pods = tenant.stage().pods().await?;
    let mut serving = BTreeMap::new();
    let mut left = BTreeMap::new();
    let mut away = Duration::ZERO;
    let mut change = pin!(change);
    let mut looks = tokio::time::interval(LOOK);
    let mut is_over = false;
    while !is_over {
        tokio::select! {
            done = &mut change => {
                done?;
                is_over = true;
            }
            _ = looks.tick() => {}
        }
        for name in names {
            let pod = pods.get_opt(name).await?;
            let (uid, stays) = pod.map_or((None, false), |pod| {
                let stays = pod.metadata.deletion_timestamp.is_none();
                (pod.metadata.uid.clone().filter(|_| is_ready(&pod)), stays)
            });
            let Some(uid) = uid.filter(|_| stays) else {
                left.entry(name).or_insert_with(Instant::now);
                continue;
            };
            if serving
                .insert(name, uid.clone())
                .is_some_and(|before| before != uid)
            {
                away += left.remove(name).map_or(Duration::ZERO, |since| since.elapsed());
            }
            left.remove(name);
        }
    }
    Ok(away)
}

/// Starts a client, and waits until it writes.
async fn start_writer(tenant: &Tenant, endpoints: &[String], name: &str) -> Result<Workload> {
    let stage = tenant.stage();
    let file = format!("writes-in-{}-{name}.log", stage.namespace());
    let history = stage.cluster().control_plane().directory().join(file);
    let node = &stage.cluster().nodes()[0];
    let writer = Workload::start_hasty_writer(node, endpoints, &format!("{name}/"), history).await?;
    writer.flows().await?;
    Ok(writer)
}

/// Ends a client, whose acknowledged writes must all be there.
async fn longest_gap(tenant: &Tenant, writer: Workload) -> Result<Duration> {
    writer.flows().await?;
    let tally = writer.stop().await?;
    tenant.note(&tally.to_string());
    Ok(Duration::from_millis(tally.longest_gap))
}

fn is_rolled_out(status: &EtcdClusterStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions
        .any(|condition| condition.type_ == ConditionType::RolledOut.as_str() && condition.status == "True")
}

/// Sets the annotation, and waits until the operator has restarted every member.
async fn restart_by_operator(tenant: &Tenant, request: &str) -> Result<()> {
    let spec_hash = |status: &EtcdClusterStatus| status.rollout.as_ref().map(|rollout| rollout.hash.clone());
    let before = spec_hash(&tenant.status().await?);
    let annotation = format!("{ANNOTATION_RESTART}={request}");
    tenant
        .kubectl(&["annotate", "etcd/c", "--overwrite", &annotation])
        .await?;
    tenant
        .says("every member has restarted", |status| {
            spec_hash(status) != before && is_rolled_out(status)
        })
        .await?;
    Ok(())
}

/// Deletes one pod after the other, each when the one before is ready again.
async fn restart_by_hand(tenant: &Tenant) -> Result<()> {
    let stage = tenant.stage();
    let pods = stage.pods().await?;
    for pod in (0..usize::from(SIZE)).map(|ordinal| tenant.pod(ordinal)) {
        let uid = pods.get(&pod).await?.metadata.uid;
        pods.delete(&pod, &DeleteParams::default()).await?;
        let what = format!("the next pod {pod} is ready");
        stage
            .pod(&pod, &what, SOON, |pod| {
                pod.is_some_and(|pod| pod.metadata.uid != uid && is_ready(pod))
            })
            .await?;
    }
    Ok(())
}

/// Restarts the StatefulSet as its user does.
async fn restart_bare(tenant: &Tenant) -> Result<()> {
    tenant
        .kubectl(&["rollout", "restart", "statefulset/bare"])
        .await?;
    tenant
        .kubectl(&["rollout", "status", "statefulset/bare", "--timeout=5m"])
        .await?;
    Ok(())
}

/// Starts a StatefulSet without an operator whose members have the flags of the operator's.
async fn start_bare(tenant: &Tenant) -> Result<Endpoints> {
    let path = ".spec.containers[?(@.name==\"etcd\")].command";
    let command = tenant.field(&format!("pod/{}", tenant.pod(0)), path).await?;
    let command: Vec<String> = serde_json::from_str(&command)?;
    // The guard's own words, `--`, the program, its flags.
    let guarded = command.iter().skip_while(|word| *word != "--").skip(2);
    let [service, mut set] = bare(tenant.stage().namespace(), usize::from(SIZE));
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    let own = set["spec"]["template"]["spec"]["containers"][0]["command"]
        .as_array_mut()
        .context("a command")?;
    let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
    let named: Vec<String> = own.iter().filter_map(Value::as_str).map(name).collect();
    let missing = guarded.filter(|flag| !named.contains(&name(flag)));
    own.extend(missing.map(|flag| json!(flag)));
    for object in [service, set] {
        tenant.stage().cluster().apply(&object).await?;
    }
    ready(tenant.stage(), "app=bare", usize::from(SIZE)).await?;
    let service = tenant.service("bare-client", &json!({"app": "bare"})).await?;
    Endpoints::of(tenant, "bare", service).await
}

async fn restarted(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, SIZE).await?;
    let endpoints = Endpoints::of(&tenant, tenant.name(), tenant.endpoint().await?).await?;
    let bare_endpoints = start_bare(&tenant).await?;
    let (mut by_operator, mut by_hand, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..stage.runs() {
        let request = format!("operator-{run}");
        let change = restart_by_operator(&tenant, &request);
        by_operator.push(Box::pin(measure(&tenant, &endpoints, &request, change)).await?);
        tenant.converged(SIZE).await?;
        let change = restart_by_hand(&tenant);
        by_hand.push(Box::pin(measure(&tenant, &endpoints, &format!("hand-{run}"), change)).await?);
        tenant.converged(SIZE).await?;
        let change = restart_bare(&tenant);
        bare.push(Box::pin(measure(&tenant, &bare_endpoints, &format!("bare-{run}"), change)).await?);
    }
    println!("restart of three members, a Put every 20 ms with a timeout of 200 ms:");
    let (gap, away) = print("by the operator", &by_operator);
    let (_, away_by_hand) = print("pods deleted and awaited by hand", &by_hand);
    print("kubectl rollout restart of a bare StatefulSet", &bare);
    let ratio = away.as_secs_f64() / away_by_hand.as_secs_f64();
    println!("  a member is away {ratio:.2} times as long as by hand (budget {RATIO_BUDGET})");
    judge_gap(gap)?;
    ensure!(
        ratio <= RATIO_BUDGET,
        "a member is away {ratio:.2} times as long as by hand"
    );
    Ok(())
}

async fn upgraded(stage: Arc<Stage>) -> Result<()> {
    let older = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_5_35).await?;
    let newer = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    let mut runs = Vec::new();
    for run in 0..stage.runs() {
        older.apply(&older.spec(SIZE)).await?;
        older.converged(SIZE).await?;
        let endpoints = Endpoints::of(&older, older.name(), older.endpoint().await?).await?;
        let change = async {
            newer.apply(&newer.spec(SIZE)).await?;
            newer
                .says("every member runs the newer version", |status| {
                    is_rolled_out(status) && status.current_version == EtcdVersion::V3_6_16.number()
                })
                .await?;
            Ok(())
        };
        runs.push(Box::pin(measure(&newer, &endpoints, &format!("upgrade-{run}"), change)).await?);
        newer.delete().await?;
        newer.kubectl(&["delete", "pvc", "--all"]).await?;
    }
    println!("3.5.35 to 3.6.16 on three members, a Put every 20 ms with a timeout of 200 ms:");
    let (gap, _) = print("by the operator", &runs);
    judge_gap(gap)
}

/// Prints what was measured; returns the median of the gap, and of the time that a member is away.
fn print(way: &str, runs: &[Run]) -> (Duration, Duration) {
    let all = |figure: fn(&Run) -> Duration| -> Vec<Duration> { runs.iter().map(figure).collect() };
    let line = |what: &str, all: Vec<Duration>| {
        let each = told(&all);
        let median = median(all);
        println!("    {what}: {:.2} s ({each})", median.as_secs_f64());
        median
    };
    println!("  {way}:");
    let gap = line(
        "largest write gap with the endpoints of all members",
        all(|run| run.gap),
    );
    line(
        "largest write gap through the Service",
        all(|run| run.service_gap),
    );
    let away = line("time that a member is away", all(|run| run.away));
    line("time until all have restarted", all(|run| run.time));
    (gap, away)
}

fn judge_gap(gap: Duration) -> Result<()> {
    ensure!(
        gap <= GAP_BUDGET,
        "clients cannot write for {:.2} s, at most {} s is promised",
        gap.as_secs_f64(),
        GAP_BUDGET.as_secs()
    );
    Ok(())
}
