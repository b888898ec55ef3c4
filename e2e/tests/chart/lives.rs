//! How releases live in a real API server: definitions that stay and are never taken back, and an example that comes and
//! goes with its release. There are no nodes: what runs is played on a bed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::components::Component;
use etcd_operator_e2e::control_plane::{ControlPlane, Options};
use etcd_operator_e2e::deadline::until;
use serde_json::Value;

use crate::helm::{HELMS, NAMESPACE, RELEASE, chart, run};
use crate::rendered::told_as_committed;

/// What tells helm to delete a definition never.
const KEPT: &str = "helm.sh/resource-policy: keep";
const DEFINITIONS: [&str; 3] = [
    "etcdclusters.etcd.database.coreos.com",
    "etcdbackups.etcd.database.coreos.com",
    "etcdrestores.etcd.database.coreos.com",
];
const EXAMPLE: &str = "etcdCluster.create=true,etcdBackup.create=true,etcdBackup.spec.storageType=Local,\
    etcdBackup.spec.local.persistentVolumeClaim=backups,etcdBackup.spec.local.path=etcd";

/// An API server of its own for each helm, as definitions are shared by everybody in one.
struct Place {
    control_plane: ControlPlane,
    helm: Component,
}

impl Place {
    async fn new(helm: Component) -> Result<Self> {
        Ok(Self {
            control_plane: ControlPlane::start(Options::default()).await?,
            helm,
        })
    }

    /// What helm says, or an error.
    async fn helm(&self, arguments: &[&str]) -> Result<String> {
        let said = run(self.helm, Some(self.control_plane.kubeconfig()), arguments).await?;
        said.map_err(|complaint| anyhow::anyhow!("{:?} {}: {complaint}", self.helm, arguments.join(" ")))
    }

    async fn install(&self, release: &str, namespace: &str, chart: &Path, set: &str) -> Result<String> {
        let chart = chart.to_str().context("the chart's path is not UTF-8")?;
        let place = ["--namespace", namespace, "--create-namespace"];
        let head = ["upgrade", "--install", release, chart];
        let set = ["--set", "image.repository=etcd-operator", "--set", set];
        self.helm(&[&head[..], &place, &set].concat()).await
    }

    async fn uninstall(&self, release: &str, namespace: &str) -> Result<String> {
        self.helm(&["uninstall", release, "--namespace", namespace]).await
    }

    async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = self.control_plane.kubectl(arguments).await?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Waits until the API server serves what has just been defined: a definition is answered before it tells of its
    /// kind, on a busy machine by seconds.
    async fn serves_its_kinds(&self) -> Result<()> {
        until("the kinds are served", Duration::from_mins(1), || async {
            let list = [
                "api-resources",
                "--api-group=etcd.database.coreos.com",
                "--output=name",
            ];
            let output = self.control_plane.kubectl(&list).await?;
            let said = String::from_utf8_lossy(&output.stdout);
            let is_there = |kind: &&str| said.lines().any(|line| line == *kind);
            Ok(DEFINITIONS.iter().all(is_there).then_some(()))
        })
        .await
    }

    /// The UIDs of the example's objects, if they are there.
    async fn example(&self) -> Result<Vec<String>> {
        let get = [
            "get",
            "etcdclusters,etcdbackups",
            "--all-namespaces",
            "--output=json",
        ];
        let list: Value = serde_json::from_str(&self.kubectl(&get).await?)?;
        let items = list["items"].as_array().context("no list")?;
        Ok(items
            .iter()
            .map(|item| item["metadata"]["uid"].to_string())
            .collect())
    }

