//! The bed itself: pods run and find each other on every node, nothing leaves it, and nothing is left of it.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_e2e::cluster::{Cluster, Node, Options};
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::host::Host;
use etcd_operator_e2e::images::TOOLS;
use etcd_operator_e2e::process::{ProcessId, Sent};
use etcd_operator_e2e::scenario::play::play_on;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::{bed_dir, command};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::etcd_pod;

const SOON: Duration = Duration::from_mins(1);
const START_LIMIT: Duration = Duration::from_mins(5);

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "bed",
        "pods_on_every_node_reach_each_other_and_resolve_names",
        Bed::Shared,
        |stage| Box::pin(pods_meet(stage)),
    ),
    Scenario::gate(
        "bed",
        "what_tries_to_leave_is_held_back_and_counted",
        Bed::Own(1),
        |stage| Box::pin(leaving(stage)),
    )
    .leaving()
    .full(),
    Scenario::gate("bed", "nothing_is_left_of_a_bed_that_ended", Bed::Without, |_| {
        Box::pin(ended(1))
    })
    .full(),
    // The same as with one node, and half a minute longer.
    Scenario::gate(
        "bed",
        "nothing_is_left_of_a_bed_of_three_nodes_that_ended",
        Bed::Without,
        |_| Box::pin(ended(3)),
    )
    .full(),
    Scenario::gate(
        "bed",
        "two_beds_beside_each_other_do_not_meet",
        Bed::Without,
        |_| Box::pin(two_beds()),
    )
    .full(),
    Scenario::gate(
        "bed",
        "a_killed_bed_is_taken_away_by_its_watchdog",
        Bed::Without,
        |_| Box::pin(killed()),
    ),
    Scenario::gate(
        "bed",
        "a_bed_killed_together_with_its_watchdog_is_taken_away_by_the_next_start",
        Bed::Without,
        |_| Box::pin(killed_with_its_watchdog()),
    )
    .full(),
    Scenario::gate(
        "bed",
        "an_interrupted_bed_takes_itself_away",
        Bed::Without,
        |_| Box::pin(interrupted()),
    )
    .full(),
    Scenario::gate(
        "bed",
        "a_bed_that_does_not_start_leaves_a_report_and_nothing_else",
        Bed::Without,
        |_| Box::pin(not_started()),
    )
    .full(),
    Scenario::gate(
        "bed",
        "a_failed_scenario_is_understood_from_its_report_alone",
        Bed::Shared,
        |stage| Box::pin(reported(stage)),
    )
    .full(),
];

async fn pods_meet(stage: Arc<Stage>) -> Result<()> {
    let nodes: Vec<&str> = stage.cluster().nodes().iter().map(Node::name).collect();
    for node in &nodes {
        let pod = format!("on-{node}");
        stage.run(&pod, Some(node), None, &["serve", ":80"]).await?;
        stage.expose(&pod).await?;
    }
    for from in &nodes {
        let from = format!("on-{from}");
        for to in &nodes {
            let to = format!("on-{to}");
            let address = stage.address(&to).await?;
            let direct = stage
                .probe(&from, &["get", &format!("http://{address}/")])
                .await?;
            ensure!(direct["body"] == format!("{to}\n"), "{from} to {to}: {direct}");

            let name = format!("{to}.{}.svc.cluster.local", stage.namespace());
            let resolved = stage.probe_until(&from, &["lookup", &name], SOON).await?;
            ensure!(
                resolved["addresses"][0]
                    .as_str()
                    .is_some_and(|ip| ip.starts_with("10.96.")),
                "{name} is {resolved}"
            );
            let by_name = ["get", &format!("http://{to}/")];
            let through_service = stage.probe_until(&from, &by_name, SOON).await?;
            ensure!(through_service["body"] == format!("{to}\n"), "{through_service}");
        }
    }
    Ok(())
}

async fn leaving(stage: Arc<Stage>) -> Result<()> {
    ensure!(
        stage.cluster().leaving().await? == 0,
        "packets left before anybody tried"
    );
    stage.run("fugitive", None, None, &["pause"]).await?;
    ensure!(
        stage
            .probe("fugitive", &["connect", "192.0.2.1:80"])
            .await
            .is_err(),
        "a pod reached an address outside the bed"
    );
    ensure!(
        stage.cluster().leaving().await? > 0,
        "a pod tried to leave and was not counted"
    );
    Ok(())
}

/// A pod with a volume, so that there is something of every kind to take away.
async fn furnish(cluster: Arc<Cluster>) -> Result<()> {
    let stage = Stage::on(cluster, "furnished").await?;
    stage.claim("data", None, "300Mi").await?;
    stage.run("tenant", None, Some("data"), &["serve", ":80"]).await
}

async fn ended(nodes: u8) -> Result<()> {
    let before = Host::look().await?;
    let options = Options {
        nodes,
        ..Options::default()
    };
    let cluster = Arc::new(Cluster::start(&options).await?);
    furnish(cluster.clone()).await?;
    let during = Host::look().await?.since(&before);
    for kind in [
        "process",
        "loop device",
        "interface",
        "control group",
        "directory",
    ] {
        ensure!(
            during.iter().any(|what| what.starts_with(kind)),
            "a bed without a {kind} of its own proves nothing: {during:?}"
        );
    }
    ensure!(
        !during
            .iter()
            .any(|what| what.starts_with("mount") || what.starts_with("rule")),
        "mounts and rules of a bed are to stay inside it: {during:?}"
    );
    drop(cluster);
    nothing_since(&before).await
}

