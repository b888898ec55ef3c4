//! What an installation of a thousand clusters costs the operator: the binary as it is shipped, a real API server with all
//! objects in it, and models of what Kubernetes and etcd do with them.
#![allow(clippy::print_stdout, reason = "what is measured is for people to read")]

mod kubernetes;
mod members;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_api::{EtcdBackup, EtcdCluster, crd};
use etcd_operator_e2e::Operator;
use etcd_operator_e2e::control_plane::{ControlPlane, Options};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::operator;
use etcd_operator_e2e::process::Sent;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_runtime::clock::{Clock as _, SystemClock};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, tz::TimeZone};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::bench::{median, told};
use crate::cluster::tenant::is_converged;
use crate::crowd::{IMAGE, NAME, reconciles, writes};
use kubernetes::Kubernetes;
use members::{Members, VERSION};

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate("bench", "a_thousand_clusters", Bed::Without, |stage| {
        Box::pin(measured(stage))
    })
    .bench()
    .long(),
];

const CLUSTERS: u16 = 1000;
const SIZE: u8 = 3;
/// All of them are due at the same minute.
const BACKUPS: u16 = 5000;
/// Of so many clusters no member answers.
const SILENT: u16 = 400;
/// How many changes are timed.
const CHANGES: u16 = 20;

/// What is promised of it.
const WARM_BUDGET: Duration = Duration::from_mins(1);
const MEMORY_BUDGET: u64 = 200 << 20;
/// In hundredths of a core.
const IDLE_BUDGET: f64 = 5.0;
/// How long a changed cluster may wait at most while the members of others say nothing.
const CHANGE_BUDGET: Duration = Duration::from_secs(10);

/// All clusters are made, or all backups stored.
const LONG: Duration = Duration::from_mins(40);
const SOON: Duration = Duration::from_mins(2);
/// A round in which each cluster is looked at.
const IDLE: Duration = Duration::from_mins(1);
/// After this time the operator asks members that say nothing as seldom as it ever will.
const BACKED_OFF: Duration = Duration::from_mins(3);
/// The schedules of all backups are changed in this time.
const SCHEDULING: SignedDuration = SignedDuration::from_mins(4);
/// No backup falls due until its schedule is changed.
const NEVER: &str = "0 3 29 2 *";
const NAMESPACE: &str = "crowd";
/// How many requests are on their way at once.
const HANDS: usize = 16;

/// What was measured, and what of it is beyond its budget: the run goes on, as one figure tells nothing of the next.
struct Findings {
    stage: Arc<Stage>,
    over: Mutex<Vec<String>>,
}

impl Findings {
    fn say(&self, text: &str) {
        self.stage.note(text);
        println!("{text}");
    }

    fn within(&self, what: &str, is_within: bool) {
        if !is_within {
            let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            over.push(what.to_owned());
        }
    }

    fn verdict(self) -> Result<()> {
        let over = self.over.into_inner().unwrap_or_else(PoisonError::into_inner);
        ensure!(over.is_empty(), "over budget: {}", over.join(", "));
        Ok(())
    }
}

/// The API server with all objects, and the models that act on them.
struct Crowd {
    /// The operator as it is shipped.
    program: PathBuf,
    bed: ControlPlane,
    client: Client,
    namespace: String,
    members: Arc<Members>,
    /// The models.
    tasks: JoinSet<Result<()>>,
}

impl Crowd {
    async fn gather() -> Result<Self> {
        let program = operator::released().await?;
        let bed = ControlPlane::start(Options::default()).await?;
        let documents: Result<Vec<_>, _> = crd::all().iter().map(serde_json::to_string).collect();
        bed.apply_crds(&documents?.join("\n---\n")).await?;
        let namespace = bed.namespace(NAMESPACE).await?;
        let client = bed.client().await?;
        let members = Arc::new(Members::default());
        let mut tasks = JoinSet::new();
        members.listen(&mut tasks).await?;
        Kubernetes::start(client.clone(), &namespace, Arc::clone(&members), &mut tasks).await?;
        Ok(Self {
            program,
            bed,
            client,
            namespace,
            members,
            tasks,
        })
    }

