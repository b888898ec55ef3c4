//! The bed itself: it starts what it says, breaks on demand, and leaves nothing behind whatever happens to its owner.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use etcd_operator_e2e::control_plane::{self, Access, AuditFilter, ControlPlane, Options};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::process::{ProcessId, Sent};
use etcd_operator_e2e::{bed_dir, components};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const SOON: Duration = Duration::from_mins(1);

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> Result<String> {
    let made = maps.create(&PostParams::default(), &config_map(name)).await?;
    made.metadata.resource_version.context("no resourceVersion")
}

/// The HTTP code with which a watch from `version` is refused, or none if it is served.
async fn watch_refusal(maps: &Api<ConfigMap>, version: &str) -> Result<Option<u16>> {
    let stream = match maps.watch(&WatchParams::default().timeout(5), version).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) => return Ok(Some(status.code)),
        Err(error) => return Err(error.into()),
    };
    match timeout(SOON, stream.boxed().try_next()).await?? {
        Some(WatchEvent::Error(status)) => Ok(Some(status.code)),
        _ => Ok(None),
    }
}

#[tokio::test]
async fn the_api_server_says_the_version_its_module_pins() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    let version = control_plane.client().await?.apiserver_version().await?;
    let set = components::SETS
        .iter()
        .find(|set| set.name == "kubernetes")
        .context("no such set")?;
    assert_eq!(version.git_version, set.version()?);
    assert_eq!(version.git_version, "v1.36.3");
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    Ok(())
}

#[tokio::test]
async fn kubectl_is_of_the_same_version_and_needs_nothing_but_the_kubeconfig() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    let output = control_plane.kubectl(&["version", "-o", "json"]).await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let versions: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    for side in ["clientVersion", "serverVersion"] {
        assert_eq!(versions[side]["gitVersion"], "v1.36.3", "{side}");
    }
    Ok(())
}

#[tokio::test]
async fn applied_crds_can_be_used_at_once() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    control_plane
        .apply_crds(
            r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: lamps.bed.example }
spec:
  group: bed.example
  names: { kind: Lamp, plural: lamps }
  scope: Namespaced
  versions:
  - { name: v1, served: true, storage: true, schema: { openAPIV3Schema: { type: object } } }
",
        )
        .await?;
    let output = control_plane
        .kubectl(&["get", "lamps", "--all-namespaces", "-o", "name"])
        .await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let refused = control_plane.apply_crds("apiVersion: v1\nkind: Nonsense\n").await;
    assert!(refused.is_err());
    Ok(())
}

#[tokio::test]
async fn the_audit_log_tells_who_did_what_since_when() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    let namespace = control_plane.namespace("audit").await?;
    let maps = Api::<ConfigMap>::namespaced(control_plane.client_as("auditor/1").await?, &namespace);
    create(&maps, "before").await?;
    let ours = AuditFilter::new()
        .user_agent("auditor/")
        .resource("configmaps")
        .namespace(&namespace);
    control_plane
        .audit_until(&ours.clone().verb("create"), 1, SOON)
        .await?;

    let mark = control_plane.audit_mark();
    create(&maps, "after").await?;
    maps.list(&ListParams::default()).await?;
    let other = Api::<ConfigMap>::namespaced(control_plane.client_as("somebody/1").await?, &namespace);
    other.list(&ListParams::default()).await?;

    let since = ours.since(mark);
    let seen = control_plane.audit_until(&since, 2, SOON).await?;
    let verbs: Vec<&str> = seen.iter().map(|entry| entry.verb.as_str()).collect();
    assert_eq!(verbs, ["create", "list"]);
    let writes = control_plane.audit(&since.writes())?;
    assert_eq!(writes.len(), 1);
    assert_eq!(
        writes[0].object_ref.as_ref().map(|object| object.name.as_str()),
        Some("after")
    );
    assert_eq!(
        writes[0].response_status.as_ref().map(|status| status.code),
        Some(201)
    );
    assert_eq!(writes[0].user.username, "bed-admin");
    Ok(())
}