    /// Gives definitions that are there to the release, as docs/install.md has it.
    async fn hand_over(&self) -> Result<()> {
        let marks = [
            format!("meta.helm.sh/release-name={RELEASE}"),
            format!("meta.helm.sh/release-namespace={NAMESPACE}"),
        ];
        let words =
            |verb, more: &[&'static str]| [&[verb, "--overwrite", "crd"], &DEFINITIONS[..], more].concat();
        let annotate = [words("annotate", &[]), marks.iter().map(String::as_str).collect()].concat();
        self.kubectl(&annotate).await?;
        self.kubectl(&words("label", &["app.kubernetes.io/managed-by=Helm"]))
            .await?;
        Ok(())
    }

    /// The UIDs of the definitions: with another one come no objects of before.
    async fn uids(&self) -> Result<String> {
        self.kubectl(&["get", "crd", "--output=jsonpath={.items[*].metadata.uid}"])
            .await
    }

    /// Which release keeps each definition, and which version of the chart wrote it.
    async fn definitions(&self) -> Result<Vec<(String, String)>> {
        let get = ["get", "crd", "--output=json"];
        let list: Value = serde_json::from_str(&self.kubectl(&get).await?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().context("no list")?;
        Ok(items
            .iter()
            .map(|item| &item["metadata"]["annotations"])
            .map(|marks| {
                (
                    text(&marks["meta.helm.sh/release-name"]),
                    text(&marks["etcd.database.coreos.com/chart-version"]),
                )
            })
            .collect())
    }
}

/// A copy of the chart that says it is of another version.
fn chart_of(version: &str, bed: &BedDir) -> Result<PathBuf> {
    let copy = bed.path().join(version);
    let copied = Command::new("cp").arg("-r").arg(chart()).arg(&copy).status()?;
    ensure!(copied.success(), "the chart cannot be copied");
    let file = copy.join("Chart.yaml");
    let own = format!("\nversion: {}\n", env!("CARGO_PKG_VERSION"));
    let text = fs::read_to_string(&file)?;
    ensure!(text.contains(&own), "{text}");
    fs::write(&file, text.replace(&own, &format!("\nversion: {version}\n")))?;
    Ok(copy)
}

fn by(release: &str, version: &str) -> Vec<(String, String)> {
    vec![(release.to_owned(), version.to_owned()); DEFINITIONS.len()]
}

#[tokio::test]
async fn an_example_comes_and_goes_with_its_release_and_definitions_stay() -> Result<()> {
    for helm in HELMS {
        let place = Place::new(helm).await?;
        // Nothing of kinds that come with this very release, and a word about it.
        let said = place.install(RELEASE, NAMESPACE, &chart(), EXAMPLE).await?;
        assert!(said.contains("Run the same command again"), "{said}");
        place.serves_its_kinds().await?;
        assert_eq!(place.example().await?, [""; 0], "{helm:?}");
        let said = place.install(RELEASE, NAMESPACE, &chart(), EXAMPLE).await?;
        told_as_committed("example-known", &said)?;
        let first = place.example().await?;
        assert_eq!(first.len(), 2, "{helm:?}");

        // An upgrade makes nothing anew.
        place.install(RELEASE, NAMESPACE, &chart(), EXAMPLE).await?;
        assert_eq!(place.example().await?, first, "{helm:?}");
        place.uninstall(RELEASE, NAMESPACE).await?;
        assert_eq!(place.example().await?, [""; 0], "{helm:?}");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(place.definitions().await?, by(RELEASE, version), "{helm:?}");

        // Again, where the definitions are there from the start.
        place.install(RELEASE, NAMESPACE, &chart(), EXAMPLE).await?;
        assert_eq!(place.example().await?.len(), 2, "{helm:?}");
        // What is not wanted any more goes at once.
        place
            .install(RELEASE, NAMESPACE, &chart(), "etcdCluster.create=false")
            .await?;
        assert_eq!(place.example().await?, [""; 0], "{helm:?}");
        place.uninstall(RELEASE, NAMESPACE).await?;
    }
    Ok(())
}

#[tokio::test]
async fn definitions_belong_to_one_release_and_are_never_taken_back() -> Result<()> {
    let bed = BedDir::create()?;
    let (newer, own) = (chart_of("0.9.0", &bed)?, env!("CARGO_PKG_VERSION"));
    for helm in HELMS {
        let place = Place::new(helm).await?;
        place.install(RELEASE, NAMESPACE, &chart(), "replicas=1").await?;
        assert_eq!(place.definitions().await?, by(RELEASE, own), "{helm:?}");

        // Somebody else's release leaves them, says so, and takes nothing with it when it goes.
        let said = place.install("red", "west", &newer, "replicas=1").await?;
        for name in DEFINITIONS {
            let told =
                format!("{name} is left as it is: release {RELEASE} in namespace {NAMESPACE} keeps it");
            assert!(said.contains(&told), "{helm:?}: {said}");
        }
        place.uninstall("red", "west").await?;
        assert_eq!(place.definitions().await?, by(RELEASE, own), "{helm:?}");

        // Forward, and not back.
        place.install(RELEASE, NAMESPACE, &newer, "replicas=1").await?;
        assert_eq!(place.definitions().await?, by(RELEASE, "0.9.0"), "{helm:?}");
        let said = place.install(RELEASE, NAMESPACE, &chart(), "replicas=1").await?;
        assert!(
            said.contains("version 0.9.0 of the chart wrote it"),
            "{helm:?}: {said}"
        );
        assert_eq!(place.definitions().await?, by(RELEASE, "0.9.0"), "{helm:?}");
        place.install(RELEASE, NAMESPACE, &newer, "replicas=1").await?;
        place.uninstall(RELEASE, NAMESPACE).await?;
        assert_eq!(place.definitions().await?, by(RELEASE, "0.9.0"), "{helm:?}");
    }
    Ok(())
}

/// Versions before a release come before it, and in the order of their names.
#[tokio::test]
async fn definitions_follow_versions_before_a_release_in_their_order() -> Result<()> {
    let bed = BedDir::create()?;
    let steps = [
        ("0.9.0-rc.1", "0.9.0-rc.1"),
        ("0.9.0-rc.2", "0.9.0-rc.2"),
        ("0.9.0-rc.1", "0.9.0-rc.2"),
        ("0.9.0", "0.9.0"),
        ("0.9.0-rc.2", "0.9.0"),
        ("0.9.0+rebuilt", "0.9.0+rebuilt"),
        ("0.10.0-rc.1", "0.10.0-rc.1"),
        ("0.9.9", "0.10.0-rc.1"),
    ];
    let charts: BTreeMap<&str, PathBuf> = steps
        .iter()
        .map(|(version, _)| *version)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|version| Ok((version, chart_of(version, &bed)?)))
        .collect::<Result<_>>()?;
    for helm in HELMS {
        let place = Place::new(helm).await?;
        for (number, (installed, left)) in steps.iter().enumerate() {
            place
                .install(RELEASE, NAMESPACE, &charts[installed], "replicas=1")
                .await?;
            assert_eq!(
                place.definitions().await?,
                by(RELEASE, left),
                "{helm:?}, step {number}"
            );
        }
    }
    Ok(())
}

/// Helm deletes what it once wrote and is not to write any more, but for what says on the spot that it is kept.
#[tokio::test]
async fn definitions_that_somebody_replaced_outlive_the_next_upgrade() -> Result<()> {
    let bed = BedDir::create()?;
    let crds = crate::helm::repository("config/crd");
    let crds = crds.to_str().context("the path is not UTF-8")?;
    let file = bed.path().join("replaced.yaml");
    for helm in HELMS {
        let place = Place::new(helm).await?;
        place.install(RELEASE, NAMESPACE, &chart(), "replicas=1").await?;
        let uids = place.uids().await?;

        // By what lies in the repository, which says so, too.
        place.kubectl(&["replace", "--kustomize", crds]).await?;
        let said = place.install(RELEASE, NAMESPACE, &chart(), "replicas=1").await?;
        assert!(said.contains("it was not installed by helm"), "{helm:?}: {said}");
        assert_eq!(place.uids().await?, uids, "{helm:?}");

        // By what does not say it: the upgrade is refused before helm does anything.
        place.hand_over().await?;
        place.install(RELEASE, NAMESPACE, &chart(), "replicas=1").await?;
        let without = place
            .kubectl(&["kustomize", crds])
            .await?
            .replace(KEPT, "other: mark");
        fs::write(&file, without)?;
        place
            .kubectl(&[
                "replace",
                "--filename",
                file.to_str().context("the path is not UTF-8")?,
            ])
            .await?;
        let remedy = "helm.sh/resource-policy=keep";
        for values in ["replicas=1", "replicas=1,crds.install=false"] {
            let upgraded = place.install(RELEASE, NAMESPACE, &chart(), values).await;
            let refused = format!("{:#}", upgraded.err().context("it was upgraded")?);
            assert!(
                refused.contains("kubectl annotate crd ") && refused.contains(remedy),
                "{helm:?} {values}: {refused}"
            );
            assert_eq!(place.uids().await?, uids, "{helm:?} {values}");
        }
        place
            .kubectl(&[&["annotate", "crd"], &DEFINITIONS[..], &[remedy]].concat())
            .await?;
        for values in ["replicas=1,crds.install=false", "replicas=1"] {
            place.install(RELEASE, NAMESPACE, &chart(), values).await?;
            assert_eq!(place.uids().await?, uids, "{helm:?} {values}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn definitions_that_somebody_applied_are_left_until_they_are_handed_over() -> Result<()> {
    for helm in HELMS {
        let place = Place::new(helm).await?;
        let crds = crate::helm::repository("config/crd");
        let crds = crds.to_str().context("the path is not UTF-8")?;
        place
            .kubectl(&["apply", "--server-side", "--kustomize", crds])
            .await?;
        let said = place.install(RELEASE, NAMESPACE, &chart(), "replicas=1").await?;
        assert!(said.contains("it was not installed by helm"), "{helm:?}: {said}");
        assert!(said.contains("docs/install.md"), "{helm:?}: {said}");
        assert_eq!(place.definitions().await?, by("", ""), "{helm:?}");

        place.hand_over().await?;
        let said = place.install(RELEASE, NAMESPACE, &chart(), "replicas=1").await?;
        assert!(!said.contains("is left as it is"), "{helm:?}: {said}");
        assert_eq!(
            place.definitions().await?,
            by(RELEASE, env!("CARGO_PKG_VERSION")),
            "{helm:?}"
        );
    }
    Ok(())
}