/// They have the same addresses inside, so whatever got across would be answered.
async fn two_beds() -> Result<()> {
    let before = Host::look().await?;
    let options = Options::default();
    let (one, other) = tokio::try_join!(Cluster::start(&options), Cluster::start(&options))?;
    let (one, other) = (Arc::new(one), Arc::new(other));
    ensure!(one.control_plane().address() != other.control_plane().address());
    let (here, there) = tokio::try_join!(Stage::on(one.clone(), "here"), Stage::on(other.clone(), "there"))?;
    here.run("only-here", None, None, &["serve", ":80"]).await?;
    let url = format!("http://{}/", here.address("only-here").await?);
    here.run("asker", None, None, &["pause"]).await?;
    there.run("asker", None, None, &["pause"]).await?;
    here.probe("asker", &["get", &url]).await?;
    let answer = there.probe("asker", &["get", &url]).await;
    if let Ok(answer) = &answer {
        ensure!(answer["body"] != "only-here\n", "a pod of another bed answered");
    }
    for cluster in [&one, &other] {
        ensure!(cluster.leaving().await? == 0, "packets tried to leave");
    }
    drop((here, there, one, other));
    nothing_since(&before).await
}

async fn not_started() -> Result<()> {
    let before = Host::look().await?;
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report-of-a-start");
    let _ = std::fs::remove_dir_all(&folder);
    let started = Cluster::start(&Options {
        images: vec![PathBuf::from("there-is-no-such-image.tar")],
        report: Some(folder.clone()),
        ..Options::default()
    })
    .await;
    let Err(failure) = started else {
        bail!("a bed started without one of its images");
    };
    let failure = format!("{failure:#}");
    ensure!(failure.contains(&folder.display().to_string()), "{failure}");
    let told = std::fs::read_to_string(folder.join("failure.txt"))?;
    ensure!(told.contains("there-is-no-such-image.tar"), "{told}");
    ensure!(folder.join("processes/node-1/containerd.log").is_file());
    nothing_since(&before).await
}

/// A bed of another process, with a tenant in it.
struct Owned {
    owner: Child,
    watchdog: ProcessId,
}

impl Owned {
    async fn start() -> Result<Self> {
        let mut owner = Command::new(env!("CARGO_BIN_EXE_bed"))
            .arg("cluster")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the bed")?;
        let mut lines = BufReader::new(owner.stdout.take().context("no output")?).lines();
        let kubeconfig = loop {
            let line = tokio::time::timeout(START_LIMIT, lines.next_line()).await??;
            let Some(line) = line else {
                bail!("the bed ended before it was ready");
            };
            if let Some(path) = line.strip_prefix("# kubeconfig: ") {
                break PathBuf::from(path);
            }
        };
        let directory = kubeconfig.parent().context("the kubeconfig lies nowhere")?;
        let watchdog = std::fs::read_to_string(directory.join("processes"))?
            .lines()
            .next()
            .context("the bed has recorded no process")?
            .parse()?;
        let objects = json!({ "apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "300Mi" } },
                },
            },
            {
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "tenant" },
                "spec": {
                    "containers": [{
                        "name": "probe", "image": TOOLS, "imagePullPolicy": "Never",
                        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                    }],
                    "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
                },
            },
        ] });
        let kubectl = components::find(Component::Kubectl).await?;
        for (arguments, input) in [
            (["apply", "-f", "-"].as_slice(), objects.to_string()),
            (
                &["wait", "--for=condition=Ready", "pod/tenant", "--timeout=150s"],
                String::new(),
            ),
        ] {
            let mut command = Command::new(&kubectl);
            command
                .args(arguments)
                .env("KUBECONFIG", &kubeconfig)
                .env("KUBECACHEDIR", directory.join("kubectl-cache"))
                .env("NO_PROXY", "*");
            command::succeed(command, &input).await?;
        }
        Ok(Self { owner, watchdog })
    }
}

async fn killed() -> Result<()> {
    let before = Host::look().await?;
    let mut owned = Owned::start().await?;
    owned.owner.kill().await?;
    nothing_since(&before).await
}

async fn killed_with_its_watchdog() -> Result<()> {
    let before = Host::look().await?;
    let mut owned = Owned::start().await?;
    ensure!(owned.watchdog.send(Sent::Kill)?, "the watchdog did not run");
    owned.owner.kill().await?;
    let left = Host::look().await?.since(&before);
    ensure!(
        left.iter().any(|what| what.starts_with("loop device")),
        "nobody was left to clean up, and yet this is all there is: {left:?}"
    );

    // Every start begins with this.
    let cleaned = bed_dir::clean().await?;

    ensure!(cleaned.beds == 1, "{cleaned:?}");
    nothing_since(&before).await
}