#[tokio::test]
async fn another_user_has_only_the_rights_that_rbac_gives() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    let namespace = control_plane.namespace("rights").await?;
    let stranger = control_plane.client_for("stranger", &["strangers"]).await?;
    let refused = Api::<ConfigMap>::namespaced(stranger.clone(), &namespace)
        .list(&ListParams::default())
        .await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));

    for create in [
        [
            "role",
            "reader",
            "--verb=list",
            "--resource=configmaps",
            "-n",
            &namespace,
        ],
        [
            "rolebinding",
            "let-in",
            "--role=reader",
            "--group=strangers",
            "-n",
            &namespace,
        ],
    ] {
        let output = control_plane
            .kubectl(&[&["create"], create.as_slice()].concat())
            .await?;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let maps = Api::<ConfigMap>::namespaced(stranger, &namespace);
    until("the new binding is known", SOON, || async {
        Ok(maps.list(&ListParams::default()).await.ok())
    })
    .await?;

    let as_stranger = AuditFilter::new()
        .user("stranger")
        .namespace(&namespace)
        .verb("list");
    assert!(
        control_plane.audit_until(&as_stranger, 2, SOON).await?[0]
            .impersonated_user
            .is_some()
    );
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_for_another_user_carries_that_users_rights() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    let path = control_plane.kubeconfig_with(
        "nobody",
        &Access::admin().user("nobody", &["system:authenticated"]),
    )?;
    let flag = format!("--kubeconfig={}", path.display());
    let output = control_plane
        .kubectl(&[&flag, "auth", "whoami", "-o", "json"])
        .await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let review: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(review["status"]["userInfo"]["username"], "nobody");
    let output = control_plane.kubectl(&[&flag, "get", "secrets"]).await?;
    assert!(!output.status.success());
    Ok(())
}

#[tokio::test]
async fn the_api_servers_metrics_count_its_requests() -> Result<()> {
    let metrics = control_plane::shared().await?.metrics().await?;
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("apiserver_request_total{"))
    );
    Ok(())
}

#[tokio::test]
async fn a_cut_between_client_and_api_server_hurts_until_it_heals() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    let namespace = control_plane.namespace("cut").await?;
    let cut = control_plane.cut().await?;
    let client = control_plane.client_with(&Access::admin().through(&cut)).await?;
    let maps = Api::<ConfigMap>::namespaced(client, &namespace);
    let version = create(&maps, "one").await?;
    let mut watch = maps.watch(&WatchParams::default(), &version).await?.boxed();

    cut.cut();
    assert!(
        !matches!(timeout(SOON, watch.next()).await?, Some(Ok(_))),
        "the watch delivered something after its connection was cut"
    );
    create(&maps, "two").await?;

    cut.black_hole();
    assert!(
        timeout(Duration::from_millis(500), maps.get("one"))
            .await
            .is_err(),
        "an answer came through"
    );
    cut.heal();
    timeout(SOON, maps.get("one")).await??;

    let kubeconfig = control_plane.kubeconfig_via_proxy(&cut)?;
    let flag = format!("--kubeconfig={}", kubeconfig.display());
    let get = [
        flag.as_str(),
        "get",
        "configmap",
        "one",
        "-n",
        &namespace,
        "--request-timeout=5s",
    ];
    assert!(control_plane.kubectl(&get).await?.status.success());
    cut.refuse();
    assert!(!control_plane.kubectl(&get).await?.status.success());
    Ok(())
}

#[tokio::test]
async fn dropped_it_leaves_no_process_and_no_directory() -> Result<()> {
    // Whatever has to be built is not part of the start.
    control_plane::shared().await?;
    let begin = Instant::now();
    let control_plane = ControlPlane::start(Options::default()).await?;
    println!("ready after {} ms", begin.elapsed().as_millis());
    let directory = control_plane.directory().to_owned();
    let processes = control_plane.processes();
    assert_eq!(processes.len(), 3, "etcd, the API server and the watchdog");
    assert!(processes.iter().all(|process| process.is_running()));

    drop(control_plane);

    assert!(processes.iter().all(|process| !process.is_running()));
    assert!(!directory.exists());
    Ok(())
}

#[tokio::test]
async fn stopped_and_started_again_it_has_its_data_and_history_only_if_not_forgotten() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let maps = Api::<ConfigMap>::default_namespaced(control_plane.client().await?);
    let version = create(&maps, "kept").await?;
    maps.patch(
        "kept",
        &PatchParams::default(),
        &Patch::Merge(serde_json::json!({ "data": { "a": "b" } })),
    )
    .await?;
    assert_eq!(watch_refusal(&maps, &version).await?, None);

    control_plane.stop_apiserver();
    assert!(maps.get("kept").await.is_err());
    control_plane.start_apiserver().await?;
    assert_eq!(maps.get("kept").await?.data.unwrap_or_default()["a"], "b");

    control_plane.forget_history().await?;
    assert_eq!(watch_refusal(&maps, &version).await?, Some(410));
    assert_eq!(maps.get("kept").await?.data.unwrap_or_default()["a"], "b");
    Ok(())
}