    fn clusters(&self) -> Api<EtcdCluster> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn backups(&self) -> Api<EtcdBackup> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// An error of the models, if one has ended.
    fn check(&mut self) -> Result<()> {
        match self.tasks.try_join_next() {
            None => Ok(()),
            Some(ended) => ended?.context("a model ended"),
        }
    }

    async fn create_clusters(&self) -> Result<()> {
        let clusters = self.clusters();
        in_parallel(CLUSTERS, |n| {
            let clusters = clusters.clone();
            async move {
                let spec = json!({
                    "size": SIZE, "version": VERSION.number(),
                    "storage": {"size": "1Gi"},
                });
                let cluster = EtcdCluster::new(&cluster(n), serde_json::from_value(spec)?);
                clusters.create(&PostParams::default(), &cluster).await?;
                Ok(())
            }
        })
        .await
    }

    async fn create_backups(&self) -> Result<()> {
        let backups = self.backups();
        in_parallel(BACKUPS, |n| {
            let backups = backups.clone();
            async move {
                let spec = json!({
                    "etcdCluster": {"name": cluster(n % CLUSTERS)}, "storageType": "S3", "schedule": NEVER,
                    "s3": {"path": format!("bucket/{n}"), "awsSecret": "aws", "region": "eu-central-1"},
                });
                let backup = EtcdBackup::new(&backup(n), serde_json::from_value(spec)?);
                backups.create(&PostParams::default(), &backup).await?;
                Ok(())
            }
        })
        .await
    }