async fn interrupted() -> Result<()> {
    let before = Host::look().await?;
    let mut owned = Owned::start().await?;
    let owner = owned.owner.id().and_then(ProcessId::of);
    ensure!(owner.context("the bed has ended")?.send(Sent::Interrupt)?);
    let status = tokio::time::timeout(SOON, owned.owner.wait()).await??;
    ensure!(status.success(), "{status}");
    nothing_since(&before).await
}

/// The kernel takes some things away a moment after the last process that used them.
async fn nothing_since(before: &Host) -> Result<()> {
    let gone = until("nothing is left of the bed", SOON, || async {
        Ok(Host::left_since(before).await?.is_empty().then_some(()))
    });
    if let Err(limit) = gone.await {
        let left = Host::left_since(before).await?;
        return Err(limit.context(format!("left: {left:#?}")));
    }
    Ok(())
}

/// Fails on purpose, after something has happened.
const DOOMED: Scenario = Scenario::gate("bed", "doomed", Bed::Shared, |stage| Box::pin(doomed(stage)));

async fn doomed(stage: Arc<Stage>) -> Result<()> {
    etcd_pod::start(&stage, "member", "node-1", EtcdVersion::OF_CONTROL_PLANE, None).await?;
    let namespace = stage.namespace();
    let container = stage
        .cluster()
        .container(namespace, "member", etcd_pod::CONTAINER)
        .await?;
    stage.note("now it dies");
    container.kill()?;
    let again = "it has started again";
    stage
        .pod("member", again, SOON, |pod| crate::restarts(pod) == 1)
        .await?;
    until("it answers again", SOON, || async {
        let answer = etcd_pod::ctl(&stage, "member", &["get", "greeting"]).await;
        Ok(answer.ok())
    })
    .await?;
    bail!("three members were promised, and there is one")
}

async fn reported(stage: Arc<Stage>) -> Result<()> {
    let cluster = stage.shared_cluster().context("a shared bed has a cluster")?;
    let reports = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("reports-of-a-test");
    let played = play_on(&DOOMED, Stage::on(cluster, "bed").await?, &reports, false).await;
    let error = format!("{:#}", played.err().context("it did not fail")?);
    let folder = reports.join("bed-doomed");
    ensure!(error.contains(&folder.display().to_string()), "{error}");
    let read = |name: &str| {
        std::fs::read_to_string(folder.join(name)).with_context(|| format!("the report has no {name}"))
    };
    let failure = read("failure.txt")?;
    ensure!(
        failure.starts_with("scenario: bed/doomed\n") && failure.contains("three members were promised"),
        "{failure}"
    );
    let namespace = failure
        .lines()
        .find_map(|line| line.strip_prefix("namespace: "))
        .context("nobody knows where it happened")?;
    ensure!(read("objects.yaml")?.contains("name: member"));
    ensure!(read("pods.txt")?.contains("member"));

    let timeline = read("timeline.txt")?;
    let mut place = 0;
    for what in [
        "kube-apiserver starts as process",
        "node-1/kubelet starts as process",
        &format!("scenario in {namespace}: bed/doomed begins"),
        &format!("event: pod/member in {namespace}: Scheduled"),
        &format!("scenario in {namespace}: now it dies"),
        &format!("fault: container etcd of {namespace}/member gets the signal to Kill"),
        &format!("scenario in {namespace}: bed/doomed has failed: three members"),
    ] {
        let found = timeline[place..].find(what);
        place += found.with_context(|| format!("`{what}` is not where it happened in\n{timeline}"))?;
    }
    ensure!(timeline.contains(&format!("pod/member in {namespace}: Started")));

    for etcd in ["of-the-control-plane", &format!("{namespace}-member")] {
        let said = read(&format!("etcd/{etcd}.txt"))?;
        for what in [
            "raftAppliedIndex",
            "is healthy",
            "# etcdctl member list",
            "# etcdctl alarm list",
        ] {
            ensure!(said.contains(what), "{etcd} does not tell {what}: {said}");
        }
    }
    for name in ["kube-apiserver", "etcd", "kube-scheduler", "node-1/containerd"] {
        let log = folder.join(format!("processes/{name}.log"));
        ensure!(log.is_file(), "the report has no {}", log.display());
    }
    for node in stage.cluster().nodes() {
        ensure!(!read(&format!("processes/{}/kubelet.log", node.name()))?.is_empty());
        ensure!(read(&format!("network/{}.txt", node.name()))?.contains("eth0"));
    }
    // Of both runs: the one that was killed, and the one after.
    let pods = folder.join("pods/node-1");
    let of_member = std::fs::read_dir(&pods)
        .with_context(|| format!("the report has no {}", pods.display()))?
        .flatten()
        .find(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with(&format!("{namespace}_member"))
        })
        .context("the report has no log of the pod")?
        .path();
    for run in ["0.log", "1.log"] {
        let log = std::fs::read_to_string(of_member.join(etcd_pod::CONTAINER).join(run))?;
        ensure!(log.contains("etcd"), "{run}: {log}");
    }
    ensure!(read("left-the-bed.txt")? == "0 packets tried to leave the bed\n");
    Ok(())
}