#[tokio::test]
async fn compaction_ends_old_watches_where_no_cache_remembers() -> Result<()> {
    let options = Options {
        api_server_flags: vec!["--watch-cache=false".into()],
        ..Options::default()
    };
    let control_plane = ControlPlane::start(options).await?;
    let maps = Api::<ConfigMap>::default_namespaced(control_plane.client().await?);
    let version = create(&maps, "one").await?;
    // What a watch begins with, and one more: etcd still has the revision that it was compacted to.
    create(&maps, "two").await?;
    create(&maps, "three").await?;
    assert_eq!(watch_refusal(&maps, &version).await?, None);

    let revision = control_plane.compact_etcd().await?;

    assert!(revision > version.parse::<u64>()? + 1);
    assert_eq!(watch_refusal(&maps, &version).await?, Some(410));
    Ok(())
}

#[tokio::test]
async fn a_paused_api_server_answers_nothing_until_it_resumes() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let maps = Api::<ConfigMap>::default_namespaced(control_plane.client().await?);
    create(&maps, "one").await?;

    control_plane.pause_apiserver()?;
    // A thread stops when it is next given the processor: on a busy machine one may still answer.
    until("a request stays without an answer", SOON, || async {
        let asked = timeout(Duration::from_millis(500), maps.get("one")).await;
        Ok(asked.is_err().then_some(()))
    })
    .await?;
    control_plane.resume_apiserver()?;

    timeout(SOON, maps.get("one")).await??;
    Ok(())
}

/// A bed started by the command, as a person would.
struct Owned {
    bed: Child,
    directory: PathBuf,
    /// The watchdog is recorded before anything else.
    processes: Vec<ProcessId>,
}

impl Owned {
    async fn start() -> Result<Self> {
        control_plane::shared().await?;
        let mut bed = Command::new(env!("CARGO_BIN_EXE_bed"))
            .arg("control-plane")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(bed.stdout.take().context("no output")?).lines();
        let kubeconfig = loop {
            let Some(line) = timeout(Duration::from_mins(1), lines.next_line()).await?? else {
                bail!("the bed ended before it was ready");
            };
            if let Some(path) = line.strip_prefix("# kubeconfig: ") {
                break PathBuf::from(path);
            }
        };
        let directory = kubeconfig
            .parent()
            .context("the kubeconfig lies nowhere")?
            .to_owned();
        let processes = std::fs::read_to_string(directory.join("processes"))?
            .lines()
            .map(str::parse)
            .collect::<Result<Vec<ProcessId>>>()?;
        assert_eq!(processes.len(), 3);
        assert!(processes.iter().all(|process| process.is_running()));
        Ok(Self {
            bed,
            directory,
            processes,
        })
    }

    fn running(&self) -> usize {
        self.processes
            .iter()
            .filter(|process| process.is_running())
            .count()
    }
}

async fn gone(directory: &Path) -> Result<()> {
    until("the directory is gone", SOON, || async {
        Ok((!directory.exists()).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_killed_owner_is_followed_by_everything_it_started() -> Result<()> {
    let mut owned = Owned::start().await?;
    owned.bed.kill().await?;
    gone(&owned.directory).await?;
    // What was killed may take a moment to be gone.
    until("no process of it runs", SOON, || async {
        Ok((owned.running() == 0).then_some(()))
    })
    .await
}

#[tokio::test]
async fn what_a_killed_owner_and_its_killed_watchdog_left_is_removed_by_the_next_start() -> Result<()> {
    let mut owned = Owned::start().await?;
    assert!(owned.processes[0].send(Sent::Kill)?);
    owned.bed.kill().await?;
    // Who was killed may take a moment to be gone.
    until("only etcd and the API server outlive both", SOON, || async {
        Ok((owned.running() == 2).then_some(()))
    })
    .await?;
    assert!(owned.directory.exists());

    // Every start begins with this.
    bed_dir::clean().await?;

    assert_eq!(owned.running(), 0);
    assert!(!owned.directory.exists());
    Ok(())
}

#[tokio::test]
async fn a_terminated_bed_tears_down_in_order() -> Result<()> {
    let mut owned = Owned::start().await?;
    let bed = ProcessId::of(owned.bed.id().context("ended already")?).context("ended already")?;
    assert!(bed.send(Sent::Terminate)?);
    let status = timeout(SOON, owned.bed.wait()).await??;
    assert!(status.success(), "{status}");
    assert_eq!(owned.running(), 0);
    assert!(!owned.directory.exists());
    Ok(())
}