    /// Waits until every cluster serves.
    async fn until_all_serve(&mut self) -> Result<()> {
        let clusters = self.clusters();
        let from = Instant::now();
        loop {
            self.check()?;
            let all = clusters.list(&ListParams::default()).await?.items;
            let serving = all.iter().filter(|cluster| serves(cluster)).count();
            if serving == usize::from(CLUSTERS) {
                return Ok(());
            }
            ensure!(from.elapsed() < LONG, "{serving} of {CLUSTERS} clusters serve");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn count_stored(&self) -> Result<usize> {
        let all = self.backups().list(&ListParams::default()).await?.items;
        let is_stored = |backup: &&EtcdBackup| {
            let status = backup.status.as_ref();
            status.is_some_and(|status| status.last_success.is_some())
        };
        Ok(all.iter().filter(is_stored).count())
    }

    /// Changes what no pod depends on; the generation is returned.
    async fn change(&self, name: &str, seconds: u32) -> Result<Option<i64>> {
        let patch = Patch::Merge(json!({"spec": {"updates": {"progressDeadlineSeconds": seconds}}}));
        let changed = self
            .clusters()
            .patch(name, &PatchParams::default(), &patch)
            .await?;
        Ok(changed.metadata.generation)
    }

    /// Changes one cluster after the other; how long it takes until the status of each says so.
    async fn time_changes(&self, seconds: u32) -> Result<Vec<Duration>> {
        let clusters = self.clusters();
        let mut all = Vec::new();
        for n in (CLUSTERS - CHANGES)..CLUSTERS {
            let name = cluster(n);
            let from = Instant::now();
            let generation = self.change(&name, seconds).await?;
            until(&format!("{name} is reconciled"), SOON, || async {
                let now = clusters.get(&name).await?;
                let observed = now.status.and_then(|status| status.observed_generation);
                Ok((observed >= generation).then_some(()))
            })
            .await?;
            all.push(from.elapsed());
        }
        Ok(all)
    }
}

fn cluster(n: u16) -> String {
    format!("c{n}")
}

fn backup(n: u16) -> String {
    format!("b{n}")
}

fn serves(cluster: &EtcdCluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(|status| {
        status.observed_generation == cluster.metadata.generation && is_converged(status, "3/3", SIZE)
    })
}

async fn in_parallel<F: Future<Output = Result<()>>>(count: u16, each: impl Fn(u16) -> F) -> Result<()> {
    let all = stream::iter(0..count).map(each).buffer_unordered(HANDS);
    all.try_for_each(|()| async { Ok(()) }).await
}

fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}

/// Processor time over a time, in hundredths of a core.
fn share(processor: Duration, time: Duration) -> f64 {
    100.0 * processor.as_secs_f64() / time.as_secs_f64()
}

fn start_operator(crowd: &Crowd) -> Result<Operator> {
    let flags = ["--operator-image", IMAGE, "--watch-nodes"];
    Operator::start_program(&crowd.program, &crowd.bed, NAME, &crowd.namespace, &flags)
}

async fn measured(stage: Arc<Stage>) -> Result<()> {
    let findings = Findings {
        stage,
        over: Mutex::default(),
    };
    let mut crowd = Crowd::gather().await?;
    let mut operator = start_operator(&crowd)?;
    operator.until_ready(|code, _| code == 200).await?;
    let from = Instant::now();
    crowd.create_clusters().await?;
    crowd
        .until_all_serve()
        .await
        .with_context(|| last_lines(&operator))?;
    findings.say(&format!(
        "{CLUSTERS} clusters of {SIZE} members from nothing: {:.0} s, {:.1} s of processor time, at most {} MiB resident",
        from.elapsed().as_secs_f64(),
        operator.processor_time()?.as_secs_f64(),
        mebibytes(operator.most_resident()?),
    ));
    crowd.create_backups().await?;
    operator.send(Sent::Terminate)?;
    ensure!(operator.ended(SOON).await?.success(), "it did not end in order");

    let operator = warm(&mut crowd, &findings).await?;
    idle(&mut crowd, &operator, &findings).await?;
    let alone = crowd.time_changes(700).await?;
    findings.say(&format!("a changed cluster: {}", summary(&alone)));
    silence(&mut crowd, &operator, &findings).await?;
    due(&mut crowd, &operator, &findings).await?;
    findings.verdict()
}

/// Starts the operator where all objects are, and each cluster has changed meanwhile, until the status of each says so.
async fn warm(crowd: &mut Crowd, findings: &Findings) -> Result<Operator> {
    let changed = &*crowd;
    in_parallel(CLUSTERS, |n| async move {
        changed.change(&cluster(n), 650).await.map(drop)
    })
    .await?;
    let from = Instant::now();
    let mut operator = start_operator(crowd)?;
    operator.until_ready(|code, _| code == 200).await?;
    let ready = from.elapsed();
    until("each cluster is reconciled", SOON, || async {
        // Lists of all clusters are work for the API server, too.
        if reconciles(&operator).await? < u64::from(CLUSTERS) {
            return Ok(None);
        }
        let all = crowd.clusters().list(&ListParams::default()).await?.items;
        Ok(all.iter().all(serves).then_some(()))
    })
    .await?;
    crowd.check()?;
    let time = from.elapsed();
    findings.say(&format!(
        "started where all of them have changed: ready after {:.1} s, each cluster reconciled after {:.1} s",
        ready.as_secs_f64(),
        time.as_secs_f64()
    ));
    findings.within("the start", time <= WARM_BUDGET);
    Ok(operator)
}

async fn idle(crowd: &mut Crowd, operator: &Operator, findings: &Findings) -> Result<()> {
    until("the operator writes nothing more", LONG, || async {
        let mark = crowd.bed.audit_mark();
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(writes(&crowd.bed, mark)?.is_empty().then_some(()))
    })
    .await?;
    let (mark, before) = (crowd.bed.audit_mark(), operator.processor_time()?);
    let earlier = reconciles(operator).await?;
    tokio::time::sleep(IDLE).await;
    let used = share(operator.processor_time()?.saturating_sub(before), IDLE);
    let writes = writes(&crowd.bed, mark)?.len();
    let resident = operator.most_resident()?;
    let looked_at = reconciles(operator).await? - earlier;
    crowd.check()?;
    findings.say(&format!(
        "at rest: {used:.1} % of a core, {looked_at} reconciles of clusters in {} s, {writes} writes, at most {} MiB resident",
        IDLE.as_secs(),
        mebibytes(resident),
    ));
    // One that hangs uses nothing, either.
    ensure!(
        looked_at * 100 >= u64::from(CLUSTERS) * 95,
        "only {looked_at} looks at {CLUSTERS} clusters"
    );
    findings.within("writes at rest", writes == 0);
    findings.within("the processor at rest", used <= IDLE_BUDGET);
    findings.within("memory", resident <= MEMORY_BUDGET);
    Ok(())
}

async fn silence(crowd: &mut Crowd, operator: &Operator, findings: &Findings) -> Result<()> {
    crowd.members.silence(SILENT);
    let first = crowd.time_changes(710).await?;
    let silent: BTreeSet<_> = (0..SILENT).map(cluster).collect();
    let clusters = crowd.clusters();
    until(
        "all silent clusters are told as such, and no other",
        LONG,
        || async {
            let all = clusters.list(&ListParams::default()).await?.items;
            let told = all.iter().filter(|cluster| !serves(cluster));
            let told: BTreeSet<_> = told.filter_map(|cluster| cluster.metadata.name.clone()).collect();
            Ok((told == silent).then_some(()))
        },
    )
    .await?;
    tokio::time::sleep(BACKED_OFF).await;
    let before = operator.processor_time()?;
    let from = Instant::now();
    let later = crowd.time_changes(720).await?;
    let used = share(operator.processor_time()?.saturating_sub(before), from.elapsed());
    findings.say(&format!(
        "a changed cluster beside {SILENT} silent ones: {} from their first second on, {} after {} s ({used:.1} % of a core)",
        summary(&first),
        summary(&later),
        BACKED_OFF.as_secs()
    ));
    crowd.members.silence(0);
    crowd.until_all_serve().await?;
    let longest = longest(&first).max(longest(&later));
    findings.within("a change beside silent clusters", longest <= CHANGE_BUDGET);
    Ok(())
}

async fn due(crowd: &mut Crowd, operator: &Operator, findings: &Findings) -> Result<()> {
    let at = (SystemClock.now() + SCHEDULING).to_zoned(TimeZone::UTC);
    let schedule = format!("{} {} * * *", at.minute(), at.hour());
    let due = at.with().second(0).subsec_nanosecond(0).build()?.timestamp();
    let backups = crowd.backups();
    in_parallel(BACKUPS, |n| {
        let (backups, schedule) = (backups.clone(), schedule.clone());
        async move {
            let patch: Value = json!({"spec": {"schedule": schedule}});
            backups
                .patch(&backup(n), &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            Ok(())
        }
    })
    .await?;
    let left = Duration::try_from(due.duration_since(SystemClock.now())).unwrap_or_default();
    ensure!(!left.is_zero(), "the schedules were not changed in time");
    ensure!(
        crowd.count_stored().await? == 0,
        "backups were stored before they were due"
    );
    tokio::time::sleep(left).await;
    let before = operator.processor_time()?;
    let from = Instant::now();
    let changes = crowd.time_changes(730).await?;
    loop {
        crowd.check()?;
        let stored = crowd.count_stored().await?;
        if stored == usize::from(BACKUPS) {
            break;
        }
        ensure!(from.elapsed() < LONG, "{stored} of {BACKUPS} backups were stored");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let (time, used) = (from.elapsed(), operator.processor_time()?.saturating_sub(before));
    let resident = operator.most_resident()?;
    findings.say(&format!(
        "{BACKUPS} backups due at one minute: all stored after {:.0} s, {:.1} ms of processor time each, {:.1} % of a core; a changed cluster meanwhile: {}; at most {} MiB resident",
        time.as_secs_f64(),
        1000.0 * used.as_secs_f64() / f64::from(BACKUPS),
        share(used, time),
        summary(&changes),
        mebibytes(resident),
    ));
    findings.within(
        "a change while backups are due",
        longest(&changes) <= CHANGE_BUDGET,
    );
    findings.within("memory while backups are due", resident <= MEMORY_BUDGET);
    Ok(())
}

fn longest(all: &[Duration]) -> Duration {
    all.iter().max().copied().unwrap_or_default()
}

/// The median and the longest, in words.
fn summary(all: &[Duration]) -> String {
    format!(
        "median {} s, longest {} s",
        told(&[median(all.to_vec())]),
        told(&[longest(all)])
    )
}

fn last_lines(operator: &Operator) -> String {
    let log = operator.logged();
    let lines: Vec<_> = log.lines().rev().take(50).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
