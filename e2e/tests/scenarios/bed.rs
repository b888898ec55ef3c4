//! The bed itself: pods run and find each other on every node, nothing leaves it, and nothing is left of it.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_e2e::cluster::{Cluster, Node, Options};
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::host::Host;
use etcd_operator_e2e::images::TOOLS;
use etcd_operator_e2e::process::{ProcessId, Sent};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::{bed_dir, command, report};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const SOON: Duration = Duration::from_secs(30);
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
    .leaving(),
    Scenario::gate("bed", "nothing_is_left_of_a_bed_that_ended", Bed::Without, |_| {
        Box::pin(ended())
    }),
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
    ),
    Scenario::gate(
        "bed",
        "an_interrupted_bed_takes_itself_away",
        Bed::Without,
        |_| Box::pin(interrupted()),
    ),
    Scenario::gate(
        "bed",
        "a_bed_that_does_not_start_leaves_a_report_and_nothing_else",
        Bed::Without,
        |_| Box::pin(not_started()),
    ),
    Scenario::gate("bed", "a_report_tells_what_happened", Bed::Shared, |stage| {
        Box::pin(reported(stage))
    }),
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

async fn ended() -> Result<()> {
    let before = Host::look().await?;
    let cluster = Arc::new(Cluster::start(&Options::default()).await?);
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
                &["wait", "--for=condition=Ready", "pod/tenant", "--timeout=50s"],
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
        Ok(Host::look().await?.since(before).is_empty().then_some(()))
    });
    if let Err(limit) = gone.await {
        let left = Host::look().await?.since(before);
        return Err(limit.context(format!("left: {left:#?}")));
    }
    Ok(())
}

async fn reported(stage: Arc<Stage>) -> Result<()> {
    stage.run("witness", None, None, &["serve", ":80"]).await?;
    stage.note("something went wrong");
    let folder = stage
        .cluster()
        .control_plane()
        .directory()
        .join("report-of-a-test");
    report::write(
        stage.cluster(),
        &folder,
        "it was a test",
        "2026-01-01T00:00:00Z it began\n",
    )
    .await?;
    let read = |name: &str| {
        std::fs::read_to_string(folder.join(name)).with_context(|| format!("the report has no {name}"))
    };
    ensure!(read("failure.txt")? == "it was a test");
    ensure!(read("objects.yaml")?.contains("name: witness"));
    let timeline = read("timeline.txt")?;
    ensure!(
        timeline.starts_with("2026-01-01T00:00:00Z it began"),
        "{timeline}"
    );
    ensure!(timeline.contains("Started"), "{timeline}");
    ensure!(read("left-the-bed.txt")? == "0 packets tried to leave the bed\n");
    ensure!(!read("processes/kube-apiserver.log")?.is_empty());
    for node in stage.cluster().nodes() {
        ensure!(!read(&format!("processes/{}/kubelet.log", node.name()))?.is_empty());
    }
    let (node, _) = stage.cluster().place_of(stage.namespace(), "witness").await?;
    let pods = folder.join("pods").join(node.name());
    let logs: Vec<String> = std::fs::read_dir(pods)
        .context("the report has no logs of pods")?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    ensure!(logs.iter().any(|name| name.contains("witness")), "{logs:?}");
    Ok(())
}
